"""Starts tool calls one after another, slowly if they hold the interpreter's lock: else no end would be reported.

C code that holds the lock (a parser, a regular expression) blocks every thread of its process. With many such calls
started at once, the event loop is one of many threads that wait for the lock, and gets it once in minutes. They
run one after another in any case; started one after another, they let the loop report each end in between.
"""

from __future__ import annotations

import asyncio
from typing import Final

STALL_SECONDS: Final = 0.5
"""An event loop that runs a callback this late was blocked."""

SLOW_BEGINNINGS: Final = 3
"""How many calls start slowly after each time that the loop was blocked."""

PAUSE_SECONDS: Final = 0.001
"""The least time between two starts: enough to notice a call that holds the lock."""

CALM_SECONDS: Final = 0.004
CALM_TURNS: Final = 25
"""How many loop turns, CALM_SECONDS apart, must be on time before a slow start. A call's end takes some 15."""

LATE_TURNS_MAX: Final = 3
"""After this many late turns the call starts anyway: a call that holds the lock in slices must not delay all others
until its end."""


class Pacer:
    """The starts of one worker process's tool calls."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._started_at = 0.0
        self._slow = 0

    async def take(self) -> None:
        """Wait until a call may start: no other is starting, and the loop is not blocked. `give` must follow."""
        await self._lock.acquire()
        try:
            await self._calm()
        except BaseException:
            self._lock.release()
            raise

    def give(self) -> None:
        """Let the next call start once the thread of the current one has started."""
        loop = asyncio.get_running_loop()
        self._started_at = loop.time()
        loop.call_soon(self._release)

    def _release(self) -> None:
        self._is_late(self._started_at)
        self._lock.release()

    async def _calm(self) -> None:
        clock = asyncio.get_running_loop().time
        in_time = late = 0
        while True:
            now = clock()
            if not self._slow and now - self._started_at >= PAUSE_SECONDS:
                return
            if self._slow and (in_time >= CALM_TURNS or late >= LATE_TURNS_MAX):
                self._slow -= 1
                return
            pause = CALM_SECONDS if self._slow else PAUSE_SECONDS
            await asyncio.sleep(pause)
            if self._is_late(now + pause):
                late += 1
            else:
                in_time += 1

    def _is_late(self, due: float) -> bool:
        """Return whether `due` passed so long ago that the loop was blocked; if so, the next calls start slowly."""
        if asyncio.get_running_loop().time() - due < STALL_SECONDS:
            return False
        self._slow = SLOW_BEGINNINGS
        return True
