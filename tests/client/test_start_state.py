"""Runs that begin with a state: an agent that goes on, or an execution taken up, as the in-process driver does it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace as with_settings
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from holdfast.client import Holdfast, Settings
from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import LLM, AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.bounds import PAYLOAD_BYTES_MAX
from holdfast.core.base.errors import ExecutionExists, InvalidInput
from holdfast.core.base.frozen import replace
from holdfast.core.conversation.messages import Message
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.tools.tools import tool
from holdfast.core.wire.carry_over import SealedHistory
from holdfast.core.wire.records import ExecutionRecord
from holdfast.local.driver import LocalDriver
from holdfast.storage.data_converter import records_of
from holdfast.storage.keys import create_key_file
from holdfast.testing.comparison import differences
from holdfast.testing.script import Reply, call, say
from holdfast.testing.scripted_model import ScriptedModel
from tests.serving import Serve, served

pytestmark = pytest.mark.temporal

SEVERAL = 12
LONG_TEXT = "long " * 5_000


def clerk(**changes: object) -> AgentDefinition:
    """The agent of these tests."""
    return AgentDefinition.model_validate({"name": "clerk", "system_prompt": "Be brief.", "tools": ["add"], **changes})


@pytest.fixture
def sums() -> list[int]:
    """What `add` has been asked, in order."""
    return []


@pytest.fixture
def offer(sums: list[int]) -> Toolset:
    """A tool that can be seen at work."""

    @tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        sums.append(a)
        return a + b

    return Toolset(tools=(add,))


def local(offer: Toolset, script: Sequence[Reply]) -> LocalDriver:
    """A driver of the same agent in this process."""
    return LocalDriver(clerk(), model=ScriptedModel(script), tools=list(offer.tools))


async def first_step(driver: LocalDriver) -> AgentState:
    """Return the state after the first step of a run that nobody goes on with."""
    async with aclosing(driver.iterate("How much?")) as states:
        return await anext(states)


async def record_of(client: Holdfast, state: AgentState) -> ExecutionRecord:
    """Return what is kept of the state's execution."""
    return await records_of(client.temporal.data_converter).by_id(state.running.execution_id)


FIRST = call("add", a=1, b=2)
SCRIPT = (FIRST, call("add", a=3, b=4), say("3 and 7"))


async def test_an_execution_that_was_under_way_in_process_ends_on_temporal_as_it_would_have_there(
    serve: Serve, offer: Toolset, sums: list[int]
) -> None:
    left = await first_step(local(offer, [FIRST]))
    locally = await local(offer, SCRIPT).execute(AgentState.from_dict(left.to_dict()))
    sums.clear()
    async with serve(SCRIPT, offer=offer) as at_work:
        state = await at_work.client.run(clerk(), state=AgentState.from_dict(left.to_dict()))
        told = at_work.endpoint.requests[0].body["messages"]
    assert state.execution_id == left.running.execution_id
    assert state.state.agent_id == left.agent_id
    assert [each.step.number for each in state.state.running.step_executions] == [1, 2, 3]
    assert sums == [3], "what had ended is done again"
    assert [each["role"] for each in told] == ["system", "user", "assistant", "tool"]
    assert differences(state.state, locally) == []


async def test_a_call_that_was_under_way_is_made_again(serve: Serve) -> None:
    begun, going_on = threading.Event(), threading.Event()

    @tool(attempts_max=1)
    def add(a: int, b: int) -> int:
        """Add, when somebody lets it."""
        begun.set()
        going_on.wait(60)
        return a + b

    async with serve([FIRST, say("3")], offer=Toolset(tools=(add,))) as at_work:
        one = await at_work.client.start(clerk(), "How much?")
        assert await asyncio.to_thread(begun.wait, 60)
        seen = await at_work.client.state(one)
        assert [each.call.name for each in seen.running.open_calls] == ["add"]
        with pytest.raises(ExecutionExists, match=f"{one} already exists; follow it"):
            await at_work.client.start(clerk(), state=seen)
        going_on.set()
        elsewhere = replace(seen, execution=replace(seen.running, execution_id=str(uuid4())))
        state = await at_work.client.run(clerk(), state=elsewhere)
        assert state.output == "3"
        assert [len(each.step.tool_executions) for each in state.state.running.step_executions] == [1, 0]


