"""Why an execution stops (SPEC section 4): the reasons, the signals that carry them, and who wins.

    #  reason          value           forced    status when it is the highest
    0  ERROR           error           yes       failed
    1  STOP_REQUESTED  stop_requested  yes       stopped
    2  STEPS_LIMIT     steps_limit     yes       stopped
    3  TOKEN_LIMIT     token_limit     yes       stopped
    4  TIME_LIMIT      time_limit      yes       stopped
    5  RETRY_LIMIT     retry_limit     yes       stopped
    6  FINISH_REASON   finish_reason   no        completed
    7  USER_REQUESTED  user_requested  yes       stopped
    8  COMPLETED       completed       no        completed
    9  UNKNOWN         unknown         yes       stopped

Should the loop stop? The first row that holds decides:

    1  there is a signal and no continuation request   stop
    2  a continuation was requested                    go on
    3  the step asked for tools                        go on
    4  otherwise                                       stop
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from pydantic import AwareDatetime, Field, JsonValue

from holdfast.core.frozen import Frozen, replace
from holdfast.core.limits import REASON_CHARS_MAX


class StopReason(StrEnum):
    """In order of authority: the first is the highest."""

    ERROR = "error"
    STOP_REQUESTED = "stop_requested"
    STEPS_LIMIT = "steps_limit"
    TOKEN_LIMIT = "token_limit"  # noqa: S105  # not a password
    TIME_LIMIT = "time_limit"
    RETRY_LIMIT = "retry_limit"
    FINISH_REASON = "finish_reason"
    USER_REQUESTED = "user_requested"
    COMPLETED = "completed"
    UNKNOWN = "unknown"

    @property
    def rank(self) -> int:
        """0 is the most authoritative."""
        return _RANKS[self]

    @property
    def forced(self) -> bool:
        """True when this reason makes the execution `stopped` (or `failed`) instead of `completed`."""
        return self not in (StopReason.FINISH_REASON, StopReason.COMPLETED)


_RANKS = {reason: rank for rank, reason in enumerate(StopReason)}


class StopSignal(Frozen):
    """One wish to stop: why, who says so, when, and anything worth keeping with it."""

    reason: StopReason
    message: str = Field(default="", max_length=REASON_CHARS_MAX)
    source: str = Field(default="", max_length=200)
    at: AwareDatetime
    context: Mapping[str, JsonValue] = Field(default_factory=dict[str, JsonValue])


class Continuation(Frozen):
    """All stop signals of an execution, oldest first, and whether trusted code asked to go on regardless."""

    stop_signals: tuple[StopSignal, ...] = ()
    continuation_requested: bool = False

    @property
    def highest(self) -> StopSignal | None:
        """The most authoritative signal; among equals the earliest."""
        return min(self.stop_signals, key=lambda signal: signal.reason.rank, default=None)

    def with_signal(self, signal: StopSignal) -> Continuation:
        """Return this continuation with one signal more."""
        return replace(self, stop_signals=(*self.stop_signals, signal))

    def should_stop(self, *, tools_requested: bool) -> bool:
        """Apply the table at the top of this file."""
        if self.stop_signals and not self.continuation_requested:
            return True
        return not (self.continuation_requested or tools_requested)

    def describe(self) -> str:
        """Return one readable line."""
        if not self.stop_signals:
            return "continuation requested" if self.continuation_requested else "no stop signal"
        told = "; ".join(f"{s.reason}: {s.message}" if s.message else str(s.reason) for s in self.stop_signals)
        return f"{told} (continuation requested)" if self.continuation_requested else told
