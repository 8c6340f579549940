"""How much an execution may use (docs/spec.md, section 5), as pure arithmetic. Nothing here measures anything.

LIMITS is the table that checks, metrics, screens, reports, options and documents follow. A further limit is a row of
it, its fields in this module's classes, what `ExecutionState.use_of_calls` counts for it, and its `StopReason`. The
deadline stands apart: it is a moment, and nothing of it is used up.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Final, Literal, NamedTuple, TypeVar

from pydantic import AwareDatetime, Field

from holdfast.core.base.bounds import SECONDS_MAX
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.frozen import Frozen, is_none, replace
from holdfast.core.base.json_form import JsonForm
from holdfast.core.base.usage import NOTHING_USED, Usage
from holdfast.core.conversation.stop_reasons import StopReason

LimitT = TypeVar("LimitT", int, float, datetime)

BudgetPolicy = Literal["inherit", "own"]
"""How a subagent's budget follows from its parent's: `inherit` caps its own by what the parent has left, so that a tree
never passes its root; `own` uses its own alone."""


UnpricedPolicy = Literal["warn", "refuse"]
"""What happens with a model that has no known price: `warn` calls it, and `max_cost` counts nothing for it; `refuse`
fails the run before the call."""

ServerToolsPolicy = Literal["refuse", "allow"]
"""What happens under a limit of tokens or cost with an agent whose model's provider runs tools (`LLM.server_tools`):
`refuse` fails the run before the call, since no provider says beforehand what they read and ask for; `allow` makes it,
and a call can pass the limit by what they took."""


class BudgetUse(NamedTuple):
    """What an execution and its subagents have used of each limit.

    `cost` is in US dollars, without the tokens of the `unpriced` models; `seconds` are those that count.
    """

    steps: int = 0
    tokens: int = 0
    cost: float = 0.0
    seconds: float = 0.0
    unpriced: tuple[str, ...] = ()


class TreeUse(Frozen):
    """What an execution and its subagents have used of limits that a tree shares; the parent adds it to its own.

    `cost` is in US dollars, without the tokens of the `unpriced` models.
    """

    steps: int = Field(default=0, ge=0)
    usage: Usage = NOTHING_USED
    cost: float = Field(default=0.0, ge=0)
    unpriced: tuple[str, ...] = ()

    @classmethod
    def all_of(cls, budget: ExecutionBudget, model: str) -> TreeUse:
        """Return all that `budget` allows: the use of an execution that cannot report it.

        `model` stands for the models that it may have used without a limit to the cost.
        """
        tokens = budget.max_tokens or 0
        return cls(
            steps=budget.max_steps or 0,
            usage=Usage(input_tokens=tokens, estimated_tokens=tokens),
            cost=budget.max_cost or 0.0,
            unpriced=(model,) if budget.max_cost is None else (),
        )


@dataclasses.dataclass(frozen=True, slots=True, eq=False)  # a row is itself: it is looked up at every step
class Limit:
    """One limit of a budget.

    Args:
        name: what is limited, as in `BudgetUse` and in metrics; the budget's field is `max_` and the name.
        unit: what it is counted in, for people.
        reason: why an execution stops that reaches it.
        used: how much of it was used.
        number: whether it is counted whole (int) or not (float).
        checked: where it is checked (docs/spec.md, 4.8): `step`, before each step; `call`, also before and after each
            model call; `timer`, at any moment.
        shared: whether it is used up only once, so that subagents beside each other get equal parts of it.
        counts: what counts, for the documents.
        symbol: the unit's short form, written after an amount.
        precise: the format of a used amount in a stop signal.
    """

    name: str
    unit: str
    reason: StopReason
    used: Callable[[BudgetUse], float]
    number: type[int | float]
    checked: Literal["step", "call", "timer"]
    counts: str
    shared: bool = True
    symbol: str = ""
    precise: str = ""
    field: str = dataclasses.field(init=False)
    of: Callable[[ExecutionBudget], float | None] = dataclasses.field(init=False)
    """What a budget allows; none when that is unlimited."""

    def __post_init__(self) -> None:
        """Derive the budget's field and a fast getter for it: every step reads it."""
        object.__setattr__(self, "field", f"max_{self.name}")
        object.__setattr__(self, "of", attrgetter(self.field))

    def written(self, allowed: float) -> str:
        """Return an amount that is allowed, as a stop signal writes it: `5`, or `0.5 USD`."""
        amount = f"{allowed}" if self.number is int else f"{allowed:g}"
        return f"{amount} {self.symbol}" if self.symbol else amount


