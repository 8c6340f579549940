"""How much an execution may use (docs/spec.md, section 5), as pure arithmetic. Nothing here measures anything."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal, TypeVar

from pydantic import AwareDatetime, Field

from holdfast.core.base.bounds import SECONDS_MAX
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.frozen import replace
from holdfast.core.base.json_form import JsonForm

LimitT = TypeVar("LimitT", int, float, datetime)

BudgetPolicy = Literal["inherit", "own"]
"""How a subagent's budget follows from its parent's: `inherit` caps its own by what the parent has left, so that a tree
never passes its root; `own` uses its own alone."""


UnpricedPolicy = Literal["warn", "refuse"]
"""What becomes of a model whose tokens have no known price: `warn` lets it be asked, and `max_cost` counts nothing for
it; `refuse` fails the run before it is asked."""


class ExecutionBudget(JsonForm):
    """The limits of one execution; none means unlimited.

    `max_steps` counts model calls with their tools, `max_tokens` input and output tokens together,
    `max_seconds` wall-clock seconds from the start of the execution, `max_cost` US dollars, `deadline` is a moment in
    time.
    """

    max_steps: int | None = Field(default=None, ge=0)
    max_tokens: int | None = Field(default=None, ge=0)
    max_seconds: float | None = Field(default=None, ge=0, le=SECONDS_MAX)
    max_cost: float | None = Field(default=None, ge=0)
    deadline: AwareDatetime | None = None
    unpriced: UnpricedPolicy | None = None
    """What becomes of models without a known price; none is `warn`."""

    @classmethod
    def unlimited(cls) -> ExecutionBudget:
        """Return the budget that limits nothing."""
        return cls()

    @property
    def is_empty(self) -> bool:
        """True when nothing is limited."""
        return self == ExecutionBudget(unpriced=self.unpriced)

    def is_exhausted(self, at: datetime | None = None) -> bool:
        """Return whether a limit is zero or the deadline has passed at `at`.

        Only a budget with a deadline needs the moment; InvalidInput where that is missing.
        """
        limits = (self.max_steps, self.max_tokens, self.max_seconds, self.max_cost)
        if any(limit is not None and limit <= 0 for limit in limits):
            return True
        if self.deadline is None:
            return False
        if at is None:
            raise InvalidInput("this budget has a deadline: give the moment, is_exhausted(datetime.now(UTC))")
        return at >= self.deadline

    def remaining(
        self, *, steps_used: int = 0, tokens_used: int = 0, seconds_used: float = 0.0, cost_used: float = 0.0
    ) -> ExecutionBudget:
        """Return what is left after the given use, floored at zero; an unset limit stays unset.

        A deadline is a moment and stays as it is.
        """
        return replace(
            self,
            max_steps=None if self.max_steps is None else max(0, self.max_steps - steps_used),
            max_tokens=None if self.max_tokens is None else max(0, self.max_tokens - tokens_used),
            max_seconds=None if self.max_seconds is None else max(0.0, self.max_seconds - seconds_used),
            max_cost=None if self.max_cost is None else max(0.0, self.max_cost - cost_used),
        )

    def capped_by(self, other: ExecutionBudget) -> ExecutionBudget:
        """Return the tighter of both, limit by limit."""
        return ExecutionBudget(
            max_steps=_tighter(self.max_steps, other.max_steps),
            max_tokens=_tighter(self.max_tokens, other.max_tokens),
            max_seconds=_tighter(self.max_seconds, other.max_seconds),
            max_cost=_tighter(self.max_cost, other.max_cost),
            deadline=_tighter(self.deadline, other.deadline),
            unpriced="refuse" if "refuse" in (self.unpriced, other.unpriced) else self.unpriced or other.unpriced,
        )

    def overridden_by(self, other: ExecutionBudget) -> ExecutionBudget:
        """Return this budget with every limit that `other` sets taken from `other`."""
        return replace(self, **other.model_dump(exclude_none=True))

    def for_child(self, remainder: ExecutionBudget, policy: BudgetPolicy) -> ExecutionBudget:
        """Return the effective budget of a subagent that declares this one, when its parent has `remainder` left."""
        return self if policy == "own" else self.capped_by(remainder)

    def shared_by(self, children: int) -> ExecutionBudget:
        """Return one of `children` equal parts of what can be used up only once: steps, tokens and cost."""
        return replace(
            self,
            max_steps=None if self.max_steps is None else self.max_steps // children,
            max_tokens=None if self.max_tokens is None else self.max_tokens // children,
            max_cost=None if self.max_cost is None else self.max_cost / children,
        )

    def ends_at(self, started_at: datetime, *, paused_seconds: float = 0.0) -> datetime | None:
        """Return the moment the time limit strikes for an execution begun at `started_at`, or none.

        `paused_seconds` do not count toward `max_seconds`; a deadline is not moved by them.
        """
        if self.max_seconds is None:
            return self.deadline
        try:
            by_seconds = started_at + timedelta(seconds=self.max_seconds + paused_seconds)
        except OverflowError:  # beyond what calendars hold
            return self.deadline
        return _tighter(by_seconds, self.deadline)


def _tighter(one: LimitT | None, other: LimitT | None) -> LimitT | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
