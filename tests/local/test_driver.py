"""`LocalDriver`: the loop in this process, with a scripted model and real tools."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from uuid import UUID

import pytest

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import LLM, AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.hooks import HookContext, Trigger, hook
from holdfast.core.agent.model import ModelRequest
from holdfast.core.agent.state import AgentState
from holdfast.core.base.errors import UnknownTool
from holdfast.core.base.frozen import replace
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.tools.tool_context import ToolContext
from holdfast.core.tools.tools import tool
from holdfast.core.wire.execution_events import AgentStepStarted
from holdfast.local import LocalDriver
from holdfast.models.function_model import FunctionModel
from holdfast.testing.script import Call, Reply, call, calls, say
from holdfast.testing.scripted_model import ScriptedModel

AGENT = AgentDefinition(name="local", tools="all", system_prompt="Be brief.")
PROMPTLY_SECONDS = 60.0
"""How long anything here may take at the most; what is waited for would never come by itself."""


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@hook("before_tool")
def allow(context: HookContext) -> None:
    """Let every call run."""


@tool
async def echo(text: str) -> str:
    """Return the text."""
    return text


def ids() -> Iterator[str]:
    return (str(UUID(int=number)) for number in count(1))


class Meeting:
    """A tool call that has begun and waits; it notes whether its cancellation reached it."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.released = asyncio.Event()
        self.cancelled = False

    async def wait(self) -> str:
        """Wait."""
        self.begun.set()
        try:
            await self.released.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return "released"


async def everything_else_ran() -> None:
    """Return once every task of this event loop has had many turns."""
    for _ in range(100):
        await asyncio.sleep(0)


async def finished(driver: LocalDriver, budget: ExecutionBudget | None = None) -> AgentState:
    return await asyncio.wait_for(driver.execute("Do it.", budget=budget), PROMPTLY_SECONDS)


async def test_a_run_calls_sync_and_async_tools_and_answers() -> None:
    model = ScriptedModel([calls(Call("add", {"a": 1, "b": 2}), Call("echo", {"text": "hi"})), say("3 and hi")])
    state = await LocalDriver(AGENT, model=model, tools=[add, echo]).execute("What?")
    assert state.status is ExecutionStatus.COMPLETED
    assert state.final_response == "3 and hi"
    assert [m.content for m in state.messages] == ["What?", "", "3", "hi", "3 and hi"]


async def test_the_model_is_asked_with_prompt_conversation_tools_and_settings() -> None:
    model = ScriptedModel([call("add", a=1, b=2), say("3")])
    agent = AGENT.model_copy(update={"llm": LLM(model="m", max_output_tokens=50), "tools": ("add",)})
    await LocalDriver(agent, model=model, tools=[add, echo]).execute("What?")
    first, second = model.requests
    assert (first.system_prompt, first.llm.model, first.max_output_tokens) == ("Be brief.", "m", 50)
    assert [schema.name for schema in first.tools] == ["add"]
    assert [m.role for m in first.messages] == ["user"]
    assert [m.role for m in second.messages] == ["user", "assistant", "tool"]
    assert all(m.metadata == {} for m in second.messages), "our notes never reach the model"


async def test_iterate_yields_the_state_after_every_step_and_the_finished_one_last() -> None:
    model = ScriptedModel([call("add", a=1, b=2), call("add", a=3, b=4), say("done")])
    seen = [
        (state.step_count, state.status.value)
        async for state in LocalDriver(AGENT, model=model, tools=[add]).iterate("What?")
    ]
    assert seen == [(1, "in_progress"), (2, "in_progress"), (3, "completed")]


