"""Ends a process that used the Temporal SDK or obstore, whose threads can crash a finalising interpreter."""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Final, NoReturn

SETTLING_SECONDS: Final = 0.1
"""How long a thread of the SDK may take to leave Python: it needs microseconds, and a loaded machine some patience."""


_last: Final = list[Callable[[], None]]()


def before_leaving(last: Callable[[], None]) -> None:
    """Register a function that `leave` calls before it ends the process; it must return soon, whatever happens."""
    _last.append(last)


def leave(code: int) -> NoReturn:
    """End without interpreter finalization, which can crash under the SDK's threads (sdk-python #300: 134, 139)."""
    for last in _last:
        with suppress(Exception):
            last()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


@cache
def settle_at_exit() -> None:
    """Have a normal exit of this process wait until the SDK's threads have left Python; idempotent.

    A thread that delivers a result still waits for the GIL after we have continued with that result. If finalization
    finds it waiting, the thread is killed in mid-call and takes the process with it (134, 139). So we release the GIL
    once before: exit code, traceback and the program's own exit handlers stay as they are.
    """
    atexit.register(time.sleep, SETTLING_SECONDS)
