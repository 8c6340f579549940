"""What happens in runs, told by hand: events with a clock that goes on by a second each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any, TypeVar, cast

from holdfast.client.watch_events import Watched
from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.execution_state import ExecutionStatus, step_id
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.conversation.steps import AgentStep, ErrorRecord, InferenceResponse, Outcome, ToolExecution
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.wire.execution_events import (
    AgentExecutionStarted,
    AgentStepCompleted,
    AgentStepStarted,
    InferenceRequestStarted,
    InferenceResponseReceived,
    Observed,
    TokenUsageReported,
    ToolCallCompleted,
    ToolCallStarted,
)
from holdfast.view.live_tree import LiveView, after

BEGAN = datetime(2026, 11, 20, 12, tzinfo=UTC)
ROOT = "6f1c1d5e-0000-4000-8000-000000000001"

E = TypeVar("E", bound=Observed)


def moment(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


class Story:
    """One run's events, in the order they are told."""

    def __init__(
        self, execution_id: str = ROOT, *, parent_agent_id: str | None = None, seconds: float = 0, step: int = 0
    ) -> None:
        self.execution_id = execution_id
        self._parent_id = parent_agent_id
        self.seconds = seconds
        self._step = step
        self._used = Usage()
        self.told: list[Watched] = []

    def tell(self, kind: type[E], **fields: Any) -> E:  # noqa: ANN401  # an event's own
        event = kind(
            agent_id="a", execution_id=self.execution_id, parent_agent_id=self._parent_id, at=moment(self.seconds),
            step_number=self._step, **fields,
        )  # fmt: skip
        self.seconds += 1
        self.told.append(cast("Watched", event))
        return event

    def begins(self, agent: str = "clerk", *, resumed: bool = False) -> Story:
        self.tell(AgentExecutionStarted, agent=agent, resumed=resumed)
        return self

    def asks(self) -> Story:
        """Begin a step and ask the model."""
        self._step += 1
        self.tell(AgentStepStarted)
        self.tell(InferenceRequestStarted, max_output_tokens=None)
        return self

    def answers(self, text: str = "", *calls: ToolCall, usage: int = 100) -> Story:
        response = InferenceResponse(text=text, tool_calls=calls, usage=Usage(input_tokens=usage))
        self.tell(InferenceResponseReceived, response=response)
        return self

    def runs(self, call: ToolCall) -> Story:
        self.tell(ToolCallStarted, call=call)
        return self

    def ran(self, call: ToolCall, result: str = "", outcome: Outcome = Outcome.SUCCEEDED) -> Story:
        error = None if outcome is Outcome.SUCCEEDED else ErrorRecord(type="Odd", message=result, source=call.name)
        done = ToolExecution(
            id="x",
            call=call,
            outcome=outcome,
            result=None if error else result,
            error=error,
            started_at=moment(self.seconds - 1),
            completed_at=moment(self.seconds),
        )
        self.tell(ToolCallCompleted, tool_execution=done)
        return self

    def completes(self, usage: int = 100) -> Story:
        used = Usage(input_tokens=usage)
        self._used += used
        said = InferenceResponse(usage=used)
        step = AgentStep(
            id=step_id(self.execution_id, self._step), number=self._step, input_length=1, inference_response=said
        )
        at = moment(self.seconds)
        self.tell(AgentStepCompleted, step=step, started_at=at, completed_at=at, duration_seconds=0.0, usage=used)
        self.tell(TokenUsageReported, usage=used, total=self._used, cost=0.0, total_cost=0.0)
        return self


def natural(answer: str) -> dict[str, object]:
    """Return what AgentExecutionCompleted tells of a natural end."""
    return {
        "answer": answer,
        "status": ExecutionStatus.COMPLETED,
        "reason": StopReason.COMPLETED,
        "message": "",
    }


def forced(reason: StopReason, message: str) -> dict[str, object]:
    """Return what AgentExecutionCompleted tells of an end that a stop forced."""
    return {"answer": "", "status": ExecutionStatus.STOPPED, "reason": reason, "message": message}


def seen(told: Iterable[Watched], view: LiveView | None = None) -> LiveView:
    """Return what is to be seen after all of it."""
    return reduce(after, told, view or LiveView())


def limited(view: LiveView, budget: ExecutionBudget, *, paused_seconds: float = 0.0) -> LiveView:
    """Return the view with the limits of its latest root."""
    root = view.runs[view.roots[-1]]
    return replace(
        view, runs={**view.runs, root.execution_id: replace(root, budget=budget, paused_seconds=paused_seconds)}
    )


def asked(id_: str, name: str = "look", **arguments: Any) -> ToolCall:  # noqa: ANN401  # any JSON value
    return ToolCall(id=id_, name=name, arguments=arguments)
