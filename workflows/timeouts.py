"""The timeouts of our own activities, all attempts included: one table. Lost attempts always leave room for others.

Model and tool calls are not in it: the definition, the tool and the run's time limit bound those.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from temporalio.common import RetryPolicy

LOSSES_MIN: Final = 2
"""How many attempts may use all their time, with the longest wait after each, before the last one that fits."""


@dataclass(frozen=True, slots=True)
class CallTimes:
    """One attempt takes `attempt` at the most, all of them together `total`; the wait between two grows to `wait`.

    Attempts are not bounded by number: dying workers and servers use them up, and final errors say so. Raises
    ValueError where no retry would fit: the server would then end the call with its first lost attempt.
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
"""Resolving an agent's tools; the first time a worker reads its whole price table, maybe on a busy machine."""

MCP: Final = _seconds(90, 300, 10)
"""Listing the tools of an agent's MCP servers, which may have to be started first."""

FIND: Final = _seconds(10, WEEK, 5)
"""Looking a session up as it begins: waits for the store, so that no caller is refused for good."""

BRANCH: Final = _seconds(20, 90, 5)
"""Looking up a branch point: the caller waits, and gets an error when it cannot be read."""

KEEP: Final = _seconds(60, WEEK, 30)
"""Storing a session that leaves the server."""

RECORD: Final = _seconds(60, 240, 10)
"""Storing an execution without a session; after that it ends without a record, with a warning."""

SESSION_RECORD: Final = _seconds(60, WEEK, 10)
"""Storing an execution of a session, whose conversation continues from that snapshot."""

TABLE: Final = (RESOLVE, MCP, FIND, BRANCH, KEEP, RECORD, SESSION_RECORD)
