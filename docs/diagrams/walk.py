"""Walks through every state that the loop can reach in two steps, and notes what led where. Draws nothing.

The agent that walks has hooks at every place, a tool that waits for approval, and a summary due before its second step,
so that it passes every place there is. In each state it meets everything that can happen there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, get_args
from uuid import UUID

from holdfast import AgentDefinition, AgentState, Changes, ExecutionBudget, ToolCall, Usage
from holdfast.core.agent.hooks import AROUND_TOOLS, HookRun, HookTraits, Trigger
from holdfast.core.agent.initial_state import new_agent
from holdfast.core.agent.policies import ApprovalRule, ContextPolicy, ErrorPolicy, SummaryPolicy
from holdfast.core.base.frozen import replace
from holdfast.core.conversation.input_requests import InputAnswer, InputRequest
from holdfast.core.conversation.messages import user_message
from holdfast.core.conversation.steps import CallStage, ErrorRecord, InferenceResponse, OpenCall
from holdfast.core.conversation.stop_reasons import StopReason, StopSignal
from holdfast.core.conversation.verdicts import Verdict
from holdfast.core.loop.agent_loop import AgentLoop, NextState
from holdfast.core.loop.commands import CallModel, Command, Emit, Finish, RunHooks, SummariseBuffer
from holdfast.core.loop.events import (
    ApprovalDecided,
    ApprovalExpired,
    BufferSummarised,
    DriverFailed,
    Event,
    ExecutionStarted,
    HooksReturned,
    InputAnswered,
    InputExpired,
    InputNeeded,
    ModelAnswered,
    ModelCancelled,
    ModelFailed,
    StopRequested,
    SummaryFailed,
    TimerFired,
    ToolFailed,
    ToolReturned,
)
from holdfast.core.tools.tool_traits import ToolTraits

BEGIN: Final = "ExecutionStarted"
CALLS: Final = "the tool calls"
END: Final = "Finish"
REQUESTED: Final = "requested"

NOON: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER: Final = NOON + timedelta(seconds=5)
AFTER_ALL: Final = NOON + timedelta(seconds=60)
STEPS_WALKED: Final = 2
ID: Final = str(UUID(int=1))

STOP: Final = "a stop signal, a limit"
STOP_NOW: Final = "a stop, the time limit"
FAULT: Final = "a fault of the driver"
RAISES: Final = "a hook raises"
FATAL: Final = "an error that is fatal"
FAILS: Final = "the model fails"
TOO_LATE: Final = "a stop after an error that is fatal"
ANYWHERE: Final = frozenset({STOP_NOW, FAULT, RAISES, TOO_LATE})
"""What can happen at any place, and to every call at once."""

WORDS: Final = {
    Trigger.AFTER_INFERENCE: ("no tool is asked for", "tools are asked for"),
    Trigger.AFTER_STEP: ("nothing more to do", "more to do"),
}
"""What decides where no hook does: whether the model asked for tools."""

QUESTION: Final = InputRequest(key="page", message="Allow access", url="https://example.com/consent")

TURN: Final = "its turn has come"

LOOP: Final = AgentLoop(
    AgentDefinition(
        name="walker",
        sequential=True,
        approvals=(ApprovalRule(tools=("refund",)),),
        context=ContextPolicy(summary=SummaryPolicy(above_input_tokens=1, keep_messages=0)),
    ),
    tools={"refund": ToolTraits(name="refund")},
    hooks=tuple(HookTraits(name=trigger, trigger=trigger) for trigger in Trigger if trigger is not Trigger.INPUT_GUARD),
)
"""One place follows another in it; the input guard, which runs beside a model call, is not drawn."""

Edges = dict[tuple[str, str], list[str]]
"""Which place follows which, and what led there."""


@dataclass(frozen=True)
class Notes:
    """What a walk has seen: the loop's places, the stages of its tool calls, its statuses."""

    places: Edges = field(default_factory=Edges)
    calls: Edges = field(default_factory=Edges)
    statuses: Edges = field(default_factory=Edges)


