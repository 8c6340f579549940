"""`RunView`: a run as people and documents see it, made from a state, a record, events, or a server's listing.

Pure: no request, no drawing, no clock. Texts are as models and tools gave them; the renderer escapes them. A field that
the source does not have keeps its default.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from pydantic import AwareDatetime, Field
from pydantic.json_schema import SkipJsonSchema

from holdfast.core.agent.budget import BudgetUse, ExecutionBudget
from holdfast.core.agent.execution_state import ExecutionStatus, call_name, named_id
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.subagents import SPAWN_TOOL
from holdfast.core.base.call_digest import call_digest
from holdfast.core.base.frozen import Frozen
from holdfast.core.base.json_values import JsonMap
from holdfast.core.base.usage import NOTHING_USED, Usage
from holdfast.core.conversation.amounts import server_calls_note
from holdfast.core.conversation.attachments import Attachments, has_none
from holdfast.core.conversation.steps import (
    AgentStep,
    AgentStepType,
    CallStage,
    ErrorRecord,
    InferenceResponse,
    OpenCall,
    Outcome,
    StepExecution,
    ToolExecution,
)
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.conversation.todos import Todo
from holdfast.core.conversation.verdicts import Approval
from holdfast.core.wire.records import ExecutionRecord
from holdfast.view.budget_use import Share, shares

UNDER_WAY: Final = "under_way"
UNLIMITED: Final = ExecutionBudget()
OUTCOMES: Final = frozenset(Outcome)
RECORDED: Final = (
    *("execution_id", "agent", "agent_id", "parent_agent_id", "task", "answer", "status", "stop_reason", "why"),
    *("started_at", "completed_at", "usage", "cost", "unpriced", "step_count", "steps_used"),
)
"""What a run's record says of it, under the names that it has here."""

ENDED: Final = frozenset(each for each in ExecutionStatus if each.is_terminal)


class CallView(Frozen):
    """One requested tool call, ended or under way.

    `outcome` is the end's, or how far the call has come: `waiting`, `approval`, `running` and so on. `result` is what
    the tool gave.
    """

    id: str
    tool: str
    arguments: JsonMap
    outcome: str
    started_at: AwareDatetime | None = None
    completed_at: AwareDatetime | None = None
    seconds: float | None = None
    result: str | None = None
    error: ErrorRecord | None = None
    approval: Approval | None = None
    usage: Usage = Usage()
    cost: float = 0.0
    unpriced: tuple[str, ...] = ()
    """The models whose tokens have no known price; they are not in `cost`."""
    attachments: Attachments = Field(default=(), exclude_if=has_none)
    """The files that belong to its result; `holdfast show --attachment` writes one."""
    expires_at: SkipJsonSchema[datetime | None] = Field(default=None, exclude=True)
    """Until when it waits for a person. This and what follows is for whoever watches; no document has it."""
    execution_id: SkipJsonSchema[str | None] = Field(default=None, exclude=True)
    """The run of the subagent that the call has started."""
    progress: SkipJsonSchema[str] = Field(default="", exclude=True)
    """How far the tool is, as it reported last."""
    parent_call_id: SkipJsonSchema[str | None] = Field(default=None, exclude=True)
    """The call whose script made this one."""

    @property
    def is_open(self) -> bool:
        """Whether it has no end yet."""
        return self.outcome not in OUTCOMES

    @property
    def digest(self) -> str:
        """What binds a decision to this call while it waits for a person."""
        return call_digest(self.tool, self.arguments)

    @property
    def answer(self) -> str:
        """What came of it in words: the error's, else the tool's."""
        return self.error.message if self.error else self.result or ""


