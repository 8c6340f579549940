"""Retry rules for failed calls, the same under every driver. Waits for nothing itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from holdfast.core.base.errors import ModelFailure
from holdfast.core.base.usage import Usage, room_after

BUDGET_SPENT: Final = "BudgetSpent"
"""The kind of the failure of a call whose failed attempts have used up what the budget left for it."""


class OutputLimits(Protocol):
    """The output limits of a model call, as `commands.CallModel` has them."""

    @property
    def max_output_tokens(self) -> int | None:
        """The most for one attempt; none leaves it to the provider."""
        ...

    @property
    def room(self) -> int | None:
        """What the budget leaves for all attempts; none when it is unlimited."""
        ...

    @property
    def input_weight(self) -> float:
        """How much of `room` an input token of a failed attempt uses up."""
        ...

    @property
    def input_max(self) -> int | None:
        """The most tokens that the call's input can have, none where nothing depends on that."""
        ...


def allowed_output(limits: OutputLimits, failed: Usage) -> int | None:
    """Return the output limit of the attempt after those that used `failed`; ModelFailure when nothing is left."""
    room = room_after(limits.room, failed, limits.input_weight)
    if room is not None and room <= 0:
        used = f"its failed attempts used {failed.total_tokens} tokens"
        raise ModelFailure(f"the budget has nothing left for the model call: {used}; allow more", kind=BUDGET_SPENT)
    if room is None or limits.max_output_tokens is None:
        return limits.max_output_tokens
    return min(limits.max_output_tokens, room)


@dataclass(frozen=True, slots=True)
class BackOff:
    """The wait after the first failure is `first_seconds`, then it doubles, up to `longest_seconds`."""

    first_seconds: float
    longest_seconds: float

    def wait_seconds(self, attempt: int) -> float:
        """Return how long to wait after the failed attempt of that number (from 1)."""
        doubled = self.first_seconds * 2.0 ** min(attempt - 1, DOUBLINGS_MAX)
        return min(self.longest_seconds, doubled)


@dataclass(frozen=True, slots=True)
class RetryRule(BackOff):
    """A back-off that ends after `attempts_max` attempts."""

    attempts_max: int


DOUBLINGS_MAX: Final = 64
"""After this many doublings a wait exceeds any `longest_seconds`; many more would overflow."""

MODEL_SECONDS_MAX: Final = 600.0
"""One attempt of a model call; a non-streaming endpoint is silent for all of it."""

RATE_WAIT_SECONDS_MAX: Final = 3_600.0
"""How long one attempt of a model call may wait in its worker for its route's rate limits, before it is made anew."""

MODEL_PATIENCE_SECONDS: Final = 900.0
"""How long a model call is tried by default: an endpoint that is away for minutes is an ordinary day."""

FALLBACK_PATIENCE_SECONDS: Final = 10.0
"""How long a model call is tried that another route can answer: long enough for a hiccup, not for an outage."""

MODEL_BACK_OFF: Final = BackOff(first_seconds=0.5, longest_seconds=30.0)
"""Between the attempts of a model call, which the clock alone ends (`next_wait_seconds`)."""

NAMED_WAITS_MAX: Final = 5
"""After this many failed attempts our own wait counts when it is longer than the one the endpoint asks for.

An endpoint that always says "at once" would be called hundreds of times a second for as long as patience lasts.
"""

TOOL_RETRIES: Final = RetryRule(attempts_max=3, first_seconds=0.2, longest_seconds=10.0)
"""For a tool call whose worker was lost, that took too long, or that raised what its tool wants to be tried again."""

SCRIPT_RETRIES: Final = RetryRule(attempts_max=3, first_seconds=0.2, longest_seconds=10.0)
"""For a script of Code Mode whose process was lost: it can be killed from outside."""


def next_wait_seconds(attempt: int, named_seconds: float | None, waited: float, patience: float) -> float | None:
    """Return how long to wait before the next attempt of a model call; none when patience is over.

    `attempt` (from 1) has failed `waited` seconds after the first one began; `named_seconds` is the wait that the
    endpoint asked for. Any wait is cut to what is left of `patience`: the last attempt comes at its very end.
    """
    left = patience - waited
    if left <= 0:
        return None
    own = MODEL_BACK_OFF.wait_seconds(attempt)
    if named_seconds is None:
        return min(own, left)
    return min(named_seconds if attempt <= NAMED_WAITS_MAX else max(named_seconds, own), left)


def patience_of(seconds: float, *, may_fall_back: bool) -> float:
    """Return how long a call is tried whose definition says `seconds`."""
    return min(seconds, FALLBACK_PATIENCE_SECONDS) if may_fall_back else seconds


def give_up_text(message: str, attempts: int, patience: float) -> str:
    """Return the error text of a model call that is given up."""
    tried = "1 attempt" if attempts == 1 else f"{attempts} attempts"
    return f"{message}; given up after {tried} (model_patience_seconds is {patience:g})"
