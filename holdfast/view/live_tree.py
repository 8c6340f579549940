"""`LiveView`: what a watcher sees of a tree of runs, as a value: `after(view, event)` is the next one.

Pure: it asks nobody, draws nothing and knows no clock but that of the events. Of texts and results it holds what a
screen shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from dataclasses import replace as with_changes
from types import MappingProxyType
from typing import Final

from holdfast.client.watch_events import (
    AttemptFailed,
    RateLimitAwaited,
    TextDelta,
    ToolProgressed,
    Watched,
    WorkerAwaited,
)
from holdfast.core.agent.execution_state import ExecutionStatus, call_name, named_id, step_id
from holdfast.core.agent.state import AgentState
from holdfast.core.base.bounds import ERROR_CHARS_MAX, LIVE_TEXT_CHARS_MAX
from holdfast.core.base.frozen import replace
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.conversation.steps import AgentStep, CallStage, Outcome, ToolExecution
from holdfast.core.tools.code_mode import RUN_CODE, script_call_id
from holdfast.core.wire import execution_events
from holdfast.view.run_view import CallView, RunView, StepView, answered_by, ended_call, step_view

LIVE_STEPS_MAX: Final = 50
"""The most steps of a run that a live view holds, its latest; of those before it knows how many they were."""

LIVE_ROOTS_MAX: Final = 50
"""The most runs at the root whose order a live view holds, the latest: a session has one for each turn."""

LIVE_RUNS_MAX: Final = 2_000
"""The most runs of a tree that a live view holds: beyond them the one that ended first goes, else the oldest."""

LIVE_RESULT_CHARS_MAX: Final = 500
"""How much of a call's result, or of an error, a live view holds: it shows one line."""

KNOWN_AT_END: Final = (
    *(
        "kind",
        "model",
        "started_at",
        "completed_at",
        "seconds",
        "errors",
        "usage",
        "cost",
        "unpriced",
        "asking",
        "call_changed",
        "provider_ran",
    ),
)
"""What a step's end says of it; its text and its calls, with what has come of them, have been told before."""