class StepView(Frozen):
    """One step: a model call with the tool calls that it asked for, in that order.

    `completed_at` is missing while it is under way.
    """

    number: int
    kind: AgentStepType | Literal["under_way"]
    started_at: AwareDatetime | None
    completed_at: AwareDatetime | None
    seconds: float | None
    model: str
    text: str
    calls: tuple[CallView, ...]
    errors: tuple[ErrorRecord, ...]
    usage: Usage
    cost: float
    unpriced: tuple[str, ...]
    revised_by: str = ""
    """The hook whose text stands in place of the model's."""
    call_changed: str = ""
    """What hooks changed of its model call, in a line."""
    provider_ran: str = ""
    """Which tools of its own the model's provider ran for its answer, in a line."""
    asking: SkipJsonSchema[bool] = Field(default=False, exclude=True)
    """Whether the model is being asked. This and what follows is for whoever watches; no document has it."""
    attempt: SkipJsonSchema[int] = Field(default=1, exclude=True)
    retry: SkipJsonSchema[str] = Field(default="", exclude=True)
    """Why the attempt before this one failed."""
    retry_at: SkipJsonSchema[datetime | None] = Field(default=None, exclude=True)
    """When this attempt begins, where it had not begun then."""
    beside: SkipJsonSchema[tuple[str, ...]] = Field(default=(), exclude=True)
    """What went on beside its calls, a line each: its answer judged, a return to an earlier step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """One run. `step_count` counts its steps that are complete, `steps` are those that are at hand.

    `usage` (tokens) and `cost` (US dollars, without the `unpriced` models) also count its subagents that have ended.
    """

    execution_id: str
    agent: str = ""
    agent_id: str = ""
    parent_agent_id: str | None = None
    parent: str | None = None
    """The run that started it as a subagent's, for who watches a tree."""
    task: str = ""
    status: str = ExecutionStatus.PENDING
    stop_reason: StopReason | None = None
    """Why it was stopped; while it runs, what wants it to stop."""
    why: str = ""
    """The same in words, or why it has failed, or what it waits for."""
    answer: str = ""
    started_at: datetime | None = None
    completed_at: datetime | None = None
    seconds: float | None = None
    """How long it took; of a run under way, how long until this was read."""
    step_count: int | None = 0
    steps_used: int | None = None
    """Its steps and those of its subagents that have ended: what `max_steps` counts."""
    usage: Usage = NOTHING_USED
    cost: float = 0.0
    cost_said: float = 0.0
    """The cost that the worker of a run under way last reported: answers of a step that is not complete are in it."""
    unpriced: tuple[str, ...] = ()
    budget: ExecutionBudget = UNLIMITED
    paused_seconds: float = 0.0
    """How many seconds do not count toward the limit, nor does the time since `paused_at`."""
    paused_at: datetime | None = None
    warnings: tuple[str, ...] = ()
    todos: tuple[Todo, ...] = ()
    """The agent's own list of what is to do."""
    retries: int = 0
    """How many attempts of model calls failed while it was watched."""
    steps: tuple[StepView, ...] = ()
    children: tuple[RunView, ...] = ()
    more: bool = False
    """Whether runs below it are left out because the tree has more than TREE_RUNS_MAX."""

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.status in ENDED

    @property
    def why_stopped(self) -> str:
        """The reason, and the same in words."""
        return ": ".join(filter(None, (self.stop_reason, self.why)))

    def seconds_used(self, now: datetime) -> float:
        """Return how many seconds count toward `max_seconds` at `now`; those of a pause do not."""
        if self.started_at is None:
            return 0.0
        until = self.completed_at or self.paused_at or now
        return max(0.0, (until - self.started_at).total_seconds() - self.paused_seconds)

    def shares(self, now: datetime) -> tuple[Share, ...]:
        """Return how much of each limit is used at `now`."""
        if self.started_at is None:
            return ()
        steps = self.step_count if self.steps_used is None else self.steps_used
        used = BudgetUse(
            steps=steps or 0,
            tokens=self.usage.total_tokens,
            cost=self.cost,
            seconds=self.seconds_used(now),
            unpriced=self.unpriced,
        )
        return shares(self.budget, used, started_at=self.started_at, now=self.completed_at or now)


def run_view(state: AgentState, agent: str = "") -> RunView:
    """Return the agent's execution without its steps; ValueError where it has none."""
    execution, signal, elapsed = state.running, state.stop_signal, state.execution_duration
    return RunView(
        execution_id=execution.execution_id,
        agent=agent,
        agent_id=state.agent_id,
        parent_agent_id=state.parent_agent_id,
        status=state.status,
        stop_reason=state.stop_reason,
        why=execution.error.message if execution.error else signal.message if signal else "",
        answer=state.final_response,
        started_at=execution.started_at,
        completed_at=execution.completed_at,
        seconds=elapsed.total_seconds() if elapsed else 0.0,
        step_count=state.step_count,
        steps_used=state.steps_used,
        usage=state.usage,
        cost=state.cost,
        unpriced=execution.unpriced,
        budget=execution.budget,
        paused_seconds=execution.paused_seconds,
        paused_at=execution.paused_at,
        warnings=state.warnings,
        todos=state.todos,
    )


