"""Has tool calls begin one after another, slowly where they keep the interpreter's lock: else none is heard to end.

Code in C that keeps the lock (a parser, a regular expression) stops every thread of its process. With many such calls
begun at once the event loop is one of many that wait for the lock, and gets it once in minutes. They run one after
another in any case; begun one after another they let the loop report each of them in between.
"""

from __future__ import annotations

import asyncio
from typing import Final

STALL_SECONDS: Final = 0.5
"""An event loop that comes to its turn so much too late stood still."""

SLOW_BEGINNINGS: Final = 3
"""So many calls begin slowly after each time that it stood still."""

PAUSE_SECONDS: Final = 0.001
"""The least time between the beginnings of two calls: enough to notice one that keeps the lock."""

CALM_SECONDS: Final = 0.004
CALM_TURNS: Final = 25
"""So many turns, CALM_SECONDS apart, a loop that stood still must have had in time before a call begins slowly.
The end of a call and its report take some fifteen."""

LATE_TURNS_MAX: Final = 3
"""After so many that it came to late the call begins all the same: one that keeps the lock in slices must not keep all
others waiting to its end."""


class Pacer:
    """The beginnings of one worker process's tool calls."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._started_at = 0.0
        self._slow = 0

    async def take(self) -> None:
        """Return when a call may begin: no other is at it, and the loop turns as it should. Then `give` must follow."""
        await self._lock.acquire()
        try:
            await self._calm()
        except BaseException:
            self._lock.release()
            raise

    def give(self) -> None:
        """Have the next call begin, once the thread of the one that has just been made a task has started."""
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
        """Return whether it is so much later than `due` that the loop stood still; then calls begin slowly."""
        if asyncio.get_running_loop().time() - due < STALL_SECONDS:
            return False
        self._slow = SLOW_BEGINNINGS
        return True
