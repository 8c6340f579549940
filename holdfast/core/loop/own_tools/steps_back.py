"""Going back: what the steps left out said leaves the conversation, what they did stays told (docs/spec.md, 3.18)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from holdfast.core.agent.execution_state import step_id
from holdfast.core.base.append_list import AppendList
from holdfast.core.base.frozen import replace
from holdfast.core.base.safe_text import clamped
from holdfast.core.conversation.messages import DEFAULT_SECTION, Message, ToolCall
from holdfast.core.conversation.steps import AgentStep, ErrorRecord, ToolExecution
from holdfast.core.conversation.steps_back import STEPS_BACK_MAX, StepBack, step_back_of
from holdfast.core.loop import headroom
from holdfast.core.loop.own_tools import todo_list
from holdfast.core.loop.transition import Transition
from holdfast.core.wire.execution_events import AgentWentBack

CALLS_LISTED_MAX: Final = 50
"""The most calls of the steps left out that the model is told, those first that must not be repeated."""

ARGUMENTS_CHARS_MAX: Final = 300
"""How much of such a call's arguments is told."""


def ask(transition: Transition, call: ToolCall) -> tuple[str | None, ErrorRecord | None]:
    """Have the agent go back at the end of the step under way; return what the model is told."""
    request, problem = step_back_of(call.arguments)
    if request is not None:
        problem = _problem_with(transition, request.step)
    if request is None or problem:
        return None, ErrorRecord(type="InvalidArguments", message=problem, source=call.name)
    back = StepBack(from_step=transition.step.number, to_step=request.step, note=request.note.strip(), at=transition.at)
    transition.change(going_back=back)
    return f"going back to step {request.step}", None


def take_place(transition: Transition) -> None:
    """Leave out the steps that the archived one asked to leave out, and tell the note and the calls that stand."""
    back = transition.execution.going_back
    if back is None:
        return
    execution = transition.execution
    ids = {step_id(execution.execution_id, number) for number in back.left_out}
    section = transition.store.section(DEFAULT_SECTION)
    kept = AppendList(each for each in section.messages if str(each.metadata.get("step_id")) not in ids)
    transition.store = transition.store.with_section(replace(section, messages=kept))
    # what steps were asked with is found by their ids from here on, as after a summary
    made = (*execution.steps_back, back)
    transition.change(going_back=None, steps_back=made, compactions=execution.compactions + 1)
    transition.emit(AgentWentBack, step_back=back)
    steps = (done.step for done in execution.step_executions if done.step.number in back.left_out)
    note = Message(role="user", content=_note(transition, back, steps))
    headroom.count_opening(transition)
    transition.add_messages((note,), is_trace=True)
    todo_list.show_again(transition)


def _problem_with(transition: Transition, step: int) -> str:
    """Return why the agent cannot go back to that step, if so."""
    execution, now = transition.execution, transition.step.number
    if execution.going_back is not None:
        return "this step goes back already; the first call counts"
    if len(execution.steps_back) >= STEPS_BACK_MAX:
        return f"one run goes back at most {STEPS_BACK_MAX} times; go on from here"
    shown = {str(each.metadata.get("step_id")) for each in transition.store.messages}
    possible = [number for number in range(1, now) if step_id(execution.execution_id, number) in shown]
    if step in possible:
        return ""
    if not possible:
        return f"this is step {now}, and no step before it is left to go back to"
    return f"this is step {now}; you can go back to one of the steps {', '.join(map(str, possible))}"


def _note(transition: Transition, back: StepBack, steps: Iterable[AgentStep]) -> str:
    """Return what the model is told in place of the steps left out: its own words, and no tool's.

    The note stands where a person speaks; what a tool has returned must not.
    """
    calls = [each for step in steps for each in step.tool_executions if each.ran and not _is_own(transition, each)]
    left_out = f"Steps {back.to_step} to {back.from_step} are left out, and this is step {back.from_step + 1}"
    lines = [f"You went back to step {back.to_step}. {left_out}. Your note:\n{back.note}"]
    if calls:
        once = sorted(calls, key=lambda each: not _at_most_once(transition, each))[:CALLS_LISTED_MAX]
        listed = [_line(each) for each in calls if each in once]
        more = f"\n- and {len(calls) - len(listed)} more" if len(calls) > len(listed) else ""
        stand = "These calls were made and stand; going back undid nothing, and left out their results"
        lines.append(f"{stand}:\n" + "\n".join(listed) + more)
    return "\n\n".join(lines)


def _line(each: ToolExecution) -> str:
    arguments = clamped(" ".join(each.call.arguments_text.split()), ARGUMENTS_CHARS_MAX)
    return f"- {each.name}({arguments}) {each.outcome}"


def _is_own(transition: Transition, each: ToolExecution) -> bool:
    traits = transition.rules.tools.get(each.name)
    return traits is not None and traits.loop is not None


def _at_most_once(transition: Transition, each: ToolExecution) -> bool:
    traits = transition.rules.tools.get(each.name)
    return traits is not None and traits.at_most_once
