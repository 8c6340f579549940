"""Saying on standard error what takes its time, while it does: on a terminal only, and after a second."""

from __future__ import annotations

import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from rich.markup import escape
from rich.status import Status

from holdfast.cli.screens.output import aside
from holdfast.core.base.safe_text import printable

QUIET_SECONDS: Final = 1.0
"""What takes no longer than this says nothing."""

ASKING: Final = "asking the server"


class BusyIndicator:
    """Words that turn up a second after `says`, and go away with `done` or before anything else is printed."""

    def __init__(self) -> None:
        self._shows = sys.stderr.isatty() and aside().is_terminal and not aside().is_dumb_terminal
        self._timer: threading.Timer | None = None
        self._status: Status | None = None
        self._lock = threading.Lock()

    def says(self, words: str) -> None:
        """Say `words` from a second from now on; what was said before goes away."""
        self.done()
        if self._shows:
            timer = threading.Timer(QUIET_SECONDS, lambda: self._begin(words, timer))
            timer.daemon = True
            self._timer = timer
            timer.start()

    def done(self) -> None:
        """Take the words away, and leave the line as it was."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._status is not None:
                self._status.stop()
                self._status = None

    def _begin(self, words: str, timer: threading.Timer) -> None:
        with self._lock:
            if self._timer is timer:  # nobody was quicker, nor has said something else
                self._status = Status(f"[dim]{escape(printable(words))} …[/dim]", console=aside())
                self._status.start()


@contextmanager
def busy(words: str) -> Generator[BusyIndicator]:
    """Say what the block does once it has taken a second; nothing may be printed within it without `done`."""
    showing = BusyIndicator()
    showing.says(words)
    try:
        yield showing
    finally:
        showing.done()