def walked() -> Notes:
    """Return what leads where, from a new agent on, under either policy for errors."""
    notes = Notes()
    for policy in get_args(ErrorPolicy):
        _walk(notes, dataclasses.replace(LOOP, definition=replace(LOOP.definition, errors=policy)))
    return notes


def _walk(notes: Notes, loop: AgentLoop) -> None:
    begin = ExecutionStarted(ID, (user_message("Pay me back."),), ExecutionBudget(max_seconds=30), NOON)
    fresh = new_agent(loop.definition, agent_id=ID, at=NOON)
    waiting, seen = [(fresh, BEGIN)], set[object]()
    while waiting:
        state, place = waiting.pop()
        for said, event in (("", begin),) if place in (BEGIN, END) else happening(state, place):
            after, commands = stepped(loop, state, event)
            reached = place_after(commands, after, place)
            late = said == STOP_NOW and after.running.error is not None  # a stop does not take an error back
            label = TOO_LATE if late else said
            _note(notes, (state, place), (after, reached), label)
            _note_calls(notes, (state, after), event, label)
            key = (reached, _essence(after))
            if key not in seen and after.step_count < STEPS_WALKED:
                seen.add(key)
                waiting.append((after, reached))


def stepped(loop: AgentLoop, state: AgentState, event: Event) -> NextState:
    """Step, and let what that cancels report at once: a grace is no place of its own."""
    after, commands = loop.step(state, event)
    if after.execution is None or not after.execution.cancelling:
        return after, commands
    after, more = loop.step(after, ModelCancelled(None, event.at))
    return after, (*commands, *more)


def place_after(commands: tuple[Command, ...], state: AgentState, before: str) -> str:
    """Return where the loop is: what it has asked for, or the calls it waits for."""
    for command in commands:
        match command:
            case RunHooks(context=context) if context.call is None:
                return context.trigger
            case CallModel() | SummariseBuffer() | Finish():
                return type(command).__name__
            case Emit() | _:
                pass
    return CALLS if state.execution and state.execution.open_calls else before


def happening(state: AgentState, place: str) -> Iterator[tuple[str, Event]]:
    """Yield all that can happen in `state`, each with what a reader calls it."""
    yield STOP_NOW, StopRequested(StopSignal(reason=StopReason.USER_REQUESTED, at=LATER), "now", LATER)
    yield STOP_NOW, TimerFired(AFTER_ALL)
    yield FAULT, DriverFailed(_error(), LATER)
    if place in set(Trigger):
        yield from _hooks(state, Trigger(place))
    elif place == "CallModel":
        yield "answered", ModelAnswered(_answer(), LATER)
        yield "answered", ModelAnswered(_answer("refund", "refund", "unknown"), LATER)
        yield FAILS, ModelFailed(_error(), LATER)
    elif place == "SummariseBuffer":
        done = STOP if state.stop_signal else "summarised, or not"
        yield done, BufferSummarised("They want money.", Usage(), LATER)
        yield "summarised, or not", SummaryFailed(_error(), LATER)
    else:
        for each in state.running.open_calls:
            yield from _call(state, each)


def _hooks(state: AgentState, trigger: Trigger, call_id: str | None = None) -> Iterator[tuple[str, Event]]:
    failed = FATAL if state.running.error else ""
    quiet = failed or (STOP if state.stop_signal else "")
    step = state.running.current_step
    if trigger in WORDS and step is not None:
        quiet = quiet or WORDS[trigger][bool(step.requested_tool_calls)]
    if trigger is Trigger.AFTER_STEP:
        yield failed or "a hook asks to go on", _hooked(trigger, None, Changes(go_on=True))
    if trigger not in AROUND_TOOLS:
        yield failed or STOP, _hooked(trigger, None, Changes(stop="enough"))
    yield quiet, _hooked(trigger, call_id, None)
    yield RAISES, HooksReturned(trigger, call_id, (HookRun(name=trigger, error=_error()),), LATER)


