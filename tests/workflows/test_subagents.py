"""Subagents on a real server: child workflows that end with their parent, and whose use counts as the parent's."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus

from holdfast import AgentDefinition, ExecutionBudget, ExecutionStatus
from holdfast.client import Holdfast
from holdfast.client.execution_summaries import summary
from holdfast.core.agent.definition import LLM
from holdfast.core.agent.execution_state import call_name, named_id
from holdfast.core.agent.state import AgentState
from holdfast.core.base.errors import InvalidInput, UnknownAgent
from holdfast.core.base.usage import Prices, Usage
from holdfast.core.conversation.steps import Outcome
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.testing.script import Call, Reply, Script, calls, say, turn_number
from tests.serving import Serve, Served
from tests.workflows.histories import history_of, replayed

pytestmark = pytest.mark.temporal

PRICES = Prices(input_usd=1, output_usd=2)
CLOSED_SECONDS_MAX = 30.0


def agent(name: str, *subagents: str, **rules: Any) -> AgentDefinition:  # noqa: ANN401  # fields of any type
    llm = LLM(prices=PRICES, model="scripted")
    return AgentDefinition(name=name, system_prompt=name, subagents=subagents, llm=llm, **rules)


HELPER = agent("helper")
BOSS = agent("boss", "helper")


def spawn(task: str, who: str = "helper") -> Call:
    return Call("spawn", {"agent": who, "task": task})


def by_agent(**scripts: list[Reply]) -> Script:
    """Each agent plays its own script; it is known by its prompt."""

    def turn(request: dict[str, Any]) -> Reply:
        script, number = scripts[request["messages"][0]["content"]], turn_number(request)
        return script[number] if number < len(script) else say("the script has ended")

    return turn


def child_ids(execution_id: str, step: int, calls: int) -> list[str]:
    return [named_id(execution_id, call_name(step, index)) for index in range(calls)]


async def status_of(client: Holdfast, execution_id: str) -> WorkflowExecutionStatus | None:
    return (await client.temporal.get_workflow_handle(execution_id).describe()).status


async def begun(served: Served, *tasks: str) -> None:
    """Return once the model has been asked about each of these tasks."""
    wanted = [task.encode() for task in tasks]
    await served.endpoint.until(lambda all_: all(any(each in one.raw for one in all_[1:]) for each in wanted))


@pytest.mark.slow
async def test_a_stop_of_the_parent_leaves_no_child_running(serve: Serve) -> None:
    script = by_agent(
        boss=[calls(spawn("first task"), spawn("second task"))],
        helper=[calls(Call("spawn", {"agent": "deep", "task": "third task"}))],
        deep=[say("too late", delay_seconds=600)],
    )
    middle = agent("helper", "deep")
    async with serve(script) as served:
        id_ = await served.client.start(BOSS, "do it", subagents=[middle, agent("deep")])
        await served.endpoint.until(
            lambda all_: sum(b"third task" in each.raw and b"deep" in each.raw[:200] for each in all_) >= 2
        )
        asked_at = time.monotonic()
        await served.client.stop(id_, "enough")
        state = await served.client.result(id_)
        children = child_ids(id_, 1, 2)
        grandchildren = [named_id(each, call_name(1, 0)) for each in children]
        ends = [await served.client.result(each) for each in (*children, *grandchildren)]
        assert time.monotonic() - asked_at < CLOSED_SECONDS_MAX
        for each in (id_, *children, *grandchildren):
            await replayed(served.client, each)
    assert state.status is ExecutionStatus.STOPPED
    assert [each.status for each in ends] == [ExecutionStatus.STOPPED] * 4
    assert [each.outcome for each in state.last_step_tool_executions] == [Outcome.CANCELLED] * 2


async def test_a_child_that_is_terminated_is_a_tools_error(serve: Serve) -> None:
    script = by_agent(boss=[calls(spawn("a task")), say("I did without")], helper=[say("-", delay_seconds=600)])
    async with serve(script) as served:
        id_ = await served.client.start(BOSS, "do it", subagents=[HELPER])
        await begun(served, "a task")
        (child,) = child_ids(id_, 1, 1)
        await served.client.temporal.get_workflow_handle(child).terminate("by hand")
        state = await served.client.result(id_)
        await replayed(served.client, id_)
    (execution,) = state.steps[0].tool_executions
    assert execution.error is not None
    assert execution.error.type == "SubagentFailed"
    assert "the agent 'helper' failed" in execution.error.message
    assert state.final_response == "I did without"


@pytest.mark.slow
async def test_what_a_tree_uses_is_what_its_endpoint_reported(serve: Serve) -> None:
    script = by_agent(
        boss=[calls(spawn("one"), spawn("two"), spawn("three"), usage=(1_000, 10)), say("done", usage=(2_000, 20))],
        helper=[calls(spawn("below", "deep"), usage=(300, 3)), say("found", usage=(400, 4))],
        deep=[say("deep", usage=(50, 5))],
    )
    async with serve(script) as served:
        id_ = await served.client.start(BOSS, "do it", subagents=[agent("helper", "deep"), agent("deep")])
        state = await served.client.result(id_)
        assert len(served.endpoint.requests) == 2 + 3 * 3
        assert await served.client.result(id_) == state
        await replayed(served.client, id_)
    used = Usage(input_tokens=3_000 + 3 * 750, output_tokens=30 + 3 * 12)
    assert (state.usage.input_tokens, state.usage.output_tokens) == (used.input_tokens, used.output_tokens)
    assert state.cost == pytest.approx(PRICES.cost(used))
    assert [each.usage.input_tokens for each in state.steps[0].tool_executions] == [750] * 3


@pytest.mark.slow
async def test_agents_nest_no_deeper_than_the_root_says(serve: Serve) -> None:
    ping = agent("ping", "pong", max_depth=2)
    pong = agent("pong", "ping", max_depth=10)
    script = by_agent(
        ping=[calls(spawn("go on", "pong")), say("back")], pong=[calls(spawn("go on", "ping")), say("back")]
    )
    async with serve(script) as served:
        id_ = await served.client.start(ping, "go", subagents=[ping, pong])
        state = await served.client.result(id_)
        (child,) = child_ids(id_, 1, 1)
        (grandchild,) = child_ids(child, 1, 1)
        deepest: AgentState = await served.client.result(grandchild)
    assert state.final_response == "back"
    (execution,) = deepest.steps[0].tool_executions
    assert execution.error is not None
    assert execution.error.type == "SubagentTooDeep"


@pytest.mark.slow
async def test_parallel_children_share_what_is_left(serve: Serve) -> None:
    greedy = [calls(Call("none", {}), usage=(1, 100)) for _ in range(50)]
    script = by_agent(boss=[calls(*(spawn(str(n)) for n in range(4)), usage=(100, 1)), say("done")], helper=greedy)
    async with serve(script) as served:
        id_ = await served.client.start(BOSS, "?", subagents=[HELPER], budget=ExecutionBudget(max_tokens=4_101))
        state = await served.client.result(id_)
        children = [await served.client.result(each) for each in child_ids(id_, 1, 4)]
        clamps = [each.body["max_completion_tokens"] for each in served.endpoint.requests[1:]]
    assert {child.budget.max_tokens for child in children} == {1_000}
    assert all(child.usage.total_tokens <= 1_000 + 101 for child in children)
    assert max(clamps[:4]) <= 1_000
    assert state.usage.total_tokens <= 4_101 + 4 * 101


async def test_what_cannot_be_started_is_refused_before_temporal(serve: Serve) -> None:
    async with serve([say("done")]) as served:
        with pytest.raises(UnknownAgent, match="names the subagent 'helper'"):
            await served.client.start(BOSS, "?")
        many = [agent(f"helper_{number}") for number in range(6)]
        large = [each.model_copy(update={"system_prompt": "x" * 60_000}) for each in many]
        with pytest.raises(InvalidInput, match="262,144"):
            await served.client.start(agent("boss", *(each.name for each in large)), "?", subagents=large)
        huge = HELPER.model_copy(update={"system_prompt": "x" * 70_000})
        with pytest.raises(InvalidInput, match="65,536"):
            await served.client.start(BOSS, "?", subagents=[huge])
        assert served.endpoint.requests == ()


@pytest.mark.slow
async def test_many_large_children_at_once_do_not_end_their_parent(serve: Serve) -> None:
    """One workflow task may carry 4 MB; the server terminates a run that sends more."""
    helpers = [agent(f"helper_{n}").model_copy(update={"system_prompt": "x" * 60_000}) for n in range(4)]
    boss = agent("boss", *(each.name for each in helpers))

    def turn(request: dict[str, Any]) -> Reply:
        if request["messages"][0]["content"] != "boss":
            return say("found")
        return calls(*(spawn(str(n), "helper_0") for n in range(24))) if turn_number(request) == 0 else say("done")

    async with serve(turn) as served:
        id_ = await served.client.start(boss, "?", subagents=helpers)
        state = await served.client.result(id_)
        await replayed(served.client, id_)
    assert state.final_response == "done"
    assert [each.result for each in state.steps[0].tool_executions] == ["found"] * 24


async def test_a_task_of_odd_characters_starts_a_child(serve: Serve) -> None:
    task = "\U0001f469‍\U0001f52c" * 400 + "\0\n\u202e"
    script = by_agent(boss=[calls(spawn(task)), say("done")], helper=[say("found")])
    async with serve(script) as served, asyncio.timeout(90):
        id_ = await served.client.start(BOSS, task, subagents=[HELPER])
        state = await served.client.result(id_)
        events = (await history_of(served.client, child_ids(id_, 1, 1)[0])).events
    assert events
    assert state.steps[0].tool_executions[0].result == "found"


async def test_a_subagents_run_is_listed_by_its_name(serve: Serve) -> None:
    script = by_agent(boss=[calls(spawn("look")), say("done")], helper=[say("found")])
    async with serve(script) as served:
        execution_id = await served.client.start(BOSS, "go", subagents=[HELPER])
        await served.client.result(execution_id)
        (child,) = child_ids(execution_id, 1, 1)
        described = await served.client.temporal.get_workflow_handle(child).describe()
        told = summary(described)
    assert (told.agent, told.status, told.steps) == ("helper", "completed", 1)


async def test_a_terminated_subagent_counts_as_all_that_it_was_allowed(serve: Serve) -> None:
    script = by_agent(boss=[calls(spawn("first task")), say("never said")], helper=[say("too late", delay_seconds=600)])
    async with serve(script) as served:
        id_ = await served.client.start(BOSS, "do it", subagents=[HELPER], budget=ExecutionBudget(max_tokens=5_000))
        await begun(served, "first task")
        (child,) = child_ids(id_, 1, 1)
        await served.client.temporal.get_workflow_handle(child).terminate("by hand")
        state = await served.client.result(id_)
        await replayed(served.client, id_)
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.TOKEN_LIMIT)
    assert state.usage.total_tokens == 5_000
    (told,) = state.steps[0].tool_executions
    assert told.error is not None
    assert "counts as all" in told.error.message
