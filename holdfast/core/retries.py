"""How often and how long a failed call is tried again, the same under every driver. Waits for nothing itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


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
