"""How often and how long a failed call is tried again, the same under every driver. Waits for nothing itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from holdfast.core.errors import ModelFailure
from holdfast.core.usage import Usage, room_after

BUDGET_SPENT: Final = "BudgetSpent"
"""The kind of the failure of a call whose failed attempts have used up what the budget left for it."""


class OutputLimits(Protocol):
    """What a model call may put out, as `commands.CallModel` says it."""

    @property
    def max_output_tokens(self) -> int | None:
        """The most for one attempt, none where that is the provider's business."""
        ...

    @property
    def room(self) -> int | None:
        """What the budget leaves for all attempts, none where it limits nothing."""
        ...

    @property
    def input_weight(self) -> float:
        """What an input token of an attempt that failed counts of it."""
        ...


def allowed_output(asked: OutputLimits, failed: Usage) -> int | None:
    """Return what the next attempt may put out after others used `failed`; raises ModelFailure when that is nothing."""
    room = room_after(asked.room, failed, asked.input_weight)
    if room is not None and room <= 0:
        used = f"its failed attempts used {failed.total_tokens} tokens"
        raise ModelFailure(f"the budget has nothing left for the model call: {used}; allow more", kind=BUDGET_SPENT)
    if room is None or asked.max_output_tokens is None:
        return asked.max_output_tokens
    return min(asked.max_output_tokens, room)


@dataclass(frozen=True, slots=True)
class RetryRule:
    """At most `attempts_max` attempts; the wait after the first failure is `first_seconds`, then it doubles."""

    attempts_max: int
    first_seconds: float
    longest_seconds: float

    def wait_seconds(self, attempt: int) -> float:
        """Return how long to wait after the failed attempt of that number (from 1)."""
        return min(self.longest_seconds, self.first_seconds * 2.0 ** (attempt - 1))


MODEL_SECONDS_MAX: Final = 600.0
"""One attempt of a model call; a non-streaming endpoint is silent for all of it."""

MODEL_RETRIES: Final = RetryRule(attempts_max=6, first_seconds=0.5, longest_seconds=30.0)
"""About 16 s of patience with an endpoint that is down, more when it names its own wait."""

TOOL_RETRIES: Final = RetryRule(attempts_max=3, first_seconds=0.2, longest_seconds=10.0)
"""For a tool call whose worker was lost, that took too long, or that raised what its tool wants to be tried again."""
