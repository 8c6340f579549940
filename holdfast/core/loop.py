"""The agent loop as a function: `AgentLoop.step(state, event) -> (state, commands)` (SPEC section 6).

    begin ─▶ next step ─▶ CallModel ─▶ answered ─▶ CallTool × n ─▶ all returned ─▶ archive ─▶ next step
                │                         │                                          │
                │ a limit is reached      │ no tools asked                           │ should stop
                ▼                         ▼                                          ▼
              finish ◀──────────────── archive ────────────────────────────────▶  finish

    stop (now), time limit, driver fault: whatever is in flight is cancelled, its record says so, and the run ends.

An event that comes too late (the run has ended, the call is answered already) changes nothing and asks for nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import assert_never

from holdfast.core.budget import ExecutionBudget
from holdfast.core.commands import CallModel, CallTool, CancelInFlight, Command, Finish, StartTimer
from holdfast.core.definition import AgentDefinition
from holdfast.core.events import (
    DriverFailed,
    Event,
    ExecutionStarted,
    ModelAnswered,
    ModelFailed,
    StopRequested,
    TimerFired,
    ToolFailed,
    ToolReturned,
)
from holdfast.core.frozen import replace
from holdfast.core.limits import (
    CALLS_KEPT_MAX,
    CALLS_PER_STEP_MAX,
    REASON_CHARS_MAX,
    STEP_RESULTS_BYTES_MAX,
    STOP_SIGNALS_MAX,
)
from holdfast.core.messages import Message, ToolCall
from holdfast.core.registry import nearest
from holdfast.core.state import (
    AgentContext,
    AgentState,
    ExecutionState,
    ExecutionStatus,
    call_name,
    named_id,
    step_id,
)
from holdfast.core.steps import AgentStep, ErrorRecord, InferenceResponse, Outcome, StepExecution, ToolExecution
from holdfast.core.stopping import StopReason, StopSignal
from holdfast.core.texts import clamped_json

Transition = tuple[AgentState, tuple[Command, ...]]


def new_agent(definition: AgentDefinition, *, agent_id: str, at: datetime) -> AgentState:
    """Return the state of an agent that has done nothing yet."""
    notes = {**definition.metadata, "agent": definition.name}
    context = AgentContext(system_prompt=definition.system_prompt, metadata=notes)
    return AgentState(agent_id=agent_id, created_at=at, updated_at=at, llm=definition.llm, context=context)


@dataclass(frozen=True, slots=True)
class AgentLoop:
    """The rules for one agent; `tools` are the names it may call."""

    tools: frozenset[str]

    def step(self, state: AgentState, event: Event) -> Transition:
        """Return the state after `event` and what is to be done now. Pure: equal inputs give equal outputs."""
        if isinstance(event, ExecutionStarted):
            return _begin(state, event)
        execution = state.execution
        if execution is None or execution.current_step is None or execution.status.is_terminal:
            return state, ()
        under_way = execution.current_step
        match event:
            case ModelAnswered():
                return self._model_answered(state, under_way, event)
            case ModelFailed() if under_way.inference_response is not None:
                return state, ()
            case ModelFailed():
                return _failed(state, replace(under_way, errors=(event.error,)), event.error, event.at)
            case ToolReturned() | ToolFailed():
                return _tool_ended(state, under_way, event)
            case StopRequested():
                stopping = _signalled(state, event.signal, event.at)
                return _abort(stopping, under_way, event.at) if event.mode == "now" else (stopping, ())
            case TimerFired():
                return _abort(_signalled(state, _time_limit(state.budget, event.at), event.at), under_way, event.at)
            case DriverFailed():
                failed = _with_error(state, event.error, event.at)
                return _abort(failed, under_way, event.at)
            case _:
                assert_never(event)

    def _model_answered(self, state: AgentState, step: AgentStep, event: ModelAnswered) -> Transition:
        if step.inference_response is not None:
            return state, ()
        response = _with_own_call_ids(step.number, event.response)
        step = replace(step, inference_response=response)
        state = state.with_execution(event.at, usage=state.usage + response.usage, current_step=step)
        used_up = state.budget.max_tokens is not None and state.usage.total_tokens >= state.budget.max_tokens
        if used_up and (response.tool_calls or response.finish_reason == "length"):
            state = _signalled(state, _token_limit(state, event.at), event.at)
            return _archive(state, _cancelled(state, step, event.at), event.at)

        refused: list[ToolExecution] = []
        commands: list[Command] = []
        for index, call in enumerate(response.tool_calls):
            problem = self._problem_with(call, index)
            if problem is None:
                commands.append(CallTool(step_number=step.number, index=index, call=call))
            else:
                refused.append(
                    ToolExecution(
                        id=named_id(state.running.execution_id, call_name(step.number, index)),
                        call=call,
                        outcome=Outcome.FAILED,
                        error=problem,
                        started_at=event.at,
                        completed_at=event.at,
                    )
                )
        step = replace(step, tool_executions=tuple(refused))
        if not commands:
            return _archive(state, step, event.at)
        return state.with_execution(event.at, current_step=step), tuple(commands)

    def _problem_with(self, call: ToolCall, index: int) -> ErrorRecord | None:
        """Return why `call` must not run, if so. Its arguments are checked against their schema by the tool."""
        if call.malformed is not None:
            return ErrorRecord(type="InvalidArguments", message=call.malformed, source=call.name)
        if call.name not in self.tools:
            text = f"the model asked for the tool {call.name!r}, {nearest(call.name, self.tools)}"
            return ErrorRecord(type="UnknownTool", message=text, source=call.name)
        if index >= CALLS_PER_STEP_MAX:
            text = f"not run: at most {CALLS_PER_STEP_MAX} calls of one step run; ask again for the rest"
            return ErrorRecord(type="TooManyCalls", message=text, source=call.name)
        return None


def _begin(state: AgentState, event: ExecutionStarted) -> Transition:
    if state.status is ExecutionStatus.IN_PROGRESS:
        raise ValueError("the agent has an execution in progress; finish or drop it before beginning another")
    execution = ExecutionState(
        execution_id=event.execution_id,
        status=ExecutionStatus.IN_PROGRESS,
        started_at=event.at,
        budget=event.budget,
    )
    state = state.changed(event.at, execution=execution, execution_count=state.execution_count + 1)
    tags = {"execution_id": event.execution_id, "agent_id": state.agent_id}
    state = state.with_messages(event.at, *(message.tagged(**tags) for message in event.messages))
    state, commands = _next_step(state, event.at)
    strikes_at = event.budget.ends_at(event.at)
    if strikes_at is None or state.status.is_terminal:
        return state, commands
    return state, (StartTimer(fires_at=strikes_at), *commands)


def _next_step(state: AgentState, at: datetime) -> Transition:
    """Begin a step, unless a limit forbids it."""
    reached = _limits_reached(state, at)
    for signal in reached:
        state = _signalled(state, signal, at)
    if reached:
        return _finish(state, at)
    number = state.step_count + 1
    step = AgentStep(
        id=step_id(state.running.execution_id, number),
        number=number,
        input_length=len(state.messages),
    )
    state = state.with_execution(at, current_step=step, current_step_started_at=at)
    return state, (CallModel(step_number=number, max_output_tokens=_output_clamp(state)),)


def _tool_ended(state: AgentState, step: AgentStep, event: ToolReturned | ToolFailed) -> Transition:
    place = next((pair for pair in step.unanswered_calls if pair[1].id == event.call_id), None)
    if place is None:
        return state, ()
    index, call = place
    share = STEP_RESULTS_BYTES_MAX // len(step.requested_tool_calls)
    ended = ToolExecution(
        id=named_id(state.running.execution_id, call_name(step.number, index)),
        call=call,
        outcome=Outcome.FAILED if isinstance(event, ToolFailed) else Outcome.SUCCEEDED,
        result=None if isinstance(event, ToolFailed) else clamped_json(event.result, share),
        error=_within(event.error, share) if isinstance(event, ToolFailed) else None,
        started_at=event.started_at,
        completed_at=event.at,
    )
    step = _with_executions(step, ended)
    if any(True for _ in step.unanswered_calls):
        return state.with_execution(event.at, current_step=step), ()
    return _archive(state, step, event.at)


def _within(error: ErrorRecord, bytes_max: int) -> ErrorRecord:
    return replace(error, message=clamped_json(error.message, bytes_max))


def _archive(state: AgentState, step: AgentStep, at: datetime) -> Transition:
    """Complete `step`: say its messages, keep it, and decide whether to go on."""
    should_stop = state.running.continuation.should_stop(tools_requested=bool(step.requested_tool_calls))
    state = _recorded(state, step, at)
    return _finish(state, at) if should_stop else _next_step(state, at)


def _recorded(state: AgentState, step: AgentStep, at: datetime) -> AgentState:
    """Move `step` from under way to archived."""
    execution = state.running
    tags = {"step_id": step.id, "execution_id": execution.execution_id, "agent_id": state.agent_id}
    trace = {} if step.step_type == "final_response" else {"is_trace": True}
    state = state.with_messages(at, *(message.tagged(**tags, **trace) for message in step.output_messages))
    done = StepExecution(
        step=step,
        started_at=execution.current_step_started_at or at,
        completed_at=at,
        continuation=execution.continuation,
    )
    return state.with_execution(
        at,
        step_executions=execution.step_executions.append(done),
        continuation=replace(execution.continuation, continuation_requested=False),
        current_step=None,
        current_step_started_at=None,
    )


def _abort(state: AgentState, step: AgentStep, at: datetime) -> Transition:
    """End at once. A model call that never answered leaves its step under way: it did not complete."""
    if step.inference_response is not None:
        state = _recorded(state, _cancelled(state, step, at), at)
    state, commands = _finish(state, at)
    return state, (CancelInFlight(), *commands)


def _failed(state: AgentState, step: AgentStep, error: ErrorRecord, at: datetime) -> Transition:
    return _finish(_recorded(_with_error(state, error, at), step, at), at)


def _finish(state: AgentState, at: datetime) -> Transition:
    """Give the execution its final status (SPEC section 2, first match)."""
    execution = state.running
    highest = execution.continuation.highest
    if execution.error is not None:
        status = ExecutionStatus.FAILED
    elif highest is not None and highest.reason.forced:
        status = ExecutionStatus.STOPPED
    else:
        status = ExecutionStatus.COMPLETED
    return state.with_execution(at, status=status, completed_at=at), (Finish(),)


def _limits_reached(state: AgentState, at: datetime) -> tuple[StopSignal, ...]:
    """Return a signal for every limit that forbids another step."""
    budget = state.budget
    found: list[StopSignal] = []
    if budget.max_steps is not None and state.step_count >= budget.max_steps:
        found.append(_limit(StopReason.STEPS_LIMIT, f"max_steps {budget.max_steps} reached", at))
    if _tokens_spent(state):
        found.append(_token_limit(state, at))
    strikes_at = budget.ends_at(state.running.started_at)
    if strikes_at is not None and at >= strikes_at:
        found.append(_time_limit(budget, at))
    return tuple(found)


def _tokens_spent(state: AgentState) -> bool:
    left = _tokens_left(state)
    return left is not None and left <= 0


def _tokens_left(state: AgentState) -> int | None:
    """Return how many tokens the budget has left for another model call's own words, none when it is unlimited.

    A conversation only grows, so the next call's input is at least what the last one's was.
    """
    limit = state.budget.max_tokens
    return None if limit is None else limit - state.usage.total_tokens - state.last_step_usage.input_tokens


def _token_limit(state: AgentState, at: datetime) -> StopSignal:
    limit, used = state.budget.max_tokens or 0, state.usage.total_tokens
    room = "reached" if used >= limit else f"leaves no room for another call after {used}"
    return _limit(StopReason.TOKEN_LIMIT, f"max_tokens {limit} {room}", at)


def _time_limit(budget: ExecutionBudget, at: datetime) -> StopSignal:
    by_deadline = budget.max_seconds is None or (budget.deadline is not None and at >= budget.deadline)
    text = f"deadline {budget.deadline} passed" if by_deadline else f"max_seconds {budget.max_seconds:g} reached"
    return _limit(StopReason.TIME_LIMIT, text, at)


def _limit(reason: StopReason, text: str, at: datetime) -> StopSignal:
    return StopSignal(reason=reason, message=text, source="budget", at=at)


def _output_clamp(state: AgentState) -> int | None:
    """The most the next answer may hold: the definition's own limit and what the budget has left."""
    own = state.llm.max_output_tokens if state.llm else None
    left = _tokens_left(state)
    return min((limit for limit in (own, left) if limit is not None), default=None)


