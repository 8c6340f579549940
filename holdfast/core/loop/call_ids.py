"""Ids of tool calls that are unique in their step, whatever the provider sent."""

from __future__ import annotations

from holdfast.core.base.bounds import CALL_ID_CHARS_MAX, CALLS_KEPT_MAX
from holdfast.core.base.frozen import replace
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.core.loop.transition import Transition
from holdfast.core.tools.code_mode import RUN_CODE
from holdfast.core.tools.tool_search import called_tool


def with_own_call_ids(transition: Transition, response: InferenceResponse) -> InferenceResponse:
    """Give every call an id that is unique in its step; providers leave them empty or repeat them.

    Where one of them waits for a person, unique in the whole execution: a repeated decision, or a late expiry, must not
    apply to another call.
    """
    if not response.tool_calls:
        return response
    step_number = transition.step.number
    named = (called_tool(call, transition.rules.tools).name for call in response.tool_calls)
    needs_approval = any(transition.rules.may_ask(name) or name == RUN_CODE for name in named)
    before = (
        transition.execution.step_executions if needs_approval else ()
    )  # as often as people are asked, not in every step
    seen = {call.id for done in before for call in done.step.requested_tool_calls}
    calls: list[ToolCall] = []
    for index, call in enumerate(response.tool_calls[:CALLS_KEPT_MAX]):
        usable = call.id if 0 < len(call.id) <= CALL_ID_CHARS_MAX and call.id not in seen else ""
        usable = usable or f"call_{step_number}_{index}"
        while usable in seen:
            usable += "_"
        seen.add(usable)
        calls.append(call if usable == call.id else replace(call, id=usable))
    return replace(response, tool_calls=tuple(calls))