STEPS: Final = Limit(
    "steps",
    unit="steps",
    reason=StopReason.STEPS_LIMIT,
    used=lambda use: use.steps,
    number=int,
    checked="step",
    counts="model calls with their tools; those of subagents too",
)
TOKENS: Final = Limit(
    "tokens",
    unit="tokens",
    reason=StopReason.TOKEN_LIMIT,
    used=lambda use: use.tokens,
    number=int,
    checked="call",
    counts="input and output of every model call: re-asks, summaries, subagents and every attempt that reached the "
    "endpoint included",
)
COST: Final = Limit(
    "cost",
    unit="US dollars",
    reason=StopReason.COST_LIMIT,
    used=lambda use: use.cost,
    number=float,
    checked="call",
    counts="what the tokens cost in US dollars, by prices that you give or that are known",
    symbol="USD",
    precise=".6f",
)
SECONDS: Final = Limit(
    "seconds",
    unit="seconds",
    reason=StopReason.TIME_LIMIT,
    used=lambda use: use.seconds,
    number=float,
    checked="timer",
    counts="the time since the execution began, through crashes and restarts",
    shared=False,
)

LIMITS: Final = (STEPS, TOKENS, COST, SECONDS)
"""Every limit, in the order in which people are shown them."""

STEP_LIMITS: Final = tuple(limit for limit in LIMITS if limit.checked == "step")
CALL_LIMITS: Final = tuple(limit for limit in LIMITS if limit.checked == "call")


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
    server_tools: ServerToolsPolicy | None = Field(default=None, exclude_if=is_none)
    """What becomes of tools that the provider runs, where tokens or cost are limited; none is `refuse`."""

    @classmethod
    def unlimited(cls) -> ExecutionBudget:
        """Return the budget that limits nothing."""
        return cls()

    @property
    def is_empty(self) -> bool:
        """True when nothing is limited."""
        return self == ExecutionBudget(unpriced=self.unpriced, server_tools=self.server_tools)

    @property
    def limits_tokens(self) -> bool:
        """True when tokens are limited, or what they cost."""
        return self.max_tokens is not None or self.max_cost is not None

    @property
    def refuses_server_tools(self) -> bool:
        """True when no tool of the provider's may run, as it could pass a limit."""
        return self.limits_tokens and self.server_tools != "allow"

    def is_exhausted(self, at: datetime | None = None) -> bool:
        """Return whether a limit is zero or the deadline has passed at `at`.

        Only a budget with a deadline needs the moment; InvalidInput where that is missing.
        """
        if any((allowed := limit.of(self)) is not None and allowed <= 0 for limit in LIMITS):
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
        return self.after(BudgetUse(steps=steps_used, tokens=tokens_used, cost=cost_used, seconds=seconds_used))

    def after(self, use: BudgetUse) -> ExecutionBudget:
        """Return what is left after `use`, as `remaining` does."""
        return self._changed(lambda limit, allowed: max(limit.number(0), allowed - limit.used(use)))

    def capped_by(self, other: ExecutionBudget) -> ExecutionBudget:
        """Return the tighter of both, limit by limit."""
        unpriced = "refuse" if "refuse" in (self.unpriced, other.unpriced) else self.unpriced or other.unpriced
        tighter = {limit.field: _tighter(limit.of(self), limit.of(other)) for limit in LIMITS}
        policies = {"unpriced": unpriced, "server_tools": _stricter(self, other)}
        return replace(self, **tighter, deadline=_tighter(self.deadline, other.deadline), **policies)

    def overridden_by(self, other: ExecutionBudget) -> ExecutionBudget:
        """Return this budget with every limit that `other` sets taken from `other`."""
        return replace(self, **other.model_dump(exclude_none=True))

    def for_child(self, remainder: ExecutionBudget, policy: BudgetPolicy) -> ExecutionBudget:
        """Return the effective budget of a subagent that declares this one, when its parent has `remainder` left."""
        return self if policy == "own" else self.capped_by(remainder)

    def shared_by(self, children: int) -> ExecutionBudget:
        """Return one of `children` equal parts of what can be used up only once: all but the time."""
        return self._changed(
            lambda limit, allowed: (
                (allowed // children if limit.number is int else allowed / children) if limit.shared else allowed
            )
        )

    def _changed(self, change: Callable[[Limit, float], float]) -> ExecutionBudget:
        """Return this budget with every limit that it sets changed."""
        allowed = ((limit, limit.of(self)) for limit in LIMITS)
        changes = {limit.field: change(limit, each) for limit, each in allowed if each is not None}
        return replace(self, **changes) if changes else self

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


def _stricter(one: ExecutionBudget, other: ExecutionBudget) -> ServerToolsPolicy | None:
    """Return the policy of both together: `allow` only where every one that has a limit to pass allows it."""
    policies = (one.server_tools, other.server_tools)
    if "refuse" in policies:
        return "refuse"
    allowed = "allow" in policies and not (one.refuses_server_tools or other.refuses_server_tools)
    return "allow" if allowed else None


def _tighter(one: LimitT | None, other: LimitT | None) -> LimitT | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