def _signalled(state: AgentState, signal: StopSignal, at: datetime) -> AgentState:
    continuation = state.running.continuation
    if signal.reason is StopReason.USER_REQUESTED and len(continuation.stop_signals) >= STOP_SIGNALS_MAX:
        return state  # a limit's or an error's signal always counts; there are few of them
    return state.with_execution(at, continuation=continuation.with_signal(signal))


def _with_error(state: AgentState, error: ErrorRecord, at: datetime) -> AgentState:
    text = f"{error.type}: {error.message}"[:REASON_CHARS_MAX]
    signal = StopSignal(reason=StopReason.ERROR, message=text, source=error.source, at=at)
    return _signalled(state, signal, at).with_execution(at, error=error)


def _with_executions(step: AgentStep, *ended: ToolExecution) -> AgentStep:
    """Return the step with `ended` added; executions stand in the order the model asked, whoever came first."""
    order = {call.id: index for index, call in enumerate(step.requested_tool_calls)}
    both = sorted((*step.tool_executions, *ended), key=lambda execution: order[execution.call.id])
    return replace(step, tool_executions=tuple(both))


def _cancelled(state: AgentState, step: AgentStep, at: datetime) -> AgentStep:
    """Return the step with every call that has not ended marked cancelled, so that each has its one answer."""
    execution = state.running
    why = execution.continuation.describe()
    started = execution.current_step_started_at or at
    cancelled = (
        ToolExecution(
            id=named_id(execution.execution_id, call_name(step.number, index)),
            call=call,
            outcome=Outcome.CANCELLED,
            error=ErrorRecord(type="Cancelled", message=f"the run was stopped ({why})", source=call.name),
            started_at=started,
            completed_at=at,
        )
        for index, call in step.unanswered_calls
    )
    return _with_executions(step, *cancelled)


def _with_own_call_ids(step_number: int, response: InferenceResponse) -> InferenceResponse:
    """Give every call an id that is unique in its step; providers leave them empty or repeat them."""
    seen: set[str] = set()
    calls: list[ToolCall] = []
    for index, call in enumerate(response.tool_calls[:CALLS_KEPT_MAX]):
        usable = call.id if call.id and call.id not in seen else f"call_{step_number}_{index}"
        while usable in seen:
            usable += "_"
        seen.add(usable)
        calls.append(call if usable == call.id else replace(call, id=usable))
    return replace(response, tool_calls=tuple(calls))


def user_message(text: str) -> Message:
    """Return what a person said."""
    return Message(role="user", content=text)
