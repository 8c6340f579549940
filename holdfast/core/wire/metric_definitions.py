"""The metrics of a worker: their names, descriptions, buckets and labels.

Labels are names from definitions (agents, models, tools) and fixed words; never ids, never texts of users or models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

LABELS_MAX: Final = 200
"""The most names of agents, models or tools that label a worker's metrics; further ones count as `other`."""


OTHER: Final = "other"
"""The label of names beyond LABELS_MAX."""

DEFAULT_MODEL: Final = "default"
"""The label of the worker's own model, where the definition names none."""

SECONDS: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
LONG_SECONDS: Final = (1, 5, 15, 60, 300, 900, 3_600, 14_400, 43_200, 86_400, 259_200)
USD: Final = (0.0001, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 25, 100)
RATIOS: Final = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 1, 1.1, 1.5, 2)


@dataclass(frozen=True, slots=True)
class Metric:
    """A counter, or a histogram with these buckets; a counter's name ends with `_total` where it is read."""

    name: str
    about: str
    buckets: tuple[float, ...] = ()


STARTED: Final = Metric("holdfast_executions_started", "executions begun")
ENDED: Final = Metric("holdfast_executions_ended", "executions ended, by status and stop reason")
LASTED: Final = Metric("holdfast_execution_seconds", "how long executions took", LONG_SECONDS)
STEPS: Final = Metric("holdfast_steps", "steps completed")
TOKENS: Final = Metric("holdfast_tokens", "tokens used, `input` and `output`, failed attempts and summaries too")
TOKEN_PARTS: Final = Metric("holdfast_token_parts", "those of them that were `cached`, `cache_write` or `reasoning`")
COST: Final = Metric("holdfast_cost_usd", "US dollars that a step's use cost; its sum is the cost", USD)
BUDGET_USE: Final = Metric("holdfast_budget_use_ratio", "used by limit of a budget, at an execution's end", RATIOS)
APPROVALS: Final = Metric("holdfast_approvals_requested", "tool calls that waited for a person")
APPROVAL_WAIT: Final = Metric("holdfast_approval_wait_seconds", "how long they waited, by decision", LONG_SECONDS)
STOP_LATENCY: Final = Metric("holdfast_stop_latency_seconds", "from a stop request to the execution's end", SECONDS)
TOOL_CALLS: Final = Metric("holdfast_tool_call_seconds", "how long tool calls took, by outcome", SECONDS)
MODEL_CALLS: Final = Metric("holdfast_model_call_seconds", "how long requests to a model took, by outcome", SECONDS)
MODEL_FAILURES: Final = Metric("holdfast_model_call_failures", "requests to a model that failed, by type")
UNKEPT: Final = Metric("holdfast_records_unkept", "executions of which no record could be kept")
SINK_EVENTS: Final = Metric("holdfast_sink_events", "events that a sink has taken; some twice, after a fault")
SINK_FAILURES: Final = Metric("holdfast_sink_failures", "deliveries that a sink did not take, by what it said")

METRICS: Final = (
    *(STARTED, ENDED, LASTED, STEPS, TOKENS, TOKEN_PARTS, COST, BUDGET_USE, APPROVALS, APPROVAL_WAIT, STOP_LATENCY),
    *(TOOL_CALLS, MODEL_CALLS, MODEL_FAILURES, UNKEPT, SINK_EVENTS, SINK_FAILURES),
)
"""All of them."""

SDK_BUCKETS: Final[Mapping[str, tuple[float, ...]]] = {
    "temporal_workflow_task_schedule_to_start_latency": (0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300),
    "temporal_activity_schedule_to_start_latency": (0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300),
    "temporal_workflow_endtoend_latency": LONG_SECONDS,
    "temporal_activity_execution_latency": SECONDS,
}
"""Buckets for metrics of Temporal's own SDK: a call can take minutes, a run days."""


class Labels:
    """The label values of this process, bounded in number."""

    def __init__(self, labels_max: int = LABELS_MAX) -> None:
        self._names: set[str] = set()
        self._labels_max = labels_max

    def of(self, name: str) -> str:
        """Return `name`, or `other` where there are too many."""
        if name not in self._names:
            if len(self._names) >= self._labels_max:
                return OTHER
            self._names.add(name)
        return name