def _hooked(trigger: Trigger, call_id: str | None, changes: Changes | None) -> HooksReturned:
    return HooksReturned(trigger, call_id, (HookRun(name=trigger, changes=changes),), LATER)


def _call(state: AgentState, each: OpenCall) -> Iterator[tuple[str, Event]]:
    name = each.call.id
    match each.stage:
        case CallStage.WAITING:
            pass
        case CallStage.BEFORE_TOOL:
            yield from _hooks(state, Trigger.BEFORE_TOOL, name)
            yield "a hook blocks it", _hooked(Trigger.BEFORE_TOOL, name, Changes(block="no"))
        case CallStage.APPROVAL:
            yield "approved, or edited", ApprovalDecided(name, Verdict(decision="approve"), LATER)
            yield "approved, or edited", ApprovalDecided(name, Verdict(decision="edit", arguments={}), LATER)
            yield "denied, or nobody decided", ApprovalDecided(name, Verdict(decision="deny"), LATER)
            yield "denied, or nobody decided", ApprovalExpired(name, LATER)
        case CallStage.INPUT:
            yield "answered", InputAnswered(name, InputAnswer(), LATER)
            yield "nobody answered", InputExpired(name, LATER)
        case CallStage.RUNNING:
            yield "its server asks a person", InputNeeded(name, "shop", (QUESTION,), 60.0, NOON, LATER)
            yield "", ToolReturned(name, "paid", NOON, LATER)
            yield "", ToolFailed(name, _error(), NOON, LATER)
        case CallStage.AFTER_TOOL:
            yield from _hooks(state, Trigger.AFTER_TOOL, name)


def _error() -> ErrorRecord:
    return ErrorRecord(type="Fault", message="it broke", source="walk")


def _answer(*tools: str) -> InferenceResponse:
    calls = tuple(ToolCall(id=f"call_{index}", name=name) for index, name in enumerate(tools))
    return InferenceResponse(text="So be it.", tool_calls=calls, usage=Usage(input_tokens=9, output_tokens=1))


def _note(notes: Notes, before: tuple[AgentState, str], after: tuple[AgentState, str], label: str) -> None:
    (earlier, place), (later, reached) = before, after
    if place not in (END, reached):
        _add(notes.places, place, reached, label)
    if earlier.status is not later.status:
        _add(notes.statuses, earlier.status, later.status, "")


def _note_calls(notes: Notes, states: tuple[AgentState, AgentState], event: Event, label: str) -> None:
    was, now = map(stages, states)
    moved: str | None = getattr(event, "call_id", None)
    for name, reached in now.items():
        before = was.get(name, REQUESTED)
        if before != reached:
            itself = moved is None or name.startswith(f"{moved.rpartition('_')[2]} ")
            _add(notes.calls, before, reached, label if itself or label in ANYWHERE else TURN)


def stages(state: AgentState) -> dict[str, str]:
    """Return how far each call of any step has come: its stage, or its outcome."""
    if state.execution is None:
        return {}
    found = {f"{call.index} of {state.step_count}": str(call.stage) for call in state.running.open_calls}
    steps = [*state.steps, *((state.running.current_step,) if state.running.current_step else ())]
    for place, step in enumerate(steps):
        asked = [call.id for call in step.requested_tool_calls]
        for ended in step.tool_executions:
            found[f"{asked.index(ended.call.id)} of {place}"] = str(ended.outcome)
    return found


def _add(edges: Edges, before: str, after: str, label: str) -> None:
    labels = edges.setdefault((before, after), [])
    if label not in labels:
        labels.append(label)


def _essence(state: AgentState) -> object:
    """Return what of a state decides about what can follow."""
    running = state.running
    step = running.current_step
    return (
        state.step_count,
        tuple(sorted(stages(state).items())),
        tuple(each.ended.outcome for each in running.open_calls if each.ended is not None),
        running.continuation.highest is not None,
        running.error is not None,
        step is not None and step.inference_response is not None,
        step is not None and bool(step.requested_tool_calls),
        running.summary_under_way,
        state.status,
    )