async def test_an_agent_goes_on_with_its_conversation_in_another_execution(serve: Serve, offer: Toolset) -> None:
    first = await local(offer, [FIRST, say("3")]).execute("How much?")
    assert first.status is ExecutionStatus.COMPLETED
    async with serve([say("as I said, 3")], offer=offer) as at_work:
        state = await at_work.client.run(clerk(), "Sure?", state=first)
        told = at_work.endpoint.requests[0].body["messages"]
        record = await record_of(at_work.client, state.state)
    assert state.execution_id != first.running.execution_id
    assert (state.state.agent_id, state.state.execution_count) == (first.agent_id, 2)
    assert [each["role"] for each in told] == ["system", "user", "assistant", "user"], "earlier calls are not retold"
    assert record.task == "Sure?"
    model, ids = ScriptedModel([say("as I said, 3")]), iter([state.execution_id])
    driver = LocalDriver(clerk(), model=model, tools=list(offer.tools), new_id=ids.__next__)
    locally = await driver.execute("Sure?", state=first)
    assert differences(state.state, locally) == []


async def test_what_a_state_says_of_itself_counts_before_the_definition(serve: Serve) -> None:
    given = (
        AgentState.empty()
        .with_system_prompt("Be long.")
        .with_llm(LLM(model="chosen", temperature=0.5))
        .with_metadata(order=17)
        .with_user_message("Go.")
    )
    async with serve([say("gone")]) as at_work:
        state = await at_work.client.run(clerk(tools=[]), state=given)
        asked = at_work.endpoint.requests[0].body
        record = await record_of(at_work.client, state.state)
    assert asked["messages"] == [{"role": "system", "content": "Be long."}, {"role": "user", "content": "Go."}]
    assert (asked["model"], asked["temperature"]) == ("chosen", 0.5)
    assert dict(state.state.metadata) == {"agent": "clerk", "order": 17}
    assert record.task == "Go."
    model, ids = ScriptedModel([say("gone")]), iter([state.state.agent_id, state.execution_id])
    locally = await LocalDriver(clerk(tools=[]), model=model, new_id=ids.__next__).execute(given)
    assert differences(state.state, locally) == []


@pytest.mark.parametrize("encrypted", [False, True], ids=["open", "encrypted"])
async def test_a_long_conversation_goes_on_through_many_runs(
    settings: Settings, tmp_path: Path, offer: Toolset, *, encrypted: bool
) -> None:
    create_key_file(tmp_path / "keys", "first")
    chosen = with_settings(settings, continue_events=1, encryption_key_file=tmp_path / "keys" if encrypted else None)
    said = [Message(role="user", content=f"{number} {LONG_TEXT}") for number in range(SEVERAL)]
    given = AgentState.empty().with_messages(*said)
    assert SealedHistory().carried(given).segments, "this state is too small to need a segment"
    async with served(chosen, tmp_path / "ledger", SCRIPT, offer) as at_work:
        state = await at_work.client.run(clerk(), "How much?", state=given)
        told = at_work.endpoint.requests[-1].body["messages"]
        record = await record_of(at_work.client, state.state)
    assert [each.text for each in state.messages[:SEVERAL]] == [each.text for each in said]
    assert [each["role"] for each in told] == ["system", *["user"] * (SEVERAL + 1), *["assistant", "tool"] * 2]
    assert record.task == "How much?"


async def test_the_time_an_execution_has_had_elsewhere_counts(serve: Serve, offer: Toolset) -> None:
    definition, an_hour_ago = clerk(budget={"max_seconds": 600}), datetime.now(UTC) - timedelta(hours=1)
    model = ScriptedModel([FIRST])
    left = await first_step(LocalDriver(definition, model=model, tools=list(offer.tools), clock=lambda: an_hour_ago))
    async with serve(SCRIPT, offer=offer) as at_work:
        state = await at_work.client.run(clerk(), state=left)
        assert not at_work.endpoint.requests
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.TIME_LIMIT)


# --- what cannot be asked of a state


async def test_what_cannot_be_asked_of_a_state_is_refused_before_anything_starts(
    settings: Settings, offer: Toolset
) -> None:
    client = await Holdfast.connect(settings)
    left = await first_step(local(offer, [FIRST]))
    ended = await local(offer, [say("3")]).execute("How much?")
    other = str(uuid4())
    with pytest.raises(InvalidInput, match=f"keeps its id; leave out the id {other}"):
        await client.start(clerk(), state=left, execution_id=other)
    with pytest.raises(InvalidInput, match="keeps its budget; leave out the limits"):
        await client.start(clerk(), state=left, budget=ExecutionBudget(max_steps=1))
    for silent in (ended, AgentState.empty()):
        with pytest.raises(InvalidInput, match="give a question"):
            await client.start(clerk(), state=silent)
    with pytest.raises(InvalidInput, match="the question is empty"):
        await client.start(clerk(), state=ended, question="  ")
    with pytest.raises(InvalidInput, match="the question is empty"):
        await client.start(clerk())
    noted = ended.with_metadata(notes="x" * PAYLOAD_BYTES_MAX)
    with pytest.raises(InvalidInput, match=r"state and definition take .* bytes as JSON"):
        await client.start(clerk(), "On.", state=noted)
