"""Hooks as a user writes them: ten places in order, priorities, and what they change (docs/spec.md, section 6)."""

from __future__ import annotations

import pytest

from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.hooks import AFTER_ANSWER, Changes, Hook, HookContext, Trigger, hook
from holdfast.core.agent.state import AgentState
from holdfast.core.conversation.messages import user_message
from holdfast.core.conversation.model_call_changes import ModelCallChanges
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.loop.transition import HOOK_STEPS_MAX
from holdfast.core.tools.tools import tool
from holdfast.local import LocalDriver
from holdfast.testing.script import Reply, call, say
from holdfast.testing.scripted_model import ScriptedModel

AGENT = AgentDefinition(name="local", tools="all", hooks="all")
IN_A_STEP = [
    "before_step",
    "before_inference",
    "after_inference",
    "before_tool",
    "after_tool",
    "after_step",
]


@tool
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


def noting(seen: list[str], trigger: Trigger, name: str = "", priority: int = 0) -> Hook:
    @hook(trigger, name=name or f"note_{trigger}", priority=priority)
    def note(_: HookContext) -> None:
        seen.append(name or trigger.value)

    return note


def changing(trigger: str, changes: Changes) -> Hook:
    @hook(trigger, name=f"change_{trigger}")
    def change(_: HookContext) -> Changes:
        return changes

    return change


async def run(*hooks: Hook, turns: list[Reply] | None = None) -> tuple[AgentState, ScriptedModel]:
    model = ScriptedModel(turns or [call("double", number=1), say("done")])
    return await LocalDriver(AGENT, model=model, tools=[double], hooks=hooks).execute("Do it."), model


def test_there_are_eleven_triggers() -> None:
    assert {trigger.value for trigger in Trigger} == {
        *IN_A_STEP,
        "input_guard",
        "before_execution",
        "on_stop",
        "after_execution",
        "on_error",
    }


async def test_hooks_run_at_their_places_in_the_order_of_the_loop() -> None:
    seen: list[str] = []
    await run(*(noting(seen, trigger) for trigger in reversed(Trigger)))
    without_tools = [trigger for trigger in IN_A_STEP if "tool" not in trigger]
    first = [*IN_A_STEP[:2], "input_guard", *IN_A_STEP[2:]]
    assert seen == ["before_execution", *first, *without_tools, "on_stop", "after_execution"]


async def test_an_error_leads_to_on_error() -> None:
    seen: list[str] = []
    hooks = (noting(seen, trigger) for trigger in Trigger if trigger is not Trigger.INPUT_GUARD)
    await run(*hooks, turns=[Reply(status=400)])
    assert seen == ["before_execution", "before_step", "before_inference", "on_error", "after_execution"]


async def test_higher_priority_goes_first_and_registration_order_decides_ties() -> None:
    seen: list[str] = []
    ranks = {"low": -1, "one": 0, "high": 5, "another": 0, "third": 0}
    await run(*(noting(seen, Trigger.ON_STOP, name, priority) for name, priority in ranks.items()))
    assert seen == ["high", "one", "another", "third", "low"]


@pytest.mark.parametrize("trigger", [each for each in Trigger if each is not Trigger.ON_ERROR])
async def test_metadata_and_messages_of_any_hook_are_kept_also_of_tool_hooks(trigger: Trigger) -> None:
    changes = Changes(metadata={"seen": trigger.value}, messages=(user_message("Mind the gap."),))
    state, model = await run(changing(trigger, changes))
    assert state.metadata["seen"] == trigger.value
    assert "Mind the gap." in [message.text for message in state.messages]
    shown = [message.text for request in model.requests for message in request.messages]
    assert ("Mind the gap." in shown) is (trigger not in (Trigger.ON_STOP, Trigger.AFTER_EXECUTION))


async def test_a_hook_changes_the_arguments_of_a_call() -> None:
    state, _ = await run(changing("before_tool", Changes(arguments={"number": 21})))
    assert [message.text for message in state.messages if message.role == "tool"] == ["42"]


async def test_a_hook_changes_the_answer_and_what_the_model_said_stays_readable() -> None:
    seen: list[str] = []

    @hook("after_inference", priority=1)
    def first(context: HookContext) -> Changes:
        return Changes(answer=f"{context.response.text if context.response else ''}, first")

    @hook("after_inference")
    def second(context: HookContext) -> Changes:
        return Changes(answer=f"{context.response.text if context.response else ''}, second")

    @hook("after_step")
    def last(context: HookContext) -> None:
        seen.append(context.response.text if context.response else "")

    state, model = await run(first, second, last, turns=[call("double", number=1), say("done")])
    assert state.final_response == state.current_response == state.messages[-1].text == "done, first, second"
    assert seen == [", first, second", "done, first, second"]
    step = state.steps[-1]
    assert (step.inference_response and step.inference_response.text, step.revised and step.revised.hook) == (
        "done",
        "second",
    )
    assert ", first, second" in [message.text for message in model.requests[1].messages if message.role == "assistant"]
    assert AgentState.from_json(state.to_json()) == state


