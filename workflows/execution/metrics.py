"""Counts the metrics of an execution from the loop's events, once each, never in a replay."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Any, Final

from temporalio import workflow

from holdfast.core.agent.budget import LIMITS
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.handoffs import HANDOFF_TOOL
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.subagents import SPAWN_TOOL
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.steps import ToolExecution
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.loop.events import Event, ExecutionStarted, StopRequested, SubagentReturned
from holdfast.core.wire import execution_events, metric_definitions
from holdfast.core.wire.execution_events import Observed
from holdfast.core.wire.metric_definitions import Labels, Metric

UNKNOWN_TOOL: Final = "unknown"
"""The label of a requested tool that does not exist: its name is the model's own text."""

WITHDRAWN: Final = "withdrawn"
"""The decision label of a call whose execution ended before a decision."""

AGENTS: Final = Labels()
MODELS: Final = Labels()
TOOLS: Final = Labels()


def parts_used(before: Usage, after: Usage) -> dict[str, int]:
    """Return how many tokens of each part came between two usages."""
    return {
        "cached": after.cached_tokens - before.cached_tokens,
        "cache_write": after.cache_write_tokens - before.cache_write_tokens,
        "reasoning": after.reasoning_tokens - before.reasoning_tokens,
    }


class ExecutionMetrics:
    """The metrics of one execution's run; `agent` gives its name, `tools` those it has."""

    def __init__(self, agent: Callable[[], str], tools: Callable[[], Collection[str]]) -> None:
        self._agent = agent
        self._tools = tools
        self._requested_at: dict[str, datetime] = {}
        self._stop_at: datetime | None = None
        self._instruments: dict[str, Any] = {}

    def count(self, event: Event, before: AgentState, after: AgentState, events: Sequence[Observed]) -> None:
        """Count the transition of `event` from one state to the next, with its execution events."""
        if isinstance(event, StopRequested) and event.mode == "now" and self._stop_at is None:
            self._stop_at = event.at
        if not isinstance(event, ExecutionStarted | SubagentReturned):  # a subagent counts its use itself
            self._count_use(before, after)
        for each in events:
            self._count_event(each)
        if after.status.is_terminal and not before.status.is_terminal:
            self._count_end(after)

    def count_unkept(self) -> None:
        """Count an execution without a record."""
        self._add(metric_definitions.UNKEPT, 1)

    def _count_use(self, before: AgentState, after: AgentState) -> None:
        # whose call it was: what comes of it ends the step, or has it fall back to another
        step = before.execution.current_step if before.execution else None
        asked = after.llm
        if before.llm and step:
            asked = before.llm.changed_by(step.model_call_changes).after(len(step.fallbacks))
        model = {"model": MODELS.of((asked.model if asked else None) or metric_definitions.DEFAULT_MODEL)}
        tokens_in = after.usage.input_tokens - before.usage.input_tokens
        tokens_out = after.usage.output_tokens - before.usage.output_tokens
        if tokens_in > 0:
            self._add(metric_definitions.TOKENS, tokens_in, direction="input", **model)
        if tokens_out > 0:
            self._add(metric_definitions.TOKENS, tokens_out, direction="output", **model)
        for part, tokens in parts_used(before.usage, after.usage).items():
            if tokens > 0:
                self._add(metric_definitions.TOKEN_PARTS, tokens, part=part, **model)
        if after.cost > before.cost:
            self._record(metric_definitions.COST, after.cost - before.cost, **model)

    def _count_event(self, event: Observed) -> None:
        match event:
            case execution_events.AgentExecutionStarted(resumed=False):
                self._add(metric_definitions.STARTED, 1)
                self._announce()
            case execution_events.AgentStepCompleted():
                self._add(metric_definitions.STEPS, 1)
            case execution_events.ToolCallCompleted() | execution_events.ToolCallBlocked():
                self._count_call(event.tool_execution)
            case execution_events.ApprovalRequested():
                self._requested_at[event.call.id] = event.at
                self._add(metric_definitions.APPROVALS, 1)
            case execution_events.ApprovalResolved():
                self._count_decision(event.call_id, event.decision, event.at)
            case _:
                pass

    def _announce(self) -> None:
        """Create the counters of alerts at 0: a rate misses the first increment of a counter that begins at 1."""
        self._add(metric_definitions.ENDED, 0, status=ExecutionStatus.FAILED.value, stop_reason=StopReason.ERROR.value)
        self._add(metric_definitions.APPROVALS, 0)
        self._add(metric_definitions.UNKEPT, 0)

    def _count_call(self, execution: ToolExecution) -> None:
        name = execution.call.name
        tool = TOOLS.of(name) if name in self._tools() or name in (SPAWN_TOOL, HANDOFF_TOOL) else UNKNOWN_TOOL
        seconds = (execution.completed_at - execution.started_at).total_seconds()
        self._record(metric_definitions.TOOL_CALLS, seconds, tool=tool, outcome=execution.outcome.value)

    def _count_decision(self, call_id: str, decision: str, at: datetime) -> None:
        requested_at = self._requested_at.pop(call_id, at)
        self._record(metric_definitions.APPROVAL_WAIT, (at - requested_at).total_seconds(), decision=decision)

    def _count_end(self, state: AgentState) -> None:
        execution, reason = state.running, state.stop_reason or StopReason.UNKNOWN
        at = execution.completed_at or execution.started_at
        for call_id in tuple(self._requested_at):
            self._count_decision(call_id, WITHDRAWN, at)
        self._add(metric_definitions.ENDED, 1, status=state.status.value, stop_reason=reason.value)
        seconds = (at - execution.started_at).total_seconds()
        self._record(metric_definitions.LASTED, seconds, status=state.status.value)
        if self._stop_at is not None:
            self._record(metric_definitions.STOP_LATENCY, (at - self._stop_at).total_seconds())
        use = execution.use(at)
        for limit in LIMITS:
            allowed = limit.of(execution.budget)
            if allowed is not None:
                ratio = limit.used(use) / allowed if allowed else 1.0
                self._record(metric_definitions.BUDGET_USE, ratio, kind=limit.name)

    def _add(self, metric: Metric, count: int, **labels: str) -> None:
        if metric.name not in self._instruments:
            self._instruments[metric.name] = workflow.metric_meter().create_counter(metric.name, metric.about)
        self._instruments[metric.name].add(count, {"agent": AGENTS.of(self._agent()), **labels})

    def _record(self, metric: Metric, value: float, **labels: str) -> None:
        if metric.name not in self._instruments:
            self._instruments[metric.name] = workflow.metric_meter().create_histogram_float(metric.name, metric.about)
        self._instruments[metric.name].record(max(0.0, value), {"agent": AGENTS.of(self._agent()), **labels})
