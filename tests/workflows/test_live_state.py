"""What a run on a real server says of itself while it runs: of the step under way, its answer, its time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast import AgentDefinition, ExecutionBudget, ExecutionStatus, StopReason, tool
from holdfast.client import Holdfast
from holdfast.client.progress_query import head
from holdfast.core.agent.state import AgentState
from holdfast.core.conversation.steps import AgentStepType
from holdfast.core.wire.contracts import BUDGET_QUERY
from holdfast.core.wire.paging import moved_on
from holdfast.core.wire.result_contracts import ExecutionResult
from holdfast.testing import Hold
from holdfast.testing.script import call, say
from holdfast.view.report import read_report
from tests.serving import Serve
from tests.workflows.waiting import waiting_calls

pytestmark = pytest.mark.temporal

AGENT = AgentDefinition(name="local", tools=("look",))


@tool
def look() -> str:
    """Look."""
    return "seen"


async def result_of(client: Holdfast, state: AgentState) -> ExecutionResult:
    """Return what Temporal itself has as the result of the run."""
    handle = client.temporal.get_workflow_handle(state.running.execution_id, result_type=ExecutionResult)
    result: ExecutionResult = await handle.result()
    return result


async def test_a_step_under_way_has_no_type_and_the_loop_is_not_to_stop_during_a_model_call(serve: Serve) -> None:
    hold = Hold()
    async with serve([call("look"), say("done", hold=hold)], [look]) as served:
        execution_id = await served.client.start(AGENT, "Look.")
        await hold.until_held()
        state = await served.client.state(execution_id)
        hold.release()
        end = await served.client.result(execution_id)
    asking = state.current_step_or_last
    assert asking is not None
    assert (asking.number, asking.step_type, state.should_stop) == (2, None, False)
    assert (state.status, state.last_step_type) == (ExecutionStatus.IN_PROGRESS, AgentStepType.TOOL_EXECUTION)
    assert (end.last_step_type, end.should_stop) == (AgentStepType.FINAL_RESPONSE, True)


@pytest.mark.slow
async def test_an_execution_that_ended_before_it_spoke_has_no_answer_of_another(serve: Serve) -> None:
    hold = Hold()
    async with serve([say("the first answer"), say("The second, as far", pieces_max=0, hold=hold)]) as served:
        agent = served.client.agent(definition=AgentDefinition(name="friend"))
        first = await agent.ask("one")
        receipt = await agent.send("two")
        await hold.until_held()
        await agent.stop()
        second = await agent.answer(receipt)
        results = [await result_of(served.client, state) for state in (first.state, second)]
    assert (second.stop_reason, second.current_response, second.final_response) == (StopReason.USER_REQUESTED, "", "")
    assert [(each.final_response, each.partial_response) for each in results] == [("the first answer", ""), ("", "")]


async def left_now(state: AgentState, ask: Callable[[], Awaitable[float]], *, seconds_max: float) -> None:
    """Ask how many seconds are left; between the moment before and the one after, the truth must lie."""
    started_at, before = state.running.started_at, datetime.now(UTC)
    left = seconds_max - await ask()
    assert (before - started_at).total_seconds() <= left <= (datetime.now(UTC) - started_at).total_seconds()


@pytest.mark.slow
@pytest.mark.parametrize("pauses", [False, True])
async def test_the_time_that_is_left_is_that_of_now_while_a_person_is_waited_for(serve: Serve, *, pauses: bool) -> None:
    rules: dict[str, Any] = {"name": "careful", "tools": ["look"], "approvals": [{"tools": ["look"]}]}
    agent = AgentDefinition.model_validate({**rules, "pause_while_waiting": pauses})
    async with serve([call("look"), say("done")], [look]) as served:
        client = served.client
        execution_id = await client.start(agent, "Look.", budget=ExecutionBudget(max_seconds=600))
        await waiting_calls(client, execution_id)
        state = await client.state(execution_id)
        handle: Any = client.temporal.get_workflow_handle(execution_id)

        async def by_query() -> float:
            return float((await handle.query(BUDGET_QUERY))["remaining"]["max_seconds"])

        async def by_state() -> float:
            return (await client.state(execution_id)).budget_remaining.max_seconds or 0.0

        async def by_head() -> float:
            return (await head(client, execution_id)).head.budget_remaining.max_seconds or 0.0

        async def by_report() -> float:
            report = await read_report(client, execution_id)
            return 600 - report.run.seconds_used(report.state.updated_at)

        for ask in (by_query, by_state, by_head, by_report):
            if pauses:
                assert await ask() == state.budget_remaining.max_seconds, "what a person takes is not counted"
            else:
                await left_now(state, ask, seconds_max=600)
        duration, before = (await client.state(execution_id)).execution_duration, datetime.now(UTC)
        assert duration is not None
        assert state.execution_duration is not None
        assert state.execution_duration < duration <= before - state.running.started_at
        await client.stop(execution_id)


async def test_a_state_in_which_nothing_but_the_time_goes_on_is_not_followed_as_changed(serve: Serve) -> None:
    hold = Hold()
    async with serve([say("done", hold=hold)]) as served:
        execution_id = await served.client.start(AgentDefinition(name="waiter"), "Wait.")
        await hold.until_held()
        first, second = [await served.client.state(execution_id) for _ in range(2)]
        hold.release()
        end = await served.client.result(execution_id)
    assert first.updated_at < second.updated_at
    assert [moved_on(None, first), moved_on(first, second), moved_on(second, end)] == [True, False, True]