@pytest.mark.parametrize(
    "trigger", [each for each in Trigger if each not in AFTER_ANSWER and each is not Trigger.ON_ERROR]
)
async def test_a_hook_elsewhere_cannot_change_the_answer(trigger: Trigger) -> None:
    state, _ = await run(changing(trigger, Changes(answer="mine")))
    assert state.status is ExecutionStatus.FAILED
    text = f"only hooks at after_inference and after_step can change the answer, this is {trigger}"
    assert text in state.errors[-1].message


async def test_a_hook_blocks_a_call_and_the_record_names_it_and_its_reason() -> None:
    state, _ = await run(changing("before_tool", Changes(block="not today")))
    (execution,) = state.steps[0].tool_executions
    assert (execution.outcome.value, execution.was_blocked) == ("blocked", True)
    assert execution.error is not None
    assert (execution.error.type, execution.error.source) == ("ToolExecutionBlocked", "change_before_tool")
    assert "'change_before_tool': not today" in execution.error.message
    assert (state.steps[0].executed_tool_calls, state.status) == ((), ExecutionStatus.COMPLETED)


async def test_a_hook_signals_a_stop_and_one_asks_to_go_on() -> None:
    state, _ = await run(changing("after_tool", Changes(stop="seen enough")))
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.STOP_REQUESTED)
    assert state.stop_signal is not None
    assert (state.stop_signal.message, state.stop_signal.source) == ("seen enough", "change_after_tool")
    state, _ = await run(changing("after_step", Changes(go_on=True)), turns=[say(str(step)) for step in range(9)])
    assert (state.step_count, state.final_response) == (4, "3")


@pytest.mark.parametrize("trigger", [each for each in Trigger if each is not Trigger.ON_ERROR])
async def test_a_hook_that_raises_fails_the_execution_with_its_name(trigger: Trigger) -> None:
    @hook(trigger)
    def clumsy(_: HookContext) -> None:
        raise RuntimeError("oh")

    state, _ = await run(clumsy)
    assert (state.status, state.stop_reason) == (ExecutionStatus.FAILED, StopReason.ERROR)
    assert [error.source for error in state.errors] == ["clumsy"]
    assert "'clumsy'" in state.errors[0].message
    assert "RuntimeError: oh" in state.errors[0].message


async def test_each_hook_sees_what_those_before_it_changed() -> None:
    seen: list[object] = []

    @hook("before_step", priority=-1)
    def later(context: HookContext) -> None:
        seen.append(context.metadata.get("by"))

    await run(changing("before_step", Changes(metadata={"by": "the first"})), later, turns=[say("done")])
    assert seen == ["the first"]


async def test_a_hook_that_scribbles_on_what_it_is_shown_changes_nothing() -> None:
    @hook("before_tool")
    def scribble(context: HookContext) -> None:
        notes, call = context.metadata, context.call
        assert isinstance(notes, dict)
        assert call is not None
        assert isinstance(call.arguments, dict)
        notes["seen"] = True
        call.arguments["number"] = 100

    state, _ = await run(scribble)
    assert "seen" not in state.metadata
    assert [execution.result for execution in state.steps[0].tool_executions] == ["2"]


async def test_hooks_see_the_executions_steps_and_errors_and_whose_subagent_it_is() -> None:
    seen: list[HookContext] = []

    @tool
    def halve(number: int) -> int:
        """Halve a number."""
        raise ArithmeticError(f"{number} is odd")

    @hook(Trigger.AFTER_STEP)
    def look(context: HookContext) -> None:
        seen.append(context)

    turns = [call("double", number=1), call("halve", number=1), say("done"), say("again")]
    left = iter(turns)
    model = ScriptedModel(lambda _: next(left))
    parent = "6f1c0000-0000-4000-8000-000000000001"
    driver = LocalDriver(AGENT, model=model, tools=[double, halve], hooks=[look], parent_agent_id=parent)
    first = await driver.execute("Do it.", tenant="acme")
    await driver.execute("Once more.", state=first)
    assert [[each.call.name for each in context.tool_executions] for context in seen] == [["double"], ["halve"], [], []]
    assert [[each.step.number for each in context.steps] for context in seen] == [[], [1], [1, 2], []]
    assert [[error.type for error in context.errors] for context in seen] == [
        [],
        ["ArithmeticError"],
        ["ArithmeticError"],
        [],
    ]
    assert [context.execution_count for context in seen] == [1, 1, 1, 2]
    assert {context.parent_agent_id for context in seen} == {parent}
    assert [context.tenant for context in seen] == ["acme", "acme", "acme", ""]


async def test_a_hook_is_shown_the_latest_steps_alone() -> None:
    shown: list[int] = []

    @hook(Trigger.ON_STOP)
    def look(context: HookContext) -> None:
        shown.extend(each.step.number for each in context.steps)

    turns = [*(call("double", number=number) for number in range(6)), say("done")]
    await run(look, turns=turns)
    assert shown == [5, 6, 7]
    assert len(shown) == HOOK_STEPS_MAX


async def test_changes_that_cannot_be_made_are_told_in_one_line_with_their_field() -> None:
    @hook("before_inference")
    def hurry(_: HookContext) -> Changes:
        return Changes(model_call=ModelCallChanges(options={"temprature": 1}))

    state, model = await run(hurry)
    [error] = state.errors
    named = "the hook 'hurry' (before_inference) raised ValidationError"
    assert error.message == f"{named}: model_call: there is no option 'temprature'; did you mean 'temperature'?"
    assert not model.requests
