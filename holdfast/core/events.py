"""What can happen to an execution, as facts in the past tense. Times and ids come in here; the core makes none."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from holdfast.core.budget import ExecutionBudget
from holdfast.core.messages import Message
from holdfast.core.steps import ErrorRecord, InferenceResponse
from holdfast.core.stopping import StopSignal

StopMode = Literal["now", "after_step"]
"""`now` cancels what is in flight; `after_step` lets the step finish first."""


@dataclass(frozen=True, slots=True)
class ExecutionStarted:
    """A request came in. `budget` is the effective one."""

    execution_id: str
    messages: tuple[Message, ...]
    budget: ExecutionBudget
    at: datetime


@dataclass(frozen=True, slots=True)
class ModelAnswered:
    """The model call of the step under way came back."""

    response: InferenceResponse
    at: datetime


@dataclass(frozen=True, slots=True)
class ModelFailed:
    """The model call failed for good, after its bounded retries."""

    error: ErrorRecord
    at: datetime


@dataclass(frozen=True, slots=True)
class ToolReturned:
    """A tool call ended well; `call_id` is the call's id within the step."""

    call_id: str
    result: str
    started_at: datetime
    at: datetime


@dataclass(frozen=True, slots=True)
class ToolFailed:
    """A tool call ended in an error, after its bounded retries."""

    call_id: str
    error: ErrorRecord
    started_at: datetime
    at: datetime


@dataclass(frozen=True, slots=True)
class StopRequested:
    """Someone outside wants the execution to stop."""

    signal: StopSignal
    mode: StopMode
    at: datetime


@dataclass(frozen=True, slots=True)
class TimerFired:
    """The time limit struck."""

    at: datetime


@dataclass(frozen=True, slots=True)
class DriverFailed:
    """The shell around the core cannot go on (a limit of the engine, a fault of its own)."""

    error: ErrorRecord
    at: datetime


Event = (
    ExecutionStarted
    | ModelAnswered
    | ModelFailed
    | ToolReturned
    | ToolFailed
    | StopRequested
    | TimerFired
    | DriverFailed
)
