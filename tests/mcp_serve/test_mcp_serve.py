"""Agents as an MCP server, with the SDK's client, the real server and a real worker."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from mcp.client import Client
from mcp_types import INVALID_REQUEST, PARSE_ERROR
from pydantic import BaseModel

from holdfast import AgentDefinition, tool
from holdfast.client import Holdfast, Settings
from holdfast.core.agent.answer_types import format_of
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.policies import ApprovalRule
from holdfast.core.conversation.verdicts import Verdict
from holdfast.mcp.tools import KEY_META
from holdfast.mcp_serve.requests import AgentArguments, run_request
from holdfast.testing.script import Reply, say
from holdfast.testing.script import call as calls
from tests.mcp_serve.callers import Place, Reports, call, http_server, over_http, over_stdio, run_id, text
from tests.serving import Serve

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(120)]

CLERK = AgentDefinition(name="clerk", label="The clerk", description="Answers questions.", tools=("look",))
NEVER = say("never", delay_seconds=600)


@tool
def look() -> str:
    """Look around."""
    return "nothing"


@pytest.mark.slow
async def test_an_agent_is_a_tool_whose_call_is_a_run(serve: Serve, settings: Settings, tmp_path: Path) -> None:
    reports, told = Reports(), threading.Event()

    @tool
    def look() -> str:
        """Look around, until the caller knows."""
        assert told.wait(100)
        return "nothing"

    async with serve([calls("look"), say("all is quiet")], [look]) as served:
        async with over_stdio(Place.of(settings, tmp_path, [CLERK])) as client:
            listed = await client.list_tools()
            arguments: dict[str, Any] = {"message": "what is there?", "metadata": {"vip": True}}
            calling = asyncio.create_task(call(client, "clerk", reports=reports, **arguments))
            await reports.until("step 1: calls look")
            told.set()
            result = await calling
        state = await served.client.result(run_id(result))
    assert [each.name for each in listed.tools] == ["clerk", "get_run", "stop_run"]
    assert listed.tools[0].title == "The clerk"
    assert listed.tools[0].input_schema["required"] == ["message"]
    assert (text(result), result.is_error) == ("all is quiet", False)
    assert state.metadata["vip"] is True
    assert reports.numbers == sorted(set(reports.numbers))
    assert reports.lines[:2] == ["step 1: asks the model", "step 1: calls look"]


class Weather(BaseModel):
    """What an agent with a form answers."""

    city: str
    degrees: int


@pytest.mark.slow
async def test_an_agent_with_a_form_answers_with_a_value_that_its_schema_describes(
    serve: Serve, settings: Settings, tmp_path: Path
) -> None:
    agent = AgentDefinition(name="weather", response_format=format_of(Weather))
    place = Place.of(settings, tmp_path, [agent])

    def answer(request: dict[str, Any]) -> Reply:
        asked = request["messages"][-1]["content"]
        return say('{"city": "Bern", "degrees": 7}') if asked == "Bern?" else NEVER

    async with serve(answer), over_stdio(place) as client:
        [listed, *_] = (await client.list_tools()).tools
        result = await call(client, "weather", message="Bern?")
        later = await call(client, "weather", message="Thun?", wait_seconds=0)
        await call(client, "stop_run", run_id=run_id(later))
        await call(client, "get_run", run_id=run_id(later), wait_seconds=60)
    assert result.structured_content == {"city": "Bern", "degrees": 7}
    assert listed.output_schema is not None
    assert later.structured_content is not None, "the SDK's client has checked it against the schema"
    assert later.structured_content["status"] == "running"


@pytest.mark.slow
async def test_a_repeated_request_attaches_to_its_run(serve: Serve, settings: Settings, tmp_path: Path) -> None:
    place, key = Place.of(settings, tmp_path, [CLERK]), str(uuid4())
    async with serve([say("once", delay_seconds=1)], [look]) as served:
        async with over_stdio(place) as client:
            both = await asyncio.gather(*(call(client, "clerk", key, message="hi") for _ in range(2)))
            other = await call(client, "clerk", key, message="something else")
        async with over_stdio(place) as client:  # another process
            again = await call(client, "clerk", key, message="hi")
            another = await call(client, "clerk", key, message="something else")
        assert len(served.endpoint.requests) == 1
    assert {run_id(each) for each in (*both, again)} == {run_id(again)}
    assert [text(each) for each in (*both, again)] == ["once"] * 3
    for refused in (other, another):
        assert refused.is_error
        assert "the idempotency key was used for another request" in text(refused)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_cancelled_call_stops_its_run_over_stdio(
    serve: Serve, settings: Settings, tmp_path: Path, mode: str
) -> None:
    place = Place.of(settings, tmp_path, [CLERK], "--on-disconnect", "continue")
    async with serve([NEVER], [look]) as served, over_stdio(place, mode) as client:
        await _cancelled(client, key := str(uuid4()))
        await _until_stopped(served.client, key)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_cancelled_call_stops_its_run_over_http(
    serve: Serve, settings: Settings, tmp_path: Path, mode: str
) -> None:
    place = Place.of(settings, tmp_path, [CLERK])
    async with serve([NEVER], [look]) as served, http_server(place) as (url, _), over_http(url, mode) as client:
        await _cancelled(client, key := str(uuid4()))
        await _until_stopped(served.client, key)


@pytest.mark.slow
async def test_a_call_that_another_one_waits_for_is_not_stopped(
    serve: Serve, settings: Settings, tmp_path: Path
) -> None:
    place = Place.of(settings, tmp_path, [CLERK])
    async with serve([say("for the other", delay_seconds=10)], [look]), over_stdio(place) as client:
        key, seen = str(uuid4()), Reports()
        other = asyncio.create_task(call(client, "clerk", key, seen, message="hi"))
        await seen.until("asks the model")
        await _cancelled(client, key)
        assert text(await other) == "for the other"


@pytest.mark.parametrize(("policy", "seconds", "status"), [("stop", 120, "stopped"), ("continue", 4, "completed")])
async def test_what_becomes_of_a_run_whose_client_vanishes_is_a_choice(
    serve: Serve, settings: Settings, tmp_path: Path, policy: str, seconds: float, status: str
) -> None:
    place, key = Place.of(settings, tmp_path, [CLERK], "--on-disconnect", policy), str(uuid4())
    async with serve([say("at last", delay_seconds=seconds)], [look]) as served:
        process = await asyncio.create_subprocess_exec(
            *place.command,
            env=place.environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(
            b'{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", '
            b'"capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}}\n'
        )
        assert b'"serverInfo"' in await process.stdout.readline()
        process.stdin.write(b'{"jsonrpc": "2.0", "id": 7,\n[1]\n')
        for code in (PARSE_ERROR, INVALID_REQUEST):
            refused = json.loads(await process.stdout.readline())
            assert (refused["id"], refused["error"]["code"]) == (None, code)
        process.stdin.write(
            b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n'
            b'{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "clerk", '
            b'"arguments": {"message": "hi"}, "_meta": {"progressToken": 5, "holdfast.dev/idempotency-key": "%s"}}}\n'
            % key.encode()
        )
        assert b"asks the model" in await process.stdout.readline()
        process.stdin.close()  # it vanishes
        code = await asyncio.wait_for(process.wait(), 60)
        state = await served.client.result(_clerks_run(key))
        errors = await process.stderr.read() if process.stderr else b""
    assert (code, errors) == (0, b"")
    assert state.status == status


@pytest.mark.slow
async def test_a_long_run_is_a_handle_that_is_asked_for_later(serve: Serve, settings: Settings, tmp_path: Path) -> None:
    careful = AgentDefinition(name="careful", tools=("look",), approvals=(ApprovalRule(tools=("look",)),))
    place = Place.of(settings, tmp_path, [careful])
    async with serve([calls("look"), say("done")], [look]) as served:
        async with over_stdio(place) as client:
            begun = await call(client, "careful", message="look", wait_seconds=0)
            first = await _until_waiting(client, run_id(begun), reports := Reports())
        async with over_stdio(place) as client:  # another process
            looked = await _until_waiting(client, run_id(begun), Reports())
            [waiting] = looked["waiting"]
            await served.client.decide(waiting["run_id"], waiting["call_id"], Verdict(decision="approve"))
            ended = await call(client, "get_run", run_id=run_id(begun), wait_seconds=60)
            again = await call(client, "get_run", run_id=run_id(begun))
    assert begun.structured_content is not None
    assert begun.structured_content["status"] == "running"
    assert any("look waits for a person's approval: holdfast approve" in line for line in reports.lines)
    assert looked == first
    assert (waiting["tool"], waiting["waits_for"]) == ("look", "approval")
    assert [text(each) for each in (ended, again)] == ["done", "done"]


@pytest.mark.slow
async def test_only_runs_that_such_a_server_began_are_shown_or_stopped(
    serve: Serve, settings: Settings, tmp_path: Path
) -> None:
    def answer(request: dict[str, Any]) -> Reply:
        return say("private") if request["messages"][-1]["content"] == "hi" else NEVER

    async with serve(answer, [look]) as served:
        elses = (await served.client.run(CLERK, "hi")).execution_id
        async with over_stdio(Place.of(settings, tmp_path, [CLERK])) as client:
            for name in ("get_run", "stop_run"):
                refused = await call(client, name, run_id=elses)
                assert refused.is_error
                assert text(refused).startswith(f"no run {elses} of this server's agents")
            begun = await call(client, "clerk", message="go on for ever", wait_seconds=0)
            stopping = await call(client, "stop_run", run_id=run_id(begun), reason="enough")
            ended = await call(client, "get_run", run_id=run_id(begun), wait_seconds=60)
        state = await served.client.result(run_id(begun))
    assert "is asked to stop" in text(stopping)
    assert ended.is_error
    assert "was stopped before it had answered" in text(ended)
    assert state.status is ExecutionStatus.STOPPED
    assert state.stop_signal is not None
    assert (state.stop_signal.source, state.stop_signal.message) == ("mcp", "enough")


async def _cancelled(client: Client, key: str) -> None:
    """Call the clerk, and cancel that once the run is at work."""
    reports = Reports()
    task = asyncio.create_task(call(client, "clerk", key, reports, message="hi"))
    await reports.until("asks the model")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _until_waiting(client: Client, run: str, reports: Reports) -> Any:  # noqa: ANN401  # JSON
    """Ask for the run until a call of it waits for a person."""
    while True:
        result = await call(client, "get_run", run_id=run, wait_seconds=1, reports=reports)
        if result.structured_content is not None and result.structured_content["waiting"]:
            return result.structured_content


async def _until_stopped(client: Holdfast, key: str) -> None:
    state = await client.result(_clerks_run(key))
    assert state.status is ExecutionStatus.STOPPED
    assert state.stop_signal is not None
    assert "its MCP client cancelled the call" in state.stop_signal.message


def _clerks_run(key: str) -> str:
    return run_request("clerk", AgentArguments(message="hi"), {KEY_META: key}).run_id
