"""Assertions about a run whose failures show the run: the expected, the actual, and the steps in a few lines.

state = await driver.execute("Where is order 17?")
assert_completed(state, answer="It left this morning.")
assert_called(state, "find_order", times=1, number=17)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NoReturn

from holdfast.core.agent.budget import COST, LIMITS, SECONDS, TOKENS
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.state import AgentState
from holdfast.core.base.errors import InvalidInput
from holdfast.core.conversation.messages import Message, ToolCall
from holdfast.core.conversation.steps import AgentStep
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.tools.tools import AnyTool, Tool
from holdfast.testing.comparison import TIMES, differences

STEPS_SHOWN_MAX: Final = 10
"""Steps that a failure shows: the latest ones."""

CALLS_SHOWN_MAX: Final = 5
LINE_CHARS_MAX: Final = 160

DIFFERENCES_SHOWN_MAX: Final = 20

SECONDS_OVER: Final = 5.0
"""How much later than its time limit a run may end unless a test says otherwise: a bound, no measurement."""


def assert_completed(state: AgentState, *, answer: str | None = None) -> None:
    """Check that the run came to its natural end, with exactly this answer where one is given."""
    __tracebackhide__ = True
    if state.status is not ExecutionStatus.COMPLETED:
        _fail("the run is not completed", state)
    if answer is not None and state.final_response != answer:
        _fail(f"the answer is not {_short(answer)}", state)


def assert_stopped(state: AgentState, reason: StopReason | str | None = None) -> None:
    """Check that the run was stopped, for `reason` where it is given."""
    __tracebackhide__ = True
    if state.status is not ExecutionStatus.STOPPED:
        _fail("the run is not stopped", state)
    if reason is not None and state.stop_reason != StopReason(reason):
        _fail(f"the run was not stopped for {StopReason(reason)}", state)


def assert_failed(state: AgentState, error_type: str | None = None) -> None:
    """Check that the run failed, with an error of this type's name where it is given."""
    __tracebackhide__ = True
    if state.status is not ExecutionStatus.FAILED:
        _fail("the run has not failed", state)
    error = state.execution.error if state.execution else None
    if error_type is not None and (error is None or error.type != error_type):
        _fail(f"the run did not fail with {error_type}", state)


def calls_of(state: AgentState, tool: str | AnyTool) -> tuple[ToolCall, ...]:
    """Return the calls of `tool` that really ran, also those of the step under way, in order."""
    name = tool.name if isinstance(tool, Tool) else tool
    return tuple(call for step in _steps(state) for call in step.executed_tool_calls if call.name == name)


def assert_called(
    state: AgentState,
    tool: str | AnyTool,
    /,
    times: int | None = None,
    **arguments: Any,  # noqa: ANN401  # any JSON value
) -> None:
    """Check that `tool` ran `times` times (at least once by default) with these arguments, others being as they may.

    For an argument that is itself called `times`, look at `calls_of`.
    """
    __tracebackhide__ = True
    count = sum(_has(call, arguments) for call in calls_of(state, tool))
    if count == times or (times is None and count):
        return
    name = tool.name if isinstance(tool, Tool) else tool
    expected = "at least once" if times is None else f"{times} times"
    _fail(f"{name}({_arguments_text(arguments)}) ran {count} times, not {expected}", state)


def _has(call: ToolCall, arguments: Mapping[str, object]) -> bool:
    return all(name in call.arguments and call.arguments[name] == value for name, value in arguments.items())


def assert_every_call_answered(conversation: AgentState | Iterable[Message]) -> None:
    """Check the providers' pairing rule: the calls of a message are answered right behind it, once each, in order."""
    __tracebackhide__ = True
    open_ids: list[str] = []
    for index, message in enumerate(conversation.messages if isinstance(conversation, AgentState) else conversation):
        if message.role == "tool":
            if not open_ids or message.tool_call_id != open_ids.pop(0):
                raise AssertionError(
                    f"message {index} answers {message.tool_call_id!r}, which is not the next open call"
                )
            continue
        if open_ids:
            raise AssertionError(f"message {index} comes before an answer to {_listed(open_ids)}")
        open_ids = [call.id for call in message.tool_calls]
        if not all(open_ids) or len(set(open_ids)) < len(open_ids):
            raise AssertionError(f"message {index} has calls without an id of their own: {_listed(open_ids)}")
    if open_ids:
        raise AssertionError(f"there is no answer to {_listed(open_ids)}")


