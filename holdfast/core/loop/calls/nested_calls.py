"""The calls of a script: ordinary calls of its step that name the one that made them (docs/spec.md, 8.34).

    run_code: running ─▶ calls made ─▶ … each of them as any other call … ─▶ all ended ─▶ running ─▶ … ─▶ answered

A script waits until every call that it has made so far has ended. It runs alone: no other call that the model asked
for runs beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from holdfast.core.base.bounds import STEP_RESULTS_BYTES_MAX
from holdfast.core.base.safe_text import json_size
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.conversation.steps import AgentStep, CallStage, OpenCall, ToolExecution
from holdfast.core.loop.commands import CallTool, Script
from holdfast.core.loop.transition import Transition
from holdfast.core.tools.code_mode import RUN_CODE, SCRIPT_CALLS_MAX, nested_call_id
from holdfast.core.wire.script_contracts import ScriptCall

NESTED_INDEX_MIN: Final = 1_000
"""Nested calls have indexes from here on, so many for each call of the model's: none is a place in its request."""

NESTED_RESULT_BYTES_MIN: Final = 1_024
"""What each nested result may take whatever those before it took; SCRIPT_CALLS_MAX of them fit a step's results."""


def runs_script(transition: Transition, call: ToolCall) -> bool:
    """Return whether `call` runs a script: its tool is ours where the agent has Code Mode."""
    return call.name == RUN_CODE and transition.rules.definition.code is not None


def startable(transition: Transition) -> tuple[OpenCall, ...]:
    """Return the open calls that may start: while a script runs, those that it made."""
    calls = transition.execution.open_calls
    nested = tuple(each for each in calls if each.parent_call_id is not None)
    if nested or (calls and calls[0].stage is CallStage.RUNNING and runs_script(transition, calls[0].call)):
        return nested
    return calls


def command_of(transition: Transition, each: OpenCall) -> CallTool | None:
    """Return the command that takes a script further; none while a call that it made is open, or when issued."""
    if any(one.parent_call_id == each.call.id for one in transition.execution.open_calls):
        return None
    if any(isinstance(one, CallTool) and one.index == each.index for one in transition.commands):
        return None  # issued already: calls that end at once end within one another
    nested = [one for one in transition.step.tool_executions if one.parent_call_id is not None]
    ended = tuple(one for one in nested if one.parent_call_id == each.call.id)
    calls_max = SCRIPT_CALLS_MAX - (len(nested) - len(ended))
    return CallTool(transition.step.number, each.index, each.call, script=Script(ended, calls_max))


def calls_made(transition: Transition, each: OpenCall, calls: Iterable[ScriptCall]) -> Iterator[OpenCall]:
    """Yield the calls that the script of `each` makes next, as open calls with ids and indexes of their own."""
    step = transition.step
    made = sum(one.parent_call_id == each.call.id for one in step.tool_executions)
    taken = {call.id for call in step.requested_tool_calls}
    for number, call in enumerate(calls, start=made + 1):
        id_ = nested_call_id(each.call.id, number)
        while id_ in taken:
            id_ += "_"
        index = NESTED_INDEX_MIN * (each.index + 1) + number
        asked = ToolCall(id=id_, name=call.tool, arguments=call.arguments, malformed=call.malformed)
        yield OpenCall(index=index, call=asked, parent_call_id=each.call.id)


def parent_of(transition: Transition, call_id: str | None) -> OpenCall | None:
    """Return the open call whose script made the one that has ended; none for a call of the model's own."""
    return next((each for each in transition.execution.open_calls if each.call.id == call_id), None)


def unanswered(transition: Transition) -> list[tuple[int, ToolCall]]:
    """Return the calls without an outcome, those of scripts first, each with its index."""
    nested = [(each.index, each.call) for each in transition.execution.open_calls if each.parent_call_id is not None]
    return [*nested, *transition.step.unanswered_calls]


def order_in(step: AgentStep) -> Callable[[ToolExecution], tuple[int, int]]:
    """Return the key of a step's order: the model's calls as it asked for them, each before those of its script."""
    places = {call.id: index for index, call in enumerate(step.requested_tool_calls)}

    def place(execution: ToolExecution) -> tuple[int, int]:
        if execution.parent_call_id is None:
            return places[execution.call.id], 0
        number = execution.call.id.removeprefix(f"{execution.parent_call_id}/").rstrip("_")
        return places[execution.parent_call_id], int(number)

    return place


def result_share(transition: Transition, each: OpenCall) -> int:
    """Return the most bytes of JSON that the result of a call may take; a script and its calls share one's part."""
    share = STEP_RESULTS_BYTES_MAX // len(transition.step.requested_tool_calls)
    if each.parent_call_id is None:
        return share // 2 if runs_script(transition, each.call) else share
    ended = (one for one in transition.step.tool_executions if one.parent_call_id == each.parent_call_id)
    used = sum(json_size(one.result or one.error_message) for one in ended)
    beside = sum(one.parent_call_id == each.parent_call_id for one in transition.execution.open_calls)
    return max(NESTED_RESULT_BYTES_MIN, (share // 2 - used) // max(1, beside))
