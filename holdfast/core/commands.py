"""What the core wants done, as imperatives. A shell carries them out and reports back with events."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from holdfast.core.messages import ToolCall


@dataclass(frozen=True, slots=True)
class StartTimer:
    """Report `TimerFired` at this moment; one per execution at the most."""

    fires_at: datetime


@dataclass(frozen=True, slots=True)
class CallModel:
    """Ask the model, with the conversation as it stands now. It must not put out more than `max_output_tokens`."""

    step_number: int
    max_output_tokens: int | None


@dataclass(frozen=True, slots=True)
class CallTool:
    """Run one tool call. `step_number` and `index` name it for good, across retries and restarts."""

    step_number: int
    index: int
    call: ToolCall


@dataclass(frozen=True, slots=True)
class CancelInFlight:
    """Cancel every model and tool call under way; their late answers are not wanted any more."""


@dataclass(frozen=True, slots=True)
class Finish:
    """The execution has ended; its state is final."""


Command = StartTimer | CallModel | CallTool | CancelInFlight | Finish