def assert_within_budget(state: AgentState, *, tokens_over: int = 0, seconds_over: float = SECONDS_OVER) -> None:
    """Check that the execution used no more than its budget allows.

    Args:
        state: the run.
        tokens_over: how far the last call's input may pass `max_tokens` (it is known only when it is answered).
        seconds_over: how much later than its time limit the run may have ended.

    Raises InvalidInput for a `max_cost` that no price can be held against.
    """
    __tracebackhide__ = True
    budget, use = state.budget, state.budget_use
    over = {TOKENS: tokens_over, SECONDS: seconds_over}
    for limit in LIMITS:
        allowed = limit.of(budget)
        if allowed is None:
            continue
        used = _cost(state) if limit is COST else limit.used(use)
        if used > allowed + over.get(limit, 0):
            _fail(f"the run used {used:g} {limit.unit}, its budget allows {allowed:g}", state)
    ended = state.execution.completed_at if state.execution else None
    if budget.deadline and ended and (ended - budget.deadline).total_seconds() > seconds_over:
        _fail(f"the run ended at {ended}, its deadline was {budget.deadline}", state)


def _cost(state: AgentState) -> float:
    if state.llm is None or state.llm.prices is None:
        raise InvalidInput("the state's model has no prices, so its max_cost cannot be checked; give llm.prices")
    return state.llm.prices.cost(state.usage)


def assert_same_run(one: AgentState, other: AgentState, *, ignoring: Iterable[str] = TIMES) -> None:
    """Check that two runs left the same state, but for when it happened; the failure lists each difference's path."""
    __tracebackhide__ = True
    lines = differences(one, other, ignoring)
    if lines:
        more = [f"and {len(lines) - DIFFERENCES_SHOWN_MAX} more"] if len(lines) > DIFFERENCES_SHOWN_MAX else []
        text = "\n  ".join(["the runs differ:", *lines[:DIFFERENCES_SHOWN_MAX], *more])
        raise AssertionError(text)


def run_summary(state: AgentState) -> str:
    """Return what happened in the latest execution, in a few lines: status, reason, error, answer and steps."""
    lines = [f"{state.status} ({state.stop_reason or 'no stop reason'}) after {state.step_count} steps"]
    if state.execution and state.execution.error:
        error = state.execution.error
        lines.append(f"error: {_short(f'{error.type}: {error.message}')} of {error.source}")
    if state.current_response:
        lines.append(f"answer: {_short(state.current_response)}")
    steps = _steps(state)
    if len(steps) > STEPS_SHOWN_MAX:
        lines.append(f"({len(steps) - STEPS_SHOWN_MAX} earlier steps)")
    for step in steps[-STEPS_SHOWN_MAX:]:
        lines += _step_lines(step)
    return "\n  ".join(lines)


def _steps(state: AgentState) -> tuple[AgentStep, ...]:
    under_way = state.execution.current_step if state.execution else None
    return state.steps if under_way is None else (*state.steps, under_way)


def _step_lines(step: AgentStep) -> list[str]:
    if step.inference_response is None:
        errors = "; ".join(f"{error.type}: {error.message}" for error in step.errors)
        return [f"step {step.number}: {_short(errors) if errors else 'the model has not answered'}"]
    ended = {execution.call.id: execution for execution in step.tool_executions}
    lines = [f"step {step.number}: {step.step_type}"]
    for call in step.requested_tool_calls[:CALLS_SHOWN_MAX]:
        execution = ended.get(call.id)
        how = f"{execution.outcome}: {_short(execution.answer.text)}" if execution else "no answer yet"
        lines.append(f"  {_cut(f'{call.name}({_arguments_text(call.arguments)})')} {how}")
    if len(step.requested_tool_calls) > CALLS_SHOWN_MAX:
        lines.append(f"  and {len(step.requested_tool_calls) - CALLS_SHOWN_MAX} more calls")
    return lines


def _arguments_text(arguments: Mapping[str, object]) -> str:
    return _cut(", ".join(f"{name}={value!r}" for name, value in arguments.items()))


def _short(text: str) -> str:
    return _cut(repr(text))


def _cut(text: str) -> str:
    return text if len(text) <= LINE_CHARS_MAX else f"{text[:LINE_CHARS_MAX]}…"


def _listed(ids: list[str]) -> str:
    return _cut(", ".join(repr(each) for each in ids))


def _fail(what: str, state: AgentState) -> NoReturn:
    __tracebackhide__ = True
    raise AssertionError(f"{what}:\n  {run_summary(state)}")
