"""Why a call that was asked for does not run at all: unknown, malformed, one too many."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.agent.handoffs import HANDOFF_TOOL, problem_with_handoff, second_handoff
from holdfast.core.agent.subagents import SPAWN_TOOL, problem_with_number, problem_with_spawn
from holdfast.core.base.bounds import CALLS_PER_STEP_MAX
from holdfast.core.base.did_you_mean import nearest, suggestion
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.conversation.steps import ErrorRecord, OpenCall
from holdfast.core.loop.calls.nested_calls import NESTED_INDEX_MIN
from holdfast.core.loop.transition import Transition
from holdfast.core.tools.tool_search import CALL_TOOL


def problem_with(transition: Transition, call: ToolCall, index: int, before: Sequence[OpenCall]) -> ErrorRecord | None:
    """Return why `call` must not run after those `before` it, if so; its tool checks its arguments itself."""
    rules = transition.rules
    if call.malformed is not None:
        return ErrorRecord(type="InvalidArguments", message=call.malformed, source=call.name)
    if (text := _not_offered(transition, call, index)) is not None:
        return ErrorRecord(type="UnknownTool", message=text, source=call.name)
    if call.name == SPAWN_TOOL and rules.subagents:
        beside = sum(each.call.name == SPAWN_TOOL for each in before)
        problem = problem_with_spawn(call, rules.subagents, rules.depth)
        problem = problem or problem_with_number(beside, transition.execution.subagents_started)
        if problem is not None:
            return problem
    elif call.name == HANDOFF_TOOL and rules.handoffs:
        problem = problem_with_handoff(call, rules.handoffs, len(transition.execution.handoffs))
        if problem is None and any(each.call.name == HANDOFF_TOOL for each in before):
            problem = second_handoff()
        if problem is not None:
            return problem
    elif call.name not in rules.tools:
        text = f"the model asked for the tool {call.name!r}, {nearest(call.name, rules.callable_names)}"
        return ErrorRecord(type="UnknownTool", message=text, source=call.name)
    if CALLS_PER_STEP_MAX <= index < NESTED_INDEX_MIN:
        text = f"not run: at most {CALLS_PER_STEP_MAX} calls of one step run; ask again for the rest"
        return ErrorRecord(type="TooManyCalls", message=text, source=call.name)
    return None


def _not_offered(transition: Transition, call: ToolCall, index: int) -> str | None:
    """Return that the model was not offered the tool in this step, if hooks have left it out of the model call.

    Scripts call what `run_code` may, and deferred tools are called by way of their stand-in.
    """
    changes = transition.step.model_call_changes
    if changes is None or changes.tools is None or index >= NESTED_INDEX_MIN:
        return None
    traits = transition.rules.tools.get(call.name)
    name = CALL_TOOL if traits is not None and traits.deferred else call.name
    if name in changes.tools or call.name not in transition.rules.callable_names:
        return None
    offered = suggestion(call.name, changes.tools)
    return f"the model asked for the tool {call.name!r}, which this step does not offer; {offered}"
