"""`TokenBucket`: what may be used of so much per minute, as one process counts it. It waits for nothing itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

SHARE: Final = 0.95
"""How much of a limit is given out steadily. The rest is for what comes at once, and for requests that are late: two
that left a second apart can arrive together."""

AT_ONCE_SHARE: Final = 0.03
"""How much of a limit may be used at once, after a pause; one call at least."""

DEBT_MINUTES_MAX: Final = 10.0
"""How far a call can overdraw a bucket: a provider's absurd figure must not stop a route for good."""


def steady_rate(per_minute: float) -> float:
    """Return how much of a limit is given out per second."""
    return SHARE * per_minute / 60


class TokenBucket:
    """Fills steadily with SHARE of `per_minute`, up to AT_ONCE_SHARE of it.

    What is taken may be more than there is: the next ones wait until it has been made up for. So one call can be
    larger than what may be used at once, and the sum stays within the limit.
    """

    def __init__(self, per_minute: float, clock: Callable[[], float]) -> None:
        self._per_minute, self._clock = per_minute, clock
        self._per_second = steady_rate(per_minute)
        self._capacity = max(1.0, AT_ONCE_SHARE * per_minute)
        self._level, self._at = self._capacity, clock()

    def wait_seconds(self, amount: float) -> float:
        """Return how long until `amount` may be taken."""
        return max(0.0, (min(amount, self._capacity) - self._filled()) / self._per_second)

    def take(self, amount: float) -> None:
        """Use `amount`, or give it back where it is negative."""
        lowest = -DEBT_MINUTES_MAX * self._per_minute
        self._level = min(self._capacity, max(lowest, self._filled() - amount))

    def lower_to(self, left: float) -> None:
        """Have no more than `left`: the provider has counted more than this process."""
        self._level = min(self._filled(), max(left, 0.0))

    def _filled(self) -> float:
        now = self._clock()
        self._level = min(self._capacity, self._level + (now - self._at) * self._per_second)
        self._at = now
        return self._level
