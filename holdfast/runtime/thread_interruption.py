"""Interrupts sync code in a thread of its own, as cancelling does with async code. Starts no threads.

Tools and hooks use `shielded` and `CallCancelled`; `Interruptible` is for whoever calls them.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

LOCK_SECONDS_MAX: Final = 0.1
"""How long whoever interrupts waits for a call that is just beginning, ending or leaving a shielded part."""


class CallCancelled(BaseException):
    """Raised inside a sync tool or hook that is cancelled; code that catches it to clean up should raise it again.

    It comes between two steps of Python code: a call into the system that blocks (a long `time.sleep`) ends first.
    """


class Interruptible:
    """One call in one thread: can be interrupted from any other thread, once, between `begin` and `end`."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # reentrant: an interrupt can come while its own thread is taking it
        self._thread = 0
        self._shields = 0
        self._requested = self._raised = self._ended = False

    def begin(self) -> None:
        """Bind the call to the current thread; raises CallCancelled when it was interrupted before."""
        _here.call = self
        with self._lock:
            self._thread = threading.get_ident()
            self._raise_if_due()

    def end(self) -> None:
        """Prevent any further interrupt in the thread."""
        for _ in range(2):  # the interrupt can fall into the first round
            try:
                with self._lock:
                    self._ended = True
                    # an exception that is set and not yet raised would hit the next call in this pooled thread
                    _raise_in(self._thread, None)
            except CallCancelled:
                continue
            return

    def interrupt(self) -> None:
        """Raise CallCancelled in the call's thread: now, when its shielded part ends, or when it begins."""
        # a thread in C code that holds the lock must not hold up the event loop
        if not self._lock.acquire(timeout=LOCK_SECONDS_MAX):
            return
        try:
            self._requested = True
            if self._thread and not (self._ended or self._shields or self._raised):
                self._raised = True
                _raise_in(self._thread, CallCancelled)
        finally:
            self._lock.release()

    def shield(self) -> None:
        """Keep interrupts out until as many `unshield` have come."""
        with self._lock:
            self._shields += 1

    def unshield(self) -> None:
        """Let interrupts in again; raises CallCancelled when one has come meanwhile."""
        with self._lock:
            self._shields -= 1
            self._raise_if_due()

    def _raise_if_due(self) -> None:
        if self._requested and not (self._ended or self._shields or self._raised):
            self._raised = True
            raise CallCancelled


_here = threading.local()


@contextmanager
def shielded() -> Generator[None]:
    """Defer interrupts of the block: for what a sync tool must not leave half done. Without effect outside a call."""
    call: Interruptible | None = getattr(_here, "call", None)
    if call is None:
        yield
        return
    call.shield()
    try:
        yield
    finally:
        call.unshield()


def _raise_in(thread: int, kind: type[BaseException] | None) -> None:
    """Have Python raise `kind` in `thread`; none takes back what has not been raised yet."""
    value = None if kind is None else ctypes.py_object(kind)
    # CPython's only way into another thread: raised at the next bytecode, never within a C call
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), value)
