"""What a watcher sees of a tree of runs at a moment, as a value: `after(view, what happened)` is the next one.

Pure: it asks nobody, draws nothing and knows no clock but that of the events. All texts are as models and tools gave
them; whoever shows them makes them safe.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from holdfast.client.watch_events import AttemptFailed, TextDelta, Watched
from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.execution_state import ExecutionStatus, call_name, named_id
from holdfast.core.agent.state import AgentState
from holdfast.core.base.bounds import (
    ERROR_CHARS_MAX,
    LIVE_RESULT_CHARS_MAX,
    LIVE_RUNS_MAX,
    LIVE_STEPS_KEPT,
    LIVE_TEXT_CHARS_MAX,
)
from holdfast.core.conversation.decision_text import decision_text, marked
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.conversation.steps import Outcome, ToolExecution
from holdfast.core.wire import execution_events

Stage: TypeAlias = Literal["asked", "waiting", "running"] | Outcome
"""How far a call is: asked for by the model, waiting for a person, running, or how it ended."""


@dataclass(frozen=True, slots=True)
class CallView:
    """One tool call of a step. `told` is the beginning of its result or error."""

    call: ToolCall
    arguments: str
    """The beginning of its arguments, as `name=value, …`."""
    stage: Stage = "asked"
    started_at: datetime | None = None
    ended_at: datetime | None = None
    told: str = ""
    expires_at: datetime | None = None
    digest: str = ""
    """Binds a decision to this call while it waits for a person."""
    execution_id: str | None = None
    """The run of the subagent that the call has started."""
    decided: str = ""
    """What a person has decided about it."""

    @property
    def is_open(self) -> bool:
        """Whether it has no end yet."""
        return not isinstance(self.stage, Outcome)


@dataclass(frozen=True, slots=True)
class StepView:
    """One step. `text` is the end of the model's answer as far as it came, `skipped` whether more came before."""

    number: int
    started_at: datetime
    ended_at: datetime | None = None
    asking: bool = False
    """Whether the model is being asked."""
    attempt: int = 1
    retry: str = ""
    """Why the attempt before this one failed."""
    retry_at: datetime | None = None
    """When this attempt begins, where it had not begun then."""
    text: str = ""
    skipped: bool = False
    tokens: int = 0
    estimated: bool = False
    """Whether some of them are an upper bound."""
    cost: float = 0.0
    """What the provider said of the answer's, in US dollars."""
    calls: tuple[CallView, ...] = ()


@dataclass(frozen=True, slots=True)
class RunView:
    """One execution. `step_count` counts those that are complete; the latest `steps` are kept.

    `tokens` and `cost` (US dollars) are what was reported, its subagents' included.
    """

    execution_id: str
    agent: str = ""
    parent: str | None = None
    """The run that started it as a subagent's; none for one at the root."""
    status: ExecutionStatus = ExecutionStatus.PENDING
    started_at: datetime | None = None
    ended_at: datetime | None = None
    steps: tuple[StepView, ...] = ()
    step_count: int = 0
    tokens: int = 0
    estimated: bool = False
    """Whether some of them are an upper bound."""
    cost: float = 0.0
    unpriced: tuple[str, ...] = ()
    """The models whose tokens are not in its cost."""
    cost_said: float = 0.0
    """What its worker said of the same, who counts an answer before the step is over."""
    retries: int = 0
    why: str = ""
    """Why it was stopped, or has failed; while it runs, what wants it to stop."""
    answer: str = ""

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.status.is_terminal

    @property
    def tokens_so_far(self) -> int:
        """With those of the step under way."""
        return self.tokens + sum(each.tokens for each in self.steps if each.ended_at is None)

    @property
    def cost_so_far(self) -> float:
        """With what the step under way has cost, as far as anybody has said so; in US dollars."""
        told = self.cost + sum(each.cost for each in self.steps if each.ended_at is None)
        return max(told, self.cost_said)


NO_RUNS: Final[Mapping[str, RunView]] = MappingProxyType({})
UNLIMITED: Final = ExecutionBudget()


@dataclass(frozen=True, slots=True)
class LiveView:
    """Runs by their ids, and the ids of those at the root in the order they began: a session has several, a run one.

    `budget` limits the latest root; `paused_seconds` of it do not count, nor does the time since `paused_at`.
    """

    runs: Mapping[str, RunView] = field(default_factory=lambda: NO_RUNS)
    roots: tuple[str, ...] = ()
    budget: ExecutionBudget = UNLIMITED
    paused_seconds: float = 0.0
    paused_at: datetime | None = None

    @property
    def root(self) -> RunView | None:
        """The run that is followed: the latest at the root."""
        return self.runs.get(self.roots[-1]) if self.roots else None

    @property
    def waiting(self) -> tuple[tuple[RunView, CallView], ...]:
        """The calls that wait for a person, with their runs."""
        return tuple(
            (run, call)
            for run in self.runs.values()
            for step in run.steps[-1:]
            for call in step.calls
            if call.stage == "waiting"
        )

    @property
    def steps_used(self) -> int:
        """How many steps are complete below the root, its own included: what its limit counts."""
        root = self.root
        return 0 if root is None else sum(each.step_count for each in self.runs.values() if self._below(each, root))

    def _below(self, run: RunView, root: RunView) -> bool:
        while run is not root:
            parent = self.runs.get(run.parent or "")
            if parent is None:
                return False
            run = parent
        return True


