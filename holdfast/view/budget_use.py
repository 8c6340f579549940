"""How much of each limit of a budget is used, for bars. Asks nothing and draws nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from holdfast.core.agent.budget import COST, LIMITS, BudgetUse, ExecutionBudget


@dataclass(frozen=True, slots=True)
class Share:
    """One limit, by its name or `deadline`, and how much of `most` is `used`, in its unit (the deadline's: seconds).

    Tokens of the `unpriced` models are not in its US dollars.
    """

    limit: str
    used: float
    most: float
    unpriced: tuple[str, ...] = ()

    @property
    def fraction(self) -> float:
        """From 0 to 1; a limit of nothing is used up."""
        return 1.0 if self.most <= 0 else min(1.0, max(0.0, self.used / self.most))


def shares(budget: ExecutionBudget, used: BudgetUse, *, started_at: datetime, now: datetime) -> tuple[Share, ...]:
    """Return how much of each limit that is set is used at `now`."""

    def each() -> Iterator[Share]:
        for limit in LIMITS:
            most = limit.of(budget)
            if most is not None:
                yield Share(limit.name, limit.used(used), most, used.unpriced if limit is COST else ())
        if budget.deadline is not None:
            seconds = (budget.deadline - started_at).total_seconds()
            yield Share("deadline", (now - started_at).total_seconds(), seconds)

    return tuple(each())


def tightest(of: Iterable[Share]) -> Share | None:
    """Return the limit of which most is used, the first of equals; none without limits."""
    return max(of, key=lambda share: share.fraction, default=None)
