"""Whose turn it is to begin, of the calls that may have killed a worker: one at a time, so that the one is found."""

from __future__ import annotations

import asyncio
from typing import Final

PROOF_SECONDS: Final = 0.25
"""How long a turn lasts: what kills a worker mostly does at once. Ten times longer with each further death."""

PROOF_SECONDS_MAX: Final = 15.0
"""How long a turn lasts at the most: less than the others wait for theirs (`attempt_admission.TURN_SECONDS_MAX`)."""

PROOFS_SECONDS: Final = 1.0
"""How long the turns of all that wait take together, as long as one death is all that is known of them."""


class CrashSuspects:
    """The turns of one worker process."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._waiting = 0
        self._whose: object = None

    async def take(self, deaths: int, whose: object) -> float:
        """Wait for the turn, and return how long it lasts unless the call ends before."""
        self._waiting += 1
        try:
            await self._lock.acquire()
        finally:
            self._waiting -= 1
        self._whose = whose
        if deaths > 1:
            return min(PROOF_SECONDS * 10.0 ** min(deaths - 1, 2), PROOF_SECONDS_MAX)
        return min(PROOF_SECONDS, PROOFS_SECONDS / (self._waiting + 1))

    def end(self, whose: object) -> None:
        """End the turn, if it is theirs."""
        if self._whose is whose and self._lock.locked():
            self._whose = None
            self._lock.release()