@pytest.mark.parametrize("outside", ["nobody", "a stop", "a message", "a change"])
async def test_the_next_step_begins_only_when_it_is_asked_for(outside: str) -> None:
    model = ScriptedModel([call("add", a=1, b=2), call("add", a=3, b=4), say("done")])
    driver, begun = LocalDriver(AGENT, model=model, tools=[add]), list[int]()
    driver.on(AgentStepStarted, lambda event: begun.append(event.step_number))
    states = driver.iterate("What?")
    first = await anext(states)
    await everything_else_ran()
    assert (first.step_count, first.running.current_step, first.should_stop) == (1, None, False)
    assert (len(model.requests), begun) == (1, [1]), "nothing is asked while somebody looks at the first step"
    if outside == "a stop":
        driver.stop("enough")
    elif outside == "a message":
        driver.say("by the way")
    elif outside == "a change":
        driver.change(replace(AGENT, system_prompt="Be long."))
    second = await anext(states)
    await everything_else_ran()
    if outside == "a stop":
        assert (second.status, second.stop_reason, second.step_count) == (
            ExecutionStatus.STOPPED,
            StopReason.USER_REQUESTED,
            1,
        )
        assert (len(model.requests), begun) == (1, [1])
        return
    assert (second.step_count, len(model.requests), begun) == (2, 2, [1, 2])
    asked = model.requests[1]
    assert asked.system_prompt == ("Be long." if outside == "a change" else "Be brief.")
    assert (asked.messages[-1].text == "by the way") == (outside == "a message")
    await states.aclose()
    await everything_else_ran()
    assert (len(model.requests), begun) == (2, [1, 2]), "whoever leaves pays for no more"


async def test_time_that_passes_between_two_steps_counts() -> None:
    seconds, start = 0, datetime(2025, 1, 1, tzinfo=UTC)
    model = ScriptedModel([call("add", a=1, b=2), say("done")])
    driver = LocalDriver(AGENT, model=model, tools=[add], clock=lambda: start + timedelta(seconds=seconds))
    seen: list[AgentState] = []
    async for state in driver.iterate("What?", budget=ExecutionBudget(max_seconds=60)):
        seen.append(state)
        seconds = 61
    assert [(state.step_count, state.stop_reason) for state in seen] == [(1, None), (1, StopReason.TIME_LIMIT)]
    assert len(model.requests) == 1


async def test_there_is_one_item_for_each_step_also_where_hooks_run_at_the_end() -> None:
    @hook(Trigger.ON_STOP)
    async def note(_: HookContext) -> None:
        await asyncio.sleep(0)

    model = ScriptedModel([call("add", a=1, b=2), say("done")])
    driver = LocalDriver(replace(AGENT, hooks="all"), model=model, tools=[add], hooks=[note])
    assert [state.step_count async for state in driver.iterate("What?")] == [1, 2]


async def test_a_run_without_any_step_yields_its_end_alone() -> None:
    driver = LocalDriver(AGENT, model=ScriptedModel([]))
    seen = [state async for state in driver.iterate("What?", budget=ExecutionBudget(max_steps=0))]
    assert [(state.step_count, state.status) for state in seen] == [(0, ExecutionStatus.STOPPED)]


async def test_leaving_an_iteration_early_cancels_what_is_in_flight() -> None:
    meeting = Meeting()
    model = ScriptedModel([call("add", a=1, b=2), call("wait")])
    driver = LocalDriver(AGENT, model=model, tools=[add, tool(meeting.wait)])
    states = driver.iterate("What?")
    await anext(states)
    following = asyncio.ensure_future(anext(states))
    await meeting.begun.wait()
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    await states.aclose()
    assert meeting.cancelled


async def test_work_that_is_cancelled_before_it_began_is_not_complained_about() -> None:
    model = ScriptedModel([call("add", a=1, b=2), say("3")])
    states = LocalDriver(AGENT, model=model, tools=[add]).iterate("What?")
    with warnings.catch_warnings(record=True) as complaints:
        warnings.simplefilter("always")
        await anext(states)  # the next model call is asked for and has not begun
        await states.aclose()
        gc.collect()
    assert len(model.requests) == 1
    assert [str(each.message) for each in complaints] == []


