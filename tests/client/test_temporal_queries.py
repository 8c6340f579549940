"""What Temporal's own command prints of our queries: JSON that a person reads, never base64."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast import AgentDefinition, tool
from holdfast.client import Settings
from holdfast.connection.temporal_client import converter_of
from holdfast.core.agent.toolset import Toolset
from holdfast.core.wire import contracts
from holdfast.core.wire.session_contracts import RECEIPT_QUERY, SESSION_QUERY
from holdfast.core.wire.workflow_ids import session_workflow_id
from holdfast.server.codec_server import Access, CodecServer
from holdfast.storage.keys import create_key_file
from holdfast.testing.script import call, say
from tests.serving import Serve, served

pytestmark = pytest.mark.temporal

TOKEN = "a-token-of-the-tests"  # noqa: S105  # of nothing real
AGENT = AgentDefinition(name="reader", tools=("read",))
LINES = "a line\n" * 5_000
"""Long enough to be kept in a sealed part."""

SCRIPT = [call("read"), say("done")]


@tool
def read() -> str:
    """Read."""
    return LINES


async def queried(address: str, workflow_id: str, name: str, request: object = None, *options: str) -> dict[str, Any]:
    """Return what `temporal workflow query` prints of one answer; anything but plain JSON fails the test."""
    program = str(Path(sys.executable).with_name("temporal"))
    wanted = ("--workflow-id", workflow_id, "--name", name, *options)
    given = () if request is None else ("--input", json.dumps(request))
    process = await asyncio.create_subprocess_exec(
        *(program, "workflow", "query", "--address", address, "--output", "json", *wanted, *given),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    printed, problem = await process.communicate()
    assert process.returncode == 0, problem.decode()
    told: dict[str, list[dict[str, Any]]] = json.loads(printed)
    [answer] = told["queryResult"]
    assert not isinstance(answer, str), f"{name} is base64: {answer}"
    assert answer.keys() != {"metadata", "data"}, f"{name} is a payload: {answer}"
    return answer


@pytest.mark.slow
async def test_every_query_of_a_run_is_readable_page_by_page(serve: Serve, temporal_address: str) -> None:
    async with serve(SCRIPT, [read]) as stage:
        execution_id = await stage.client.start(AGENT, "read it")
        await stage.client.result(execution_id)

        async def asked(name: str, request: object = None) -> dict[str, Any]:
            return await queried(temporal_address, execution_id, name, request)

        page = await asked(contracts.STATE_QUERY)
        assert page["head"]["execution"]["status"] == "completed"
        assert [each["content"] for each in page["messages"]] == ["read it", "", LINES, "done"]
        following = await asked(contracts.STATE_QUERY, {"messages_from": 3, "steps_from": 1})
        assert ([each["content"] for each in following["messages"]], len(following["steps"])) == (["done"], 1)
        events = await asked(contracts.EVENTS_QUERY, {"start": 1})
        assert (events["start"], len(events["events"])) == (1, events["total"] - 1)
        assert (await asked(contracts.DEBUG_QUERY))["status"] == "completed"
        assert "remaining" in await asked(contracts.BUDGET_QUERY)
        told = await asked(contracts.TRANSCRIPT_QUERY, {"start": 0, "stop": 1})
        assert [each["content"] for each in told["messages"]] == ["read it"]
        assert await asked(contracts.BUFFER_QUERY) is not None
        [part, *_] = (await asked(contracts.SNAPSHOT_QUERY))["parts"]
        assert "data" in await asked(contracts.PART_QUERY, {"digest": part["digest"]})


async def test_every_query_of_a_session_is_readable(serve: Serve, temporal_address: str) -> None:
    async with serve([say("yes")]) as stage:
        agent = stage.client.agent(definition=AgentDefinition(name="friend", tools=()))
        receipt = await agent.send("are you there?")
        await agent.answer(receipt)
        view = await queried(temporal_address, session_workflow_id(agent.agent_id), SESSION_QUERY)
        assert (view["agent_id"], view["executions"]) == (agent.agent_id, 1)
        answered = await queried(
            temporal_address, session_workflow_id(agent.agent_id), RECEIPT_QUERY, receipt.message_id
        )
        assert answered["state"] == "answered"
        page = await queried(temporal_address, session_workflow_id(agent.agent_id), contracts.EVENTS_QUERY)
        assert [each["kind"] for each in page["events"]] == ["SessionCreated", "MessageAccepted"]


async def test_encrypted_answers_are_readable_through_the_codec_server(
    settings: Settings, tmp_path: Path, temporal_address: str
) -> None:
    create_key_file(tmp_path / "keys", "first")
    sealed = replace(settings, encryption_key_file=tmp_path / "keys")
    async with (
        served(sealed, tmp_path / "ledger.jsonl", SCRIPT, Toolset(tools=(read,))) as stage,
        CodecServer(converter_of(sealed), Access.checked(TOKEN, ())).serving("127.0.0.1", 0) as port,
    ):
        execution_id = await stage.client.start(AGENT, "read it")
        await stage.client.result(execution_id)
        codec = ("--codec-endpoint", f"http://127.0.0.1:{port}/{TOKEN}")
        page = await queried(temporal_address, execution_id, contracts.STATE_QUERY, None, *codec)
        assert page["messages"][-1]["content"] == "done"
