"""Scripted tools: called by hand, by the in-process driver, from a worker's loop, and by a real worker."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.execution_state import call_name, named_id
from holdfast.core.agent.state import AgentState
from holdfast.core.base.errors import InvalidArguments, InvalidInput
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.tools.tool_context import ToolContext
from holdfast.core.tools.tools import tool
from holdfast.local import LocalDriver
from holdfast.runtime.tool_runner import run_tool
from holdfast.testing import scripted_tools
from holdfast.testing.assertions import assert_stopped
from holdfast.testing.holds import Hold
from holdfast.testing.ledger import Ledger
from holdfast.testing.script import Call, call, calls, say
from holdfast.testing.scripted_model import ScriptedModel
from holdfast.testing.scripted_tools import ResultsExhausted, scripted_tool
from tests.serving import Serve

CONTEXT = ToolContext(execution_id="run", idempotency_key="key", attempt=1)
AGENT = AgentDefinition(name="tester", tools="all")
PROMPTLY_SECONDS = 60.0


@tool
def add(a: int, b: int = 2, *, context: ToolContext) -> int:
    """Add two numbers.

    Args:
        a: the first one.
    """
    return a + b + context.attempt


async def test_each_call_takes_the_next_result_and_the_last_one_repeats() -> None:
    played = scripted_tool("look", "first", {"n": 2})
    assert [(await run_tool(played, {}, CONTEXT)).text for _ in range(3)] == ["first", '{"n":2}', '{"n":2}']
    assert [each.outcome for each in played.calls] == ["finished"] * 3


async def test_results_that_must_not_repeat_end_with_an_error_that_counts() -> None:
    played = scripted_tool("look", "first", exhausted="error")
    await run_tool(played, {}, CONTEXT)
    with pytest.raises(ResultsExhausted, match=r"'look' has 1 results and was called 2 times; give it more"):
        await run_tool(played, {}, CONTEXT)


async def test_a_tool_that_must_not_be_called_needs_no_result() -> None:
    with pytest.raises(ResultsExhausted):
        await run_tool(scripted_tool("never", exhausted="error"), {}, CONTEXT)


async def test_an_exception_is_raised_and_recorded() -> None:
    played = scripted_tool("look", LookupError("gone"))
    for _ in range(2):
        with pytest.raises(LookupError, match="gone"):
            await run_tool(played, {}, CONTEXT)
    assert [(each.outcome, each.error) for each in played.calls] == [("failed", "LookupError: gone")] * 2


async def test_calls_are_recorded_with_arguments_context_and_times() -> None:
    played = scripted_tool("look", "x")
    await run_tool(played, {"a": [1, {"b": None}], "self": "me"}, CONTEXT)
    await played(by="hand")
    first, second = played.calls
    assert (first.number, first.arguments, first.context) == (0, {"a": [1, {"b": None}], "self": "me"}, CONTEXT)
    assert (second.number, second.arguments, second.context) == (1, {"by": "hand"}, None)
    assert first.started_at <= (first.ended_at or 0) <= second.started_at


async def test_only_the_latest_calls_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripted_tools, "CALLS_RECORDED_MAX", 2)
    played = scripted_tool("look", "x")
    for number in range(4):
        await played(n=number)
    assert [each.arguments for each in played.calls] == [{"n": 2}, {"n": 3}]


async def test_it_borrows_the_parameters_of_another_tool() -> None:
    played = scripted_tool("plus", 7, like=add, attempts_max=2)
    assert played.schema == add.schema.model_copy(update={"name": "plus"})
    assert (played.traits.attempts_max, played.traits.name) == (2, "plus")
    assert (await run_tool(played, {"a": 1}, CONTEXT)).text == "7"
    with pytest.raises(InvalidArguments, match="b: Input should be a valid integer"):
        await run_tool(played, {"a": 1, "b": "much"}, CONTEXT)
    assert [each.arguments for each in played.calls] == [{"a": 1}]


def test_it_shows_a_schema_of_its_own_or_any_object() -> None:
    shown: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}
    assert scripted_tool("look", 1, schema=shown).schema.parameters == shown
    assert scripted_tool("look", 1).schema.parameters["additionalProperties"] is True


def test_it_borrows_from_a_plain_function() -> None:
    def find(name: str) -> str:
        """Find it."""
        return name

    assert scripted_tool("find", 1, like=find).schema == tool(find).schema


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"like": add, "schema": {"type": "object"}}, "give one of them"),
        ({"timeout_seconds": -1}, "timeout_seconds"),
    ],
)
def test_what_cannot_be_a_tool_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        scripted_tool("look", 1, **options)


def test_a_tool_without_results_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no result"):
        scripted_tool("look")


async def test_a_ledger_has_each_start_and_end_under_the_calls_key(tmp_path: Path) -> None:
    path, gate = tmp_path / "ledger.jsonl", Hold()
    played = scripted_tool("look", "x", ValueError("no"), gate, ledger=path)
    await run_tool(played, {"a": 1}, CONTEXT)
    with pytest.raises(ValueError, match="no"):
        await run_tool(played, {}, CONTEXT)
    held = asyncio.ensure_future(run_tool(played, {}, CONTEXT))
    await gate.until_held()
    held.cancel()
    await asyncio.wait([held])
    entries = Ledger(path).entries(kind="tool", name="look", key="key")
    assert [entry.phase for entry in entries] == ["started", "finished", "started", "failed", "started", "cancelled"]
    assert entries[0].detail == {"number": 0, "attempt": 1, "arguments": {"a": 1}}
    assert entries[3].detail["error"] == "ValueError: no"


@pytest.mark.parametrize("apart", [False, True], ids=["here", "on the tools' loop"])
async def test_a_held_call_goes_on_when_it_is_let_go(*, apart: bool) -> None:
    gate = Hold()
    played = scripted_tool("look", gate)
    running = [asyncio.ensure_future(run_tool(played, {}, CONTEXT, apart=apart)) for _ in range(2)]
    await gate.until_held(2)
    assert [each.outcome for each in played.calls] == ["pending"] * 2
    gate.release("went on")
    assert [reply.text for reply in await asyncio.gather(*running)] == ["went on"] * 2
    assert (await run_tool(played, {}, CONTEXT, apart=apart)).text == "went on"
    assert (gate.held, gate.cancelled) == (3, 0)


@pytest.mark.parametrize("apart", [False, True], ids=["here", "on the tools' loop"])
async def test_a_held_call_can_fail_or_be_cancelled(*, apart: bool) -> None:
    failing, never = Hold(), Hold()
    failing.fail(LookupError("gone"))
    played = scripted_tool("look", failing, never)
    with pytest.raises(LookupError, match="gone"):
        await run_tool(played, {}, CONTEXT, apart=apart)
    held = asyncio.ensure_future(run_tool(played, {}, CONTEXT, apart=apart))
    await never.until_held()
    held.cancel()
    await never.until_cancelled()
    with pytest.raises(asyncio.CancelledError):
        await held
    never.release("too late")
    assert never.cancelled == 1


def test_a_hold_is_let_go_by_another_thread_than_the_calls() -> None:
    gate = Hold()
    played = scripted_tool("look", gate)
    results: list[str] = []
    running = threading.Thread(target=lambda: results.append(asyncio.run(run_tool(played, {}, CONTEXT)).text))
    running.start()
    gate.wait_until_held()
    gate.release("went on")
    running.join(PROMPTLY_SECONDS)
    assert results == ["went on"]


def test_waiting_for_a_call_that_does_not_come_says_what_came() -> None:
    with pytest.raises(TimeoutError, match=r"waited 0\.01 s for 1 calls to come; 0 have come, 0 were cancelled"):
        Hold().wait_until_held(seconds_max=0.01)
    with pytest.raises(TimeoutError, match="to be cancelled"):
        Hold().wait_until_cancelled(seconds_max=0.01)


async def test_the_driver_runs_it_with_the_calls_own_key() -> None:
    played = scripted_tool("look", "here", LookupError("gone"), like=add)
    model = ScriptedModel(
        [calls(Call("look", {"a": 1}), Call("look", {"a": "x"}), Call("look", {"a": 2})), say("done")]
    )
    state = await LocalDriver(AGENT, model=model, tools=[played]).execute("?")
    answers = [message.text for message in state.messages if message.role == "tool"]
    assert answers[0] == "here"
    assert answers[1].startswith("Error (InvalidArguments)")
    assert answers[2] == "Error (LookupError): gone"
    execution_id = state.running.execution_id
    keys = [each.context.idempotency_key for each in played.calls if each.context]
    assert keys == [named_id(execution_id, call_name(1, index)) for index in (0, 2)]


async def test_a_call_that_takes_too_long_is_begun_again_and_takes_the_next_result() -> None:
    gate = Hold()
    played = scripted_tool("look", gate, "the second time", timeout_seconds=0.05)
    model = ScriptedModel([call("look"), say("done")])
    state = await LocalDriver(AGENT, model=model, tools=[played]).execute("?")
    assert [message.text for message in state.messages if message.role == "tool"] == ["the second time"]
    assert [each.outcome for each in played.calls] == ["cancelled", "finished"]
    assert len({each.context.idempotency_key for each in played.calls if each.context}) == 1


async def test_stopping_a_run_cancels_its_held_call() -> None:
    gate = Hold()
    driver = LocalDriver(AGENT, model=ScriptedModel([call("look")]), tools=[scripted_tool("look", gate)])
    running = asyncio.ensure_future(driver.execute("?"))
    await gate.until_held()
    driver.stop("enough")
    assert_stopped(await asyncio.wait_for(running, PROMPTLY_SECONDS), StopReason.USER_REQUESTED)
    assert gate.cancelled == 1


@pytest.mark.temporal
async def test_a_worker_runs_it_holds_it_and_cancels_it(serve: Serve, tmp_path: Path) -> None:
    passing, stopping = Hold(), Hold()
    played = scripted_tool("look", passing, stopping, ledger=tmp_path / "tools.jsonl")
    async with serve([call("look", n=1), call("look", n=2), say("never")], [played]) as served:
        execution_id = await served.client.start(AGENT, "?")
        await passing.until_held()
        passing.release("went on")
        await stopping.until_held()
        assert await served.client.stop(execution_id, "enough")
        state: AgentState = await served.client.result(execution_id)
        await stopping.until_cancelled()
    assert_stopped(state, StopReason.USER_REQUESTED)
    assert [each.arguments for each in played.calls] == [{"n": 1}, {"n": 2}]
    keys = [json.dumps([entry.phase, entry.key]) for entry in Ledger(tmp_path / "tools.jsonl").entries()]
    first, second = (named_id(execution_id, call_name(number, 0)) for number in (1, 2))
    ended = [["started", first], ["finished", first], ["started", second], ["cancelled", second]]
    assert keys == [json.dumps(each) for each in ended]


async def test_one_can_stand_for_a_tool_with_a_json_schema() -> None:
    real = tool(name="look", description="Look.", schema={"type": "object", "required": ["n"]})(_any)
    played = scripted_tool("look", "here", like=real)
    assert played.schema == real.schema
    assert (await run_tool(played, {"n": 1}, CONTEXT)).text == "here"
    with pytest.raises(InvalidArguments, match="'n' is a required property"):
        await run_tool(played, {}, CONTEXT)
    assert [each.arguments for each in played.calls] == [{"n": 1}]


def _any(**arguments: int) -> int:
    return sum(arguments.values())