async def test_an_agent_made_of_nothing_gets_its_id_its_time_and_what_it_lacks_as_it_is_run() -> None:
    model = ScriptedModel(lambda _: say("3"))
    agent = replace(AGENT, metadata={"team": "red"})
    asked = AgentState.empty().with_system_prompt("Be long.").with_user_message("What is 1 + 2?")
    first = await LocalDriver(agent, model=model).execute(asked)
    second = await LocalDriver(agent, model=model).execute(AgentState.empty().with_user_message("And 2 + 2?"))
    assert [request.system_prompt for request in model.requests] == ["Be long.", "Be brief."]
    assert [request.messages[-1].text for request in model.requests] == ["What is 1 + 2?", "And 2 + 2?"]
    assert len({asked.agent_id, first.agent_id, second.agent_id}) == 3
    assert first.created_at == first.running.started_at
    assert (first.metadata["team"], first.final_response, first.execution_count) == ("red", "3", 1)


async def test_ids_and_times_come_from_where_they_are_told_to() -> None:
    made = ids()
    times = (datetime(2025, 1, 1, tzinfo=UTC) + timedelta(seconds=second) for second in count())
    model = ScriptedModel([say("done")])
    driver = LocalDriver(AGENT, model=model, clock=lambda: next(times), new_id=lambda: next(made))
    state = await driver.execute("What?")
    assert (state.agent_id, state.running.execution_id) == (str(UUID(int=1)), str(UUID(int=2)))
    assert state.created_at.year == 2025
    assert state.updated_at > state.created_at


async def test_a_second_execution_goes_on_with_the_conversation_and_starts_its_counters_afresh() -> None:
    model = ScriptedModel([say("first"), say("second")])
    driver = LocalDriver(AGENT, model=model)
    first = await driver.execute("One?")
    second = await driver.execute("Two?", state=first)
    assert [m.content for m in second.messages] == ["One?", "first", "Two?", "second"]
    assert (second.agent_id, second.execution_count, second.step_count) == (first.agent_id, 2, 1)
    assert second.running.execution_id != first.running.execution_id
    assert [m.content for m in first.messages] == ["One?", "first"], "the first state is what it was"


async def test_an_agent_goes_on_after_a_run_that_failed_or_was_stopped() -> None:
    driver = LocalDriver(AGENT, model=ScriptedModel([Reply(status=400)]))
    failed = await driver.execute("One?")
    driver = LocalDriver(AGENT, model=ScriptedModel([say("well")]))
    assert (await driver.execute("Two?", state=failed)).final_response == "well"


async def test_a_budget_given_to_an_execution_overrides_the_definitions_limit_by_limit() -> None:
    agent = AGENT.model_copy(update={"budget": ExecutionBudget(max_steps=5, max_tokens=9_000)})
    state = await LocalDriver(agent, model=ScriptedModel([say("x")])).execute(
        "What?", budget=ExecutionBudget(max_steps=7)
    )
    assert state.budget == ExecutionBudget(max_steps=7, max_tokens=9_000)


@pytest.mark.parametrize("kind", ["tools", "hooks"])
def test_tools_and_hooks_that_no_agent_takes_are_warned_of(kind: str) -> None:
    agent, model = AgentDefinition(name="local"), ScriptedModel([say("hi")])
    offered: dict[str, Any] = {kind: [add] if kind == "tools" else [allow]}
    with pytest.warns(UserWarning, match=f"{kind} are offered and no agent takes any.* or write {kind}='all'"):
        LocalDriver(agent, model=model, **offered)
    taking = AgentDefinition.model_validate({"name": "taking", kind: "all"})
    LocalDriver(taking, model=model, **offered)
    LocalDriver(agent, model=model, agents=[taking], **offered)  # a subagent takes them


async def test_without_a_choice_no_tool_and_no_hook_is_there() -> None:
    model = ScriptedModel([call("add", a=1, b=2), say("sorry")])
    with pytest.warns(UserWarning, match="no agent takes any"):
        driver = LocalDriver(AgentDefinition(name="local"), model=model, tools=[add], hooks=[allow])
    state = await driver.execute("?")
    (error,) = state.errors
    assert error.type == "UnknownTool"
    assert error.message == "the model asked for the tool 'add', which is not there; there are: none"
    assert not model.requests[0].tools