def limited(
    view: LiveView, budget: ExecutionBudget, *, paused_seconds: float = 0.0, paused_at: datetime | None = None
) -> LiveView:
    """Return the view with the limits of its latest root."""
    return replace(view, budget=budget, paused_seconds=paused_seconds, paused_at=paused_at)


def headed(view: LiveView, head: AgentState) -> LiveView:
    """Return the view with what the worker of its latest root has said; the same view where it said it of another."""
    root, said = view.root, head.execution
    if root is None or said is None or said.execution_id != root.execution_id:
        return view
    costing = replace(root, cost_said=max(root.cost_said, said.cost), unpriced=said.unpriced or root.unpriced)
    return limited(_with(view, costing), said.budget, paused_seconds=said.paused_seconds, paused_at=said.paused_at)


def after(view: LiveView, told: Watched) -> LiveView:
    """Return what is to be seen once this has happened."""
    if isinstance(told, execution_events.AgentExecutionStarted):
        return _begun(view, told)
    run = view.runs.get(told.execution_id) or RunView(told.execution_id)
    if isinstance(told, execution_events.SubagentSpawned):
        child_id = named_id(told.execution_id, call_name(told.step_number, told.index))
        child = view.runs.get(child_id) or RunView(child_id)
        view = _with(view, replace(child, agent=told.agent, parent=told.execution_id))
        run = _called(run, told, told.call_id, lambda call: replace(call, execution_id=child_id))
    return _with(view, _run_after(run, told))


def _with(view: LiveView, run: RunView) -> LiveView:
    runs = {**view.runs, run.execution_id: run}
    if len(runs) > LIVE_RUNS_MAX:
        gone = next((id_ for id_, each in runs.items() if each.is_over and id_ not in view.roots[-1:]), None)
        runs = {id_: each for id_, each in runs.items() if id_ != gone}
    return replace(view, runs=MappingProxyType(runs))


def _begun(view: LiveView, told: execution_events.AgentExecutionStarted) -> LiveView:
    known = view.runs.get(told.execution_id)
    run = known or RunView(told.execution_id, started_at=told.at)
    began = replace(run, agent=told.agent, status=ExecutionStatus.IN_PROGRESS, started_at=run.started_at or told.at)
    view = _with(view, replace(began, ended_at=None))
    if known is not None:
        return view
    # nobody has spawned it that we know of: it is a root, and the limits of the one before are not its own
    return replace(limited(view, UNLIMITED), roots=(*view.roots, told.execution_id)[-LIVE_STEPS_KEPT:])


def _run_after(run: RunView, told: Watched) -> RunView:  # noqa: C901, PLR0912  # one case per kind
    match told:
        case TextDelta():
            return _step(run, told.step_number, lambda step: _texted(step, told))
        case AttemptFailed():
            return _retried(run, told)
        case execution_events.AgentStepStarted():
            return _stepped(run, told)
        case execution_events.InferenceRequestStarted():
            return _step(_stepped(run, told), told.step_number, lambda step: replace(step, asking=True))
        case execution_events.InferenceResponseReceived():
            return _step(_stepped(run, told), told.step_number, lambda step: _answered(step, told))
        case execution_events.ToolCallStarted():
            return _called(
                run,
                told,
                told.call.id,
                lambda call: replace(_with_call(call, told.call), stage="running", started_at=told.at),
            )
        case execution_events.ApprovalRequested():
            return _called(run, told, told.call.id, lambda call: _waiting(call, told))
        case execution_events.ApprovalResolved():
            return _called(run, told, told.call_id, lambda call: _decided(call, told))
        case execution_events.ToolCallCompleted() | execution_events.ToolCallBlocked():
            done = told.tool_execution
            return _called(run, told, done.call.id, lambda call: _ended(call, done))
        case execution_events.AgentStepCompleted():
            stepped = _step(_stepped(run, told), told.step_number, lambda step: _completed(step, told))
            return replace(stepped, step_count=max(run.step_count, told.step_number))
        case execution_events.TokenUsageReported():
            estimated = told.total.estimated_tokens > 0
            return replace(
                run,
                tokens=told.total.total_tokens,
                estimated=estimated,
                cost=told.total_cost,
                unpriced=told.total_unpriced,
            )
        case execution_events.StopSignalReceived():
            return replace(run, why=_why(told.signal.reason, told.signal.message))
        case execution_events.AgentExecutionCompleted():
            why = _why(told.reason, told.message) if told.reason.forced else None
            return _over(run, told.status, told.at, why=why, answer=told.answer)
        case execution_events.AgentExecutionFailed():
            return _over(run, ExecutionStatus.FAILED, told.at, why=_why(told.error.type, told.error.message))
        case _:
            return run


