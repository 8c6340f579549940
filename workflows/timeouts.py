"""How long calls of ours may take, with all their attempts: one table. A lost attempt always leaves room for others.

Model and tool calls are not in it: their definition, their tool and the run's time limit say how long those may take.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from temporalio.common import RetryPolicy

LOSSES_MIN: Final = 2
"""So many attempts may take all their time, with the longest wait behind each, and another one still fits."""


@dataclass(frozen=True, slots=True)
class CallTimes:
    """One attempt takes `attempt` at the most, all of them together `total`; the wait between two grows to `wait`.

    No number of attempts ends a call: workers and servers that die burn them, and what is final says so itself. Raises
    ValueError where no retry would fit: the server then ends the call with its first lost attempt.
    """

    attempt: timedelta
    total: timedelta
    wait: timedelta

    def __post_init__(self) -> None:
        needed = self.attempt * (LOSSES_MIN + 1) + self.wait * LOSSES_MIN
        if self.total < needed:
            raise ValueError(f"{LOSSES_MIN} lost attempts need {needed} in all, there are {self.total}")

    @property
    def retry(self) -> RetryPolicy:
        """How the server makes the attempts."""
        return RetryPolicy(initial_interval=timedelta(seconds=0.2), maximum_interval=self.wait)


def _seconds(attempt: float, total: float, wait: float) -> CallTimes:
    return CallTimes(timedelta(seconds=attempt), timedelta(seconds=total), timedelta(seconds=wait))


WEEK: Final = 7 * 24 * 3_600

RESOLVE: Final = _seconds(15, 60, 2)
"""Learning what a worker offers; the first time it reads its whole table of prices, on a machine that may be busy."""

FIND: Final = _seconds(10, WEEK, 5)
"""Looking a session up as it begins: it is there as soon as the store is, and nobody who asked is refused for good."""

BRANCH: Final = _seconds(20, 90, 5)
"""Looking up a place to go on from: whoever asked for it waits, and is told when it cannot be read."""

KEEP: Final = _seconds(60, WEEK, 30)
"""Keeping a session that leaves the server."""

RECORD: Final = _seconds(60, 240, 10)
"""Keeping an execution that stands alone: then it ends without a record, and says so."""

SESSION_RECORD: Final = _seconds(60, WEEK, 10)
"""Keeping an execution of a session, whose conversation goes on from what is kept."""

TABLE: Final = (RESOLVE, FIND, BRANCH, KEEP, RECORD, SESSION_RECORD)