def test_an_unknown_tool_in_the_definition_is_refused_before_anything_runs() -> None:
    with pytest.raises(UnknownTool, match="did you mean 'add'"):
        LocalDriver(AGENT.model_copy(update={"tools": ("ad",)}), model=ScriptedModel([]), tools=[add])


async def test_parallel_tools_really_run_at_the_same_time() -> None:
    together = asyncio.Barrier(3)

    async def meet() -> str:
        await asyncio.wait_for(together.wait(), PROMPTLY_SECONDS)
        return "met"

    model = ScriptedModel([calls(*[Call("meet")] * 3), say("done")])
    state = await finished(LocalDriver(AGENT, model=model, tools=[tool(meet)]))
    assert [m.content for m in state.messages if m.role == "tool"] == ["met"] * 3


async def test_a_stop_cancels_an_async_tool() -> None:
    meeting = Meeting()
    driver = LocalDriver(AGENT, model=ScriptedModel([call("wait"), say("?")]), tools=[tool(meeting.wait)])
    run = asyncio.create_task(finished(driver))
    await meeting.begun.wait()
    driver.stop("no longer needed")
    state = await run
    assert meeting.cancelled
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.USER_REQUESTED)
    assert [m.content for m in state.messages if m.role == "tool"] == [
        "Error (Cancelled): the run was stopped (user_requested: no longer needed)"
    ]


async def test_a_stop_cancels_the_model_call() -> None:
    asked, cancelled = asyncio.Event(), False

    async def model(request: ModelRequest) -> InferenceResponse:
        nonlocal cancelled
        assert request.messages
        asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled = True
            raise
        return InferenceResponse()

    driver = LocalDriver(AGENT, model=FunctionModel(model))
    run = asyncio.create_task(finished(driver))
    await asked.wait()
    driver.stop()
    state = await run
    assert cancelled
    assert (state.status, state.step_count) == (ExecutionStatus.STOPPED, 0)


async def test_a_stop_after_the_step_lets_the_tool_finish() -> None:
    meeting = Meeting()
    model = ScriptedModel([call("wait"), say("?")])
    driver = LocalDriver(AGENT, model=model, tools=[tool(meeting.wait)])
    run = asyncio.create_task(finished(driver))
    await meeting.begun.wait()
    driver.stop(mode="after_step")
    meeting.released.set()
    state = await run
    assert not meeting.cancelled
    assert [m.content for m in state.messages if m.role == "tool"] == ["released"]
    assert len(model.requests) == 1


async def test_a_stop_does_not_wait_for_a_sync_tool_that_does_not_listen() -> None:
    begun, release = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def stubborn() -> str:
        loop.call_soon_threadsafe(begun.set)
        release.wait(PROMPTLY_SECONDS * 2)
        return "too late"

    driver = LocalDriver(AGENT, model=ScriptedModel([call("stubborn"), say("?")]), tools=[tool(stubborn)])
    run = asyncio.create_task(finished(driver))
    await begun.wait()
    driver.stop()
    try:
        state = await run
    finally:
        release.set()
    assert state.status is ExecutionStatus.STOPPED
    assert [m.content[:17] for m in state.messages if m.role == "tool"] == ["Error (Cancelled)"]


async def test_a_stop_without_a_run_is_forgotten() -> None:
    driver = LocalDriver(AGENT, model=ScriptedModel([say("done")]))
    driver.stop()
    assert (await finished(driver)).status is ExecutionStatus.COMPLETED


async def test_the_time_limit_ends_a_model_call_that_never_answers() -> None:
    driver = LocalDriver(AGENT, model=ScriptedModel([Reply(hang=True)]))
    state = await finished(driver, ExecutionBudget(max_seconds=0.05))
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.TIME_LIMIT)