# --- runs


def _over(run: RunView, status: ExecutionStatus, at: datetime, *, why: str | None = None, answer: str = "") -> RunView:
    steps = tuple(replace(each, asking=False, calls=_closed(each.calls)) for each in run.steps)
    ended = replace(run, status=status, ended_at=at, steps=steps, answer=answer)
    return ended if why is None else replace(ended, why=why)


def _closed(calls: tuple[CallView, ...]) -> tuple[CallView, ...]:
    """Return the calls of a run that has ended: what has no end by now was cancelled."""
    return tuple(replace(each, stage=Outcome.CANCELLED) if each.is_open else each for each in calls)


def _why(kind: str, message: str) -> str:
    return ": ".join(filter(None, (kind, message[:ERROR_CHARS_MAX])))


def _stepped(run: RunView, told: execution_events.Observed) -> RunView:
    """Return the run with this step, which can have begun before we were told."""
    if any(each.number == told.step_number for each in run.steps[-1:]):
        return run
    return replace(run, steps=(*run.steps, StepView(told.step_number, told.at))[-LIVE_STEPS_KEPT:])


def _step(run: RunView, number: int, change: Callable[[StepView], StepView]) -> RunView:
    steps = tuple(change(each) if each.number == number else each for each in run.steps)
    return replace(run, steps=steps)


# --- steps


def _retried(run: RunView, told: AttemptFailed) -> RunView:
    """Return the run after an attempt that failed; of several in a short time only the latest is told."""
    before = next((each.attempt for each in run.steps if each.number == told.step_number), 1)
    retries = run.retries + max(1, told.attempt + 1 - before)
    return replace(_step(run, told.step_number, lambda step: _failed(step, told)), retries=retries)


def _texted(step: StepView, told: TextDelta) -> StepView:
    text = told.text if told.skipped else step.text + told.text
    cut = len(text) > LIVE_TEXT_CHARS_MAX
    return replace(step, text=text[-LIVE_TEXT_CHARS_MAX:], skipped=step.skipped or cut or told.skipped > 0)


def _failed(step: StepView, told: AttemptFailed) -> StepView:
    retry = told.message[:LIVE_RESULT_CHARS_MAX] or "the attempt brought no answer"
    return replace(step, text="", skipped=False, attempt=told.attempt + 1, retry=retry, retry_at=told.next_at)


def _answered(step: StepView, told: execution_events.InferenceResponseReceived) -> StepView:
    response = told.response
    return replace(
        step,
        asking=False,
        retry="",
        retry_at=None,
        text=response.text[-LIVE_TEXT_CHARS_MAX:],
        skipped=len(response.text) > LIVE_TEXT_CHARS_MAX,
        tokens=response.usage.total_tokens,
        estimated=response.usage.estimated_tokens > 0,
        cost=response.cost or 0.0,
        calls=tuple(CallView(each, _arguments(each)) for each in response.tool_calls),
    )


def _completed(step: StepView, told: execution_events.AgentStepCompleted) -> StepView:
    used = told.step.usage
    tokens, estimated = used.total_tokens, used.estimated_tokens > 0
    return replace(step, ended_at=told.at, asking=False, tokens=tokens, estimated=estimated)


# --- calls


def _called(
    run: RunView, told: execution_events.Observed, call_id: str, change: Callable[[CallView], CallView]
) -> RunView:
    def changed(step: StepView) -> StepView:
        calls = tuple(change(each) if each.call.id == call_id else each for each in step.calls)
        return replace(step, calls=calls)

    return _step(run, told.step_number, changed)


def _arguments(call: ToolCall) -> str:
    given = ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in call.arguments.items())
    return marked(given, LIVE_RESULT_CHARS_MAX)


def _with_call(view: CallView, call: ToolCall) -> CallView:
    """Return the view of a call that hooks or a person may have changed."""
    return view if call == view.call else replace(view, call=call, arguments=_arguments(call))


def _waiting(call: CallView, told: execution_events.ApprovalRequested) -> CallView:
    return replace(
        _with_call(call, told.call),
        stage="waiting",
        started_at=told.at,
        expires_at=told.expires_at,
        digest=told.digest,
    )


def _decided(call: CallView, told: execution_events.ApprovalResolved) -> CallView:
    text = decision_text(told.approval, told.call.arguments)
    return replace(_with_call(call, told.call), stage="asked", digest="", expires_at=None, decided=text)


def _ended(call: CallView, done: ToolExecution) -> CallView:
    told = done.error.message if done.error else done.result or ""
    return replace(
        _with_call(call, done.call),
        stage=done.outcome,
        decided=decision_text(done.approval, done.call.arguments) if done.approval else "",
        started_at=call.started_at or done.started_at,
        ended_at=done.completed_at,
        told=told[:LIVE_RESULT_CHARS_MAX],
        digest="",
        expires_at=None,
    )
