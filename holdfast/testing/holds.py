"""`Hold`: keeps a scripted tool's call waiting until the test releases it, from any thread. Knows no tools."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

SECONDS_MAX: Final = 60.0
"""How long a test waits for a call to come or to be cancelled unless it says otherwise: a bound for what hangs."""


class Hold:
    """A result that is not there yet: the call stands until `release` or `fail`, or until it is cancelled.

    The tool may run on another thread's loop, as in a worker: every method may be called from anywhere. Let go once,
    it holds no later call either.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting = set[Future[None]]()
        self._open = False
        self._value: object = None
        self._error: BaseException | None = None
        self._held = 0
        self._cancelled = 0

    @property
    def held(self) -> int:
        """How many calls have come so far, those included that have gone on."""
        return self._held

    @property
    def cancelled(self) -> int:
        """How many of them were cancelled while they stood here."""
        return self._cancelled

    def release(self, value: object = None) -> None:
        """Let every call go on, now and later, with `value` as its result."""
        self._let_go(value, None)

    def fail(self, error: Exception) -> None:
        """Let every call end with `error`."""
        self._let_go(None, error)

    def wait_until_held(self, calls: int = 1, seconds_max: float = SECONDS_MAX) -> None:
        """Block until so many calls have come; TimeoutError after `seconds_max`."""
        self._wait(lambda: self._held >= calls, f"{calls} calls to come", seconds_max)

    def wait_until_cancelled(self, calls: int = 1, seconds_max: float = SECONDS_MAX) -> None:
        """Block until so many calls have been cancelled; TimeoutError after `seconds_max`."""
        self._wait(lambda: self._cancelled >= calls, f"{calls} calls to be cancelled", seconds_max)

    async def until_held(self, calls: int = 1, seconds_max: float = SECONDS_MAX) -> None:
        """Do what `wait_until_held` does without blocking the event loop."""
        await asyncio.to_thread(self.wait_until_held, calls, seconds_max)

    async def until_cancelled(self, calls: int = 1, seconds_max: float = SECONDS_MAX) -> None:
        """Do what `wait_until_cancelled` does without blocking the event loop."""
        await asyncio.to_thread(self.wait_until_cancelled, calls, seconds_max)

    async def stand(self) -> object:
        """Wait as a call does, and return or raise what the test let it go with."""
        arrived = Future[None]()
        with self._changed:
            self._held += 1
            if self._open:
                arrived.set_result(None)
            else:
                self._waiting.add(arrived)
            self._changed.notify_all()
        try:
            await asyncio.wrap_future(arrived)
        except asyncio.CancelledError:
            with self._changed:
                self._cancelled += 1
                self._waiting.discard(arrived)
                self._changed.notify_all()
            raise
        if self._error is not None:
            raise self._error.with_traceback(None)
        return self._value

    def _let_go(self, value: object, error: BaseException | None) -> None:
        with self._changed:
            self._open, self._value, self._error = True, value, error
            waiting = tuple(self._waiting)
            self._waiting.clear()
        for arrived in waiting:
            if arrived.set_running_or_notify_cancel():  # a call that is being cancelled has no use for it
                arrived.set_result(None)

    def _wait(self, reached: Callable[[], bool], what: str, seconds_max: float) -> None:
        with self._changed:
            if self._changed.wait_for(reached, seconds_max):
                return
        counts = f"{self._held} have come, {self._cancelled} were cancelled"
        raise TimeoutError(f"waited {seconds_max:g} s for {what}; {counts}")
