"""How much of each limit of a budget is used: what bars show. Asks nothing and draws nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from holdfast.core.agent.budget import ExecutionBudget

LimitName = Literal["steps", "tokens", "cost", "seconds", "deadline"]


@dataclass(frozen=True, slots=True)
class Used:
    """What an execution has used; `cost` in US dollars without the `unpriced` models, `seconds` that count."""

    steps: int = 0
    tokens: int = 0
    cost: float = 0.0
    seconds: float = 0.0
    unpriced: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Share:
    """One limit: how much of `most` is `used`; steps, tokens, US dollars (without `unpriced` models) or seconds."""

    limit: LimitName
    used: float
    most: float
    unpriced: tuple[str, ...] = ()

    @property
    def fraction(self) -> float:
        """From 0 to 1; a limit of nothing is used up."""
        return 1.0 if self.most <= 0 else min(1.0, max(0.0, self.used / self.most))


def shares(budget: ExecutionBudget, used: Used, *, started_at: datetime, now: datetime) -> tuple[Share, ...]:
    """Return how much of each limit that is set is used at `now`."""

    def each() -> Iterator[Share]:
        if budget.max_steps is not None:
            yield Share("steps", used.steps, budget.max_steps)
        if budget.max_tokens is not None:
            yield Share("tokens", used.tokens, budget.max_tokens)
        if budget.max_cost is not None:
            yield Share("cost", used.cost, budget.max_cost, used.unpriced)
        if budget.max_seconds is not None:
            yield Share("seconds", used.seconds, budget.max_seconds)
        if budget.deadline is not None:
            given = (budget.deadline - started_at).total_seconds()
            yield Share("deadline", (now - started_at).total_seconds(), given)

    return tuple(each())


def tightest(of: Iterable[Share]) -> Share | None:
    """Return the limit of which most is used, the first of equals; none without limits."""
    return max(of, key=lambda share: share.fraction, default=None)
