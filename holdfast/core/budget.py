"""How much an execution may use (SPEC section 5), as pure arithmetic. Nothing here measures anything."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TypeVar

from pydantic import AwareDatetime, Field

from holdfast.core.frozen import Frozen, replace
from holdfast.core.limits import SECONDS_MAX

LimitT = TypeVar("LimitT", int, float, datetime)


class ExecutionBudget(Frozen):
    """The limits of one execution; none means unlimited.

    `max_steps` counts model calls with their tools, `max_tokens` input and output tokens together,
    `max_seconds` wall-clock seconds from the start of the execution, `deadline` is a moment in time.
    """

    max_steps: int | None = Field(default=None, ge=0)
    max_tokens: int | None = Field(default=None, ge=0)
    max_seconds: float | None = Field(default=None, ge=0, le=SECONDS_MAX)
    deadline: AwareDatetime | None = None

    @property
    def is_empty(self) -> bool:
        """True when nothing is limited."""
        return self == ExecutionBudget()

    def is_exhausted(self, at: datetime) -> bool:
        """True when a limit is zero or the deadline has passed at `at`."""
        spent = any(limit is not None and limit <= 0 for limit in (self.max_steps, self.max_tokens, self.max_seconds))
        return spent or (self.deadline is not None and at >= self.deadline)

    def remaining(self, *, steps_used: int, tokens_used: int, seconds_used: float) -> ExecutionBudget:
        """Return what is left after the given use, floored at zero; an unset limit stays unset."""
        return replace(
            self,
            max_steps=None if self.max_steps is None else max(0, self.max_steps - steps_used),
            max_tokens=None if self.max_tokens is None else max(0, self.max_tokens - tokens_used),
            max_seconds=None if self.max_seconds is None else max(0.0, self.max_seconds - seconds_used),
        )

    def capped_by(self, other: ExecutionBudget) -> ExecutionBudget:
        """Return the tighter of both, limit by limit."""
        return ExecutionBudget(
            max_steps=_tighter(self.max_steps, other.max_steps),
            max_tokens=_tighter(self.max_tokens, other.max_tokens),
            max_seconds=_tighter(self.max_seconds, other.max_seconds),
            deadline=_tighter(self.deadline, other.deadline),
        )

    def overridden_by(self, other: ExecutionBudget) -> ExecutionBudget:
        """Return this budget with every limit that `other` sets taken from `other`."""
        return replace(self, **other.model_dump(exclude_none=True))

    def ends_at(self, started_at: datetime) -> datetime | None:
        """Return the moment the time limit strikes for an execution begun at `started_at`, or none."""
        by_seconds = None if self.max_seconds is None else started_at + timedelta(seconds=self.max_seconds)
        return _tighter(by_seconds, self.deadline)


def _tighter(one: LimitT | None, other: LimitT | None) -> LimitT | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