async def test_the_time_limit_ends_a_tool_and_its_cancellation_reaches_it() -> None:
    for seconds in (0.05, 1, 20):  # a busy machine may need the first for the model alone
        meeting = Meeting()
        driver = LocalDriver(AGENT, model=ScriptedModel([call("wait")]), tools=[tool(meeting.wait)])
        state = await finished(driver, ExecutionBudget(max_seconds=seconds))
        if meeting.begun.is_set():
            break
    assert meeting.cancelled
    assert state.stop_reason is StopReason.TIME_LIMIT


async def test_a_past_deadline_ends_a_run_before_the_model_is_asked() -> None:
    model = ScriptedModel([say("?")])
    yesterday = datetime.now(UTC) - timedelta(days=1)
    state = await finished(LocalDriver(AGENT, model=model), ExecutionBudget(deadline=yesterday))
    assert state.stop_reason is StopReason.TIME_LIMIT
    assert model.requests == []


async def test_a_run_that_ends_leaves_no_task_behind() -> None:
    before = asyncio.all_tasks()
    model = ScriptedModel([call("add", a=1, b=2), say("done")])
    await finished(LocalDriver(AGENT, model=model, tools=[add]), ExecutionBudget(max_seconds=60))
    assert asyncio.all_tasks() == before


async def test_cancelling_the_caller_cancels_the_tool() -> None:
    meeting = Meeting()
    driver = LocalDriver(AGENT, model=ScriptedModel([call("wait")]), tools=[tool(meeting.wait)])
    run = asyncio.create_task(driver.execute("Do it."))
    await meeting.begun.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert meeting.cancelled


async def test_a_failing_model_ends_the_run_failed_with_its_error() -> None:
    state = await finished(LocalDriver(AGENT, model=ScriptedModel([Reply(status=400, text="no")])))
    assert (state.status, state.stop_reason) == (ExecutionStatus.FAILED, StopReason.ERROR)
    assert [error.message for error in state.errors] == ["the script answers 400: no"]


@pytest.mark.parametrize("raised", [asyncio.CancelledError(), GeneratorExit()], ids=repr)
async def test_a_model_that_raises_what_is_no_ordinary_error_still_ends_the_run(raised: BaseException) -> None:
    async def model(request: ModelRequest) -> InferenceResponse:
        assert request.messages
        raise raised

    assert (await finished(LocalDriver(AGENT, model=FunctionModel(model)))).status is ExecutionStatus.FAILED


async def test_a_tool_knows_its_call_and_gets_another_key_for_another_call() -> None:
    seen: list[ToolContext] = []

    async def note(context: ToolContext) -> str:
        seen.append(context)
        return "noted"

    model = ScriptedModel([calls(Call("note"), Call("note")), call("note"), say("done")])
    state = await finished(LocalDriver(AGENT, model=model, tools=[tool(note)]))
    assert {context.execution_id for context in seen} == {state.running.execution_id}
    assert len({context.idempotency_key for context in seen}) == 3
    assert {context.attempt for context in seen} == {1}
    keys = [execution.id for step in state.steps for execution in step.tool_executions]
    assert sorted(keys) == sorted(context.idempotency_key for context in seen)


async def test_a_state_that_was_under_way_is_gone_on_with_by_another_driver() -> None:
    added: list[tuple[int, int]] = []

    async def count_up(a: int, b: int) -> int:
        added.append((a, b))
        return a + b

    turns = [call("count_up", a=1, b=2), call("count_up", a=3, b=4), say("done")]
    first = LocalDriver(AGENT, model=ScriptedModel(turns), tools=[tool(count_up)]).iterate("What?")
    under_way = AgentState.from_dict((await anext(first)).to_dict())
    await first.aclose()
    state = await LocalDriver(AGENT, model=ScriptedModel(turns), tools=[tool(count_up)]).execute(under_way)
    assert (state.status, state.step_count, state.execution_count) == (ExecutionStatus.COMPLETED, 3, 1)
    assert state.running.execution_id == under_way.running.execution_id
    assert added == [(1, 2), (3, 4)], "no completed call runs again"