NO_RUNS: Final[Mapping[str, RunView]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class LiveView:
    """Runs by their ids, and the ids of those at the root in the order they began: a session has several, a run one.

    Of a run, `usage` and `cost` are what was reported when its last step was complete; of the root, what its worker
    said of the cost since.
    """

    runs: Mapping[str, RunView] = field(default_factory=lambda: NO_RUNS)
    roots: tuple[str, ...] = ()

    @property
    def root(self) -> RunView | None:
        """The run that is followed: the latest at the root, with all that it and the runs held have used so far."""
        run = self.run(self.roots[-1]) if self.roots else None
        if run is None:
            return None
        below = (each for each in self.runs.values() if self._below(each, run.execution_id))
        return with_changes(run, steps_used=sum(each.step_count or 0 for each in below))

    def run(self, execution_id: str | None) -> RunView | None:
        """Return that run with what its step under way has used, as far as anybody has said so; none if not known."""
        run = self.runs.get(execution_id or "")
        if run is None:
            return None
        under_way = [each for each in run.steps if each.completed_at is None]
        usage = sum((each.usage for each in under_way), run.usage)
        return with_changes(run, usage=usage, cost=max(run.cost + sum(each.cost for each in under_way), run.cost_said))

    @property
    def waiting(self) -> tuple[tuple[RunView, CallView], ...]:
        """The calls that wait for a person, with their runs."""
        return tuple(
            (run, call)
            for run in self.runs.values()
            for step in run.steps[-1:]
            for call in step.calls
            if call.outcome in (CallStage.APPROVAL, CallStage.INPUT)
        )

    def _below(self, run: RunView, root_id: str) -> bool:
        while run.execution_id != root_id:
            parent = self.runs.get(run.parent or "")
            if parent is None:
                return False
            run = parent
        return True


def headed(view: LiveView, head: AgentState) -> LiveView:
    """Return the view with what the worker of its latest root has said; the same view where it said it of another."""
    run, execution = view.runs.get(view.roots[-1]) if view.roots else None, head.execution
    if run is None or execution is None or execution.execution_id != run.execution_id:
        return view
    limits = {name: getattr(execution, name) for name in ("budget", "paused_seconds", "paused_at")}
    unpriced = execution.unpriced or run.unpriced
    return _with(
        view,
        with_changes(run, **limits, unpriced=unpriced, cost_said=max(run.cost_said, execution.cost), todos=head.todos),
    )


def after(view: LiveView, event: Watched) -> LiveView:
    """Return what is to be seen once this has happened."""
    if isinstance(event, execution_events.AgentExecutionStarted):
        return _started(view, event)
    run = view.runs.get(event.execution_id) or RunView(execution_id=event.execution_id)
    if isinstance(event, execution_events.SubagentSpawned):
        child_id = named_id(event.execution_id, call_name(event.step_number, event.index))
        child = view.runs.get(child_id) or RunView(execution_id=child_id)
        view = _with(view, with_changes(child, agent=event.agent, parent=event.execution_id))
        run = _called(run, event, event.call_id, lambda call: replace(call, execution_id=child_id))
    return _with(view, _run_after(run, event))


def _with(view: LiveView, run: RunView) -> LiveView:
    runs = {**view.runs, run.execution_id: run}
    if len(runs) > LIVE_RUNS_MAX:
        spare = [each for id_, each in runs.items() if id_ not in (run.execution_id, *view.roots[-1:])]
        ended = [(each.completed_at, each.execution_id) for each in spare if each.completed_at is not None]
        del runs[min(ended)[1] if ended else spare[0].execution_id]
    return with_changes(view, runs=MappingProxyType(runs))


def _started(view: LiveView, event: execution_events.AgentExecutionStarted) -> LiveView:
    previous = view.runs.get(event.execution_id)
    run = previous or RunView(execution_id=event.execution_id)
    began = with_changes(run, agent=event.agent, status=ExecutionStatus.IN_PROGRESS, why="")
    view = _with(view, with_changes(began, started_at=run.started_at or event.at, completed_at=None))
    if previous is not None:
        return view
    # nobody has spawned it that we know of: it is a root
    return with_changes(view, roots=(*view.roots, event.execution_id)[-LIVE_ROOTS_MAX:])


def _run_after(run: RunView, event: Watched) -> RunView:  # noqa: C901, PLR0912  # one case per kind
    match event:
        case TextDelta():
            return _step(run, event.step_number, lambda step: _texted(step, event))
        case AttemptFailed(step_number=0):
            return with_changes(run, why=event.message[:LIVE_RESULT_CHARS_MAX])
        case AttemptFailed():
            return _retried(run, event)
        case ToolProgressed():
            return _called(run, event, event.call_id, lambda call: replace(call, progress=event.line))
        case WorkerAwaited():
            progress = "" if event.over else event.line
            return _called(run, event, event.call_id, lambda call: replace(call, progress=progress))
        case RateLimitAwaited():
            return _step(run, event.step_number, lambda step: _waiting(step, event))
        case execution_events.AgentStepStarted():
            return _stepped(run, event)
        case execution_events.TodosChanged():
            return with_changes(run, todos=event.todos)
        case execution_events.AnswerJudged():
            return _step(run, event.step_number, lambda step: _beside(step, event.judgement.line))
        case execution_events.ModelFellBack():
            return _step(run, event.step_number, lambda step: _fallen_back(step, event.fallback.line))
        case execution_events.AgentWentBack():
            return _step(run, event.step_back.from_step, lambda step: _beside(step, event.step_back.line))
        case execution_events.AgentHandedOff():
            return with_changes(run, agent=event.to_agent)
        case execution_events.InferenceRequestStarted():
            return _step(_stepped(run, event), event.step_number, lambda step: replace(step, asking=True))
        case execution_events.InferenceResponseReceived():
            return _step(_stepped(run, event), event.step_number, lambda step: _answered(step, event))
        case execution_events.HookExecuted() if event.answer is not None:
            revised = {"text": event.answer[-LIVE_TEXT_CHARS_MAX:], "revised_by": event.hook}
            return _step(run, event.step_number, lambda step: replace(step, **revised))
        case execution_events.ToolCallStarted():
            running = {"outcome": CallStage.RUNNING, "started_at": event.at}
            return _called(run, event, event.call.id, lambda call: _as_now(call, event.call, **running))
        case execution_events.ApprovalRequested():
            waiting = {"outcome": CallStage.APPROVAL, "started_at": event.at, "expires_at": event.expires_at}
            return _called(run, event, event.call.id, lambda call: _as_now(call, event.call, **waiting))
        case execution_events.ApprovalResolved():
            decided = {"outcome": CallStage.WAITING, "approval": event.approval}
            return _called(run, event, event.call_id, lambda call: _as_now(call, event.call, **decided))
        case execution_events.InputRequested():
            asking = {"outcome": CallStage.INPUT, "expires_at": event.expires_at, "progress": event.request.message}
            return _called(run, event, event.call.id, lambda call: _as_now(call, event.call, **asking))
        case execution_events.InputResolved():
            going_on = {"outcome": CallStage.RUNNING, "expires_at": None, "progress": ""}
            return _called(run, event, event.call_id, lambda call: replace(call, **going_on))
        case execution_events.ToolCallCompleted() | execution_events.ToolCallBlocked():
            ended = event.tool_execution
            return _called(run, event, ended.call.id, lambda call: _ended(call, ended))
        case execution_events.AgentStepCompleted():
            done = step_view(event.step, event.started_at, event.at)
            complete = {name: getattr(done, name) for name in KNOWN_AT_END}
            stepped = _step(_stepped(run, event), event.step_number, lambda step: replace(step, **complete))
            return with_changes(stepped, step_count=max(run.step_count or 0, event.step_number))
        case execution_events.TokenUsageReported():
            return with_changes(run, usage=event.total, cost=event.total_cost, unpriced=event.total_unpriced)
        case execution_events.StopSignalReceived():
            return with_changes(run, stop_reason=event.signal.reason, why=event.signal.message[:ERROR_CHARS_MAX])
        case execution_events.AgentExecutionCompleted():
            over = with_changes(_over(run, event), status=event.status, answer=event.answer)
            why = event.message[:ERROR_CHARS_MAX]
            return with_changes(over, stop_reason=event.reason, why=why) if event.reason.forced else over
        case execution_events.AgentExecutionFailed():
            why = ": ".join(filter(None, (event.error.type, event.error.message[:ERROR_CHARS_MAX])))
            return with_changes(_over(run, event), status=ExecutionStatus.FAILED, stop_reason=None, why=why)
        case _:
            return run


# --- runs


def _over(run: RunView, event: execution_events.Observed) -> RunView:
    """Return the run at its end: calls that have no end by now were cancelled."""

    def closed(call: CallView) -> CallView:
        return replace(call, outcome=Outcome.CANCELLED) if call.is_open else call

    steps = tuple(replace(each, asking=False, calls=tuple(map(closed, each.calls))) for each in run.steps)
    return with_changes(run, completed_at=event.at, steps=steps)


def _stepped(run: RunView, event: execution_events.Observed) -> RunView:
    """Return the run with this step, which can have begun before we were told."""
    if any(each.number == event.step_number for each in run.steps[-1:]):
        return run
    new = AgentStep(id=step_id(run.execution_id, event.step_number), number=event.step_number, input_length=0)
    step = replace(step_view(new, event.at, None), asking=False)
    return with_changes(run, steps=(*run.steps, step)[-LIVE_STEPS_MAX:])


def _step(run: RunView, number: int, change: Callable[[StepView], StepView]) -> RunView:
    return with_changes(run, steps=tuple(change(each) if each.number == number else each for each in run.steps))


# --- steps


def _retried(run: RunView, event: AttemptFailed) -> RunView:
    """Return the run after an attempt that failed; of several in a short time only the latest is told."""
    before = next((each.attempt for each in run.steps if each.number == event.step_number), 1)
    why = event.message[:LIVE_RESULT_CHARS_MAX] or "the attempt brought no answer"
    failed = {"text": "", "attempt": event.attempt + 1, "retry": why, "retry_at": event.next_at}
    retries = run.retries + max(1, event.attempt + 1 - before)
    return with_changes(_step(run, event.step_number, lambda step: replace(step, **failed)), retries=retries)


def _texted(step: StepView, delta: TextDelta) -> StepView:
    return replace(step, text=(delta.text if delta.skipped else step.text + delta.text)[-LIVE_TEXT_CHARS_MAX:])


def _answered(step: StepView, event: execution_events.InferenceResponseReceived) -> StepView:
    response = event.response
    return replace(
        step,
        asking=False,
        retry="",
        retry_at=None,
        text=response.text[-LIVE_TEXT_CHARS_MAX:],
        model=answered_by(response),
        usage=response.usage,
        cost=response.cost or 0.0,
        calls=tuple(
            CallView(id=each.id, tool=each.name, arguments=each.arguments, outcome=CallStage.WAITING)
            for each in response.tool_calls
        ),
    )


def _fallen_back(step: StepView, line: str) -> StepView:
    """Return the step whose model call begins anew with another route."""
    return replace(_beside(step, line), text="", attempt=1, retry="", retry_at=None)


def _waiting(step: StepView, event: RateLimitAwaited) -> StepView:
    """Return the step whose model call waits before it is made, or does not any more."""
    line = with_changes(event, over=False).line
    if not event.over:
        return _beside(step, line)
    return replace(step, beside=tuple(each for each in step.beside if each != line[:LIVE_RESULT_CHARS_MAX]))


def _beside(step: StepView, line: str) -> StepView:
    return replace(step, beside=(*step.beside, line[:LIVE_RESULT_CHARS_MAX]))


# --- calls


def _called(
    run: RunView,
    event: execution_events.Observed | ToolProgressed | WorkerAwaited,
    call_id: str,
    change: Callable[[CallView], CallView],
) -> RunView:
    def changed(step: StepView) -> StepView:
        step = _with_nested(step, call_id)
        return replace(step, calls=tuple(change(each) if each.id == call_id else each for each in step.calls))

    return _step(run, event.step_number, changed)


def _with_nested(step: StepView, call_id: str) -> StepView:
    """Return the step with a call that one of its scripts makes: its id is that of the script's call and a number."""
    parent_id = script_call_id(call_id)
    if any(each.id == call_id for each in step.calls):
        return step
    if not any(each.id == parent_id and each.tool == RUN_CODE for each in step.calls):
        return step
    new = CallView(id=call_id, tool="", arguments={}, outcome=CallStage.WAITING, parent_call_id=parent_id)
    place = max(n for n, each in enumerate(step.calls, 1) if parent_id in (each.id, each.parent_call_id))
    return replace(step, calls=(*step.calls[:place], new, *step.calls[place:]))


def _as_now(view: CallView, call: ToolCall, **changes: object) -> CallView:
    """Return the view of a call that hooks or a person may have changed, at another stage."""
    return replace(view, tool=call.name, arguments=call.arguments, **{"expires_at": None, **changes})


def _ended(call: CallView, done: ToolExecution) -> CallView:
    view, error = ended_call(done), done.error
    return replace(
        view,
        started_at=call.started_at or view.started_at,
        result=(view.result or "")[:LIVE_RESULT_CHARS_MAX],
        error=error and replace(error, message=error.message[:LIVE_RESULT_CHARS_MAX]),
        execution_id=call.execution_id,
    )
