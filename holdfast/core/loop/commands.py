"""What the core wants done, as imperatives. A shell carries them out and reports back with events."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.hooks import HookContext, HookTraits
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.wire.execution_events import Observed


@dataclass(frozen=True, slots=True)
class StartTimer:
    """Report `TimerFired` at this moment; takes the place of the timer before it."""

    fires_at: datetime


@dataclass(frozen=True, slots=True)
class CallModel:
    """Ask the model, with the conversation as it stands now. It must not put out more than `max_output_tokens`.

    `room` is what the budget alone leaves for its answer. Attempts that failed use that up (`usage.room_after`, with
    this `input_weight`): what is left of it bounds the next attempt, and without any there is none. `input_max` is the
    most tokens that its input can have; none where nothing depends on that.
    """

    step_number: int
    max_output_tokens: int | None
    room: int | None = None
    input_weight: float = 1.0
    input_max: int | None = None


@dataclass(frozen=True, slots=True)
class SummariseBuffer:
    """Ask the model to summarise the store's buffer, before the model call of that step. Fields as for `CallModel`."""

    step_number: int
    max_output_tokens: int | None
    room: int | None = None
    input_weight: float = 1.0
    input_max: int | None = None


@dataclass(frozen=True, slots=True)
class CallTool:
    """Run one tool call. `step_number` and `index` name it for good, across retries and restarts."""

    step_number: int
    index: int
    call: ToolCall


@dataclass(frozen=True, slots=True)
class SpawnSubagent:
    """Run another agent for a call, within `budget`; agents may nest `depth_left` deep below it."""

    step_number: int
    index: int
    call_id: str
    agent: str
    task: str
    budget: ExecutionBudget
    depth_left: int


@dataclass(frozen=True, slots=True)
class RunHooks:
    """Run these hooks one after another, each seeing what the ones before it changed, up to the first that raises."""

    hooks: tuple[HookTraits, ...]
    context: HookContext
    name: str
    """What this run of hooks is called within its execution, the same after a restart."""
    changes_bytes_max: int
    """The most that their changes may take together, in bytes of JSON."""


@dataclass(frozen=True, slots=True)
class RequestApproval:
    """Let a person decide about a call; report `ApprovalExpired` at `expires_at` if nobody has.

    `calls_asked` is how many calls its step asked for.
    """

    step_number: int
    index: int
    call: ToolCall
    expires_at: datetime | None
    calls_asked: int


@dataclass(frozen=True, slots=True)
class CancelInFlight:
    """Cancel everything under way but the timer; late answers are not wanted any more."""


@dataclass(frozen=True, slots=True)
class Emit:
    """Tell listeners; only when the loop was asked for it."""

    event: Observed


@dataclass(frozen=True, slots=True)
class Finish:
    """The execution has ended; its state is final."""


Command = (
    StartTimer
    | CallModel
    | SummariseBuffer
    | CallTool
    | SpawnSubagent
    | RunHooks
    | RequestApproval
    | CancelInFlight
    | Emit
    | Finish
)