def recorded_run(record: ExecutionRecord) -> RunView:
    """Return a run of which its record is left."""
    own: dict[str, Any] = {name: getattr(record, name) for name in RECORDED}
    return RunView(**own, seconds=(record.completed_at - record.started_at).total_seconds())


def step_views(state: AgentState) -> Iterator[StepView]:
    """Yield the steps in order, the one under way last."""
    yield from map(completed_step, state.step_executions)
    if (step := current_step(state)) is not None:
        yield step


def completed_step(done: StepExecution) -> StepView:
    """Return a step that is complete."""
    return step_view(done.step, done.started_at, done.completed_at)


def current_step(state: AgentState) -> StepView | None:
    """Return the step under way; none where there is none, also without the state's bulk."""
    execution = state.execution
    if execution is None or execution.current_step is None:
        return None
    return step_view(execution.current_step, execution.current_step_started_at, None, execution.open_calls)


def step_view(
    step: AgentStep, started_at: datetime | None, completed_at: datetime | None, open_calls: Sequence[OpenCall] = ()
) -> StepView:
    """Return a step, its calls in the order in which they were asked for."""
    calls = {each.call.id: _open_call(each) for each in open_calls}
    calls |= {each.call.id: ended_call(each) for each in step.tool_executions}
    requested = [call.id for call in step.requested_tool_calls]
    response = step.response or step.partial_response
    return StepView(
        number=step.number,
        kind=(step.step_type if completed_at else None) or UNDER_WAY,
        started_at=started_at,
        completed_at=completed_at,
        seconds=_seconds(started_at, completed_at),
        model=answered_by(response) if response else "",
        text=step.text_so_far,
        calls=tuple(calls.pop(id_) for id_ in requested if id_ in calls) + tuple(calls.values()),
        errors=step.errors,
        usage=step.usage,
        cost=step.cost,
        unpriced=step.unpriced,
        revised_by=step.revised.hook if step.revised else "",
        call_changed=step.model_call_changes.line if step.model_call_changes else "",
        provider_ran=server_calls_note(step.server_tool_calls),
        asking=not completed_at and step.inference_response is None,
    )


def answered_by(response: InferenceResponse) -> str:
    """Return the model that answered, and the route to it where it is not the worker's own."""
    return f"{response.model} (route {response.route})".lstrip() if response.route else response.model


def subagent_calls(state: AgentState) -> Iterator[RunView]:
    """Yield what a state itself knows of its subagents, for where the server has forgotten their runs."""
    for step in state.steps:
        places = {call.id: place for place, call in enumerate(step.requested_tool_calls)}
        for each in step.tool_executions:
            if each.call.name == SPAWN_TOOL and each.ran:
                yield RunView(
                    execution_id=named_id(state.running.execution_id, call_name(step.number, places[each.call.id])),
                    agent=str(each.call.arguments.get("agent", "")),
                    status=each.outcome,
                    started_at=each.started_at,
                    seconds=_seconds(each.started_at, each.completed_at),
                    step_count=None,
                    usage=each.usage,
                    cost=each.cost,
                    unpriced=each.unpriced,
                    why=each.error_message,
                )


def ended_call(ended: ToolExecution) -> CallView:
    """Return a call that has ended."""
    return CallView(
        id=ended.call.id,
        tool=ended.call.name,
        arguments=ended.call.arguments,
        outcome=ended.outcome,
        started_at=ended.started_at,
        completed_at=ended.completed_at,
        seconds=_seconds(ended.started_at, ended.completed_at),
        result=ended.result,
        error=ended.error,
        approval=ended.approval,
        usage=ended.usage,
        cost=ended.cost,
        unpriced=ended.unpriced,
        attachments=ended.attachments,
        parent_call_id=ended.parent_call_id,
    )


def _open_call(each: OpenCall) -> CallView:
    if each.ended is not None and each.stage is CallStage.AFTER_TOOL:
        return ended_call(each.ended)
    return CallView(
        id=each.call.id,
        tool=each.call.name,
        arguments=each.call.arguments,
        outcome=each.stage,
        started_at=each.started_at,
        approval=each.approval,
        expires_at=each.expires_at,
        parent_call_id=each.parent_call_id,
    )


def _seconds(began: datetime | None, ended: datetime | None) -> float | None:
    return None if began is None or ended is None else max(0.0, (ended - began).total_seconds())
