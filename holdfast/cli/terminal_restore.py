"""Restores the terminal when a signal ends the program while it draws."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

ENDS: Final = (signal.SIGTERM, signal.SIGHUP)
"""The signals that end a program without a word; Ctrl-C comes as a cancellation anyway."""


@contextmanager
def put_back() -> Generator[None]:
    """Around the drawing: on a signal that ends us, cancel it first, and end by that very signal afterwards.

    To be entered in the task that draws, within which everything is put back as it is cancelled.
    """
    loop, drawing = asyncio.get_running_loop(), asyncio.current_task()
    received: list[signal.Signals] = []

    def ended(by: signal.Signals, task: asyncio.Task[Any] | None) -> None:
        received.append(by)
        if task is not None:
            task.cancel()

    for each in ENDS:
        loop.add_signal_handler(each, ended, each, drawing)
    try:
        yield
    finally:
        for each in ENDS:
            loop.remove_signal_handler(each)
        if received:
            os.kill(os.getpid(), received[0])
