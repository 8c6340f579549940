"""Whose turn it is to begin, of the calls that may have killed a worker: one at a time, so that the one is found."""

from __future__ import annotations

import asyncio
from typing import Final

PROOF_SECONDS: Final = 0.25
"""How long a turn lasts: a call that kills a worker mostly does so at once. Ten times longer per further death."""

PROOF_SECONDS_MAX: Final = 15.0
"""The longest turn: shorter than the wait of the others for theirs (`attempt_admission.TURN_SECONDS_MAX`)."""

PROOFS_SECONDS: Final = 1.0
"""How long the turns of all waiting calls take together, while each is linked to one death only."""


class CrashSuspects:
    """The turns of one worker process."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._waiting = 0
        self._whose: object = None

    async def take(self, deaths: int, whose: object) -> float:
        """Wait for the turn and return its length in seconds; the call may end before."""
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
        """End the turn, if it belongs to `whose`."""
        if self._whose is whose and self._lock.locked():
            self._whose = None
            self._lock.release()
