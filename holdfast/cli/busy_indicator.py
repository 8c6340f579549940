"""A progress line on standard error for work of more than a second, on a terminal only."""

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
    """A line that appears a second after `show_later`; `done` removes it, and so does anything else that is printed."""

    def __init__(self) -> None:
        self._shows = sys.stderr.isatty() and aside().is_terminal and not aside().is_dumb_terminal
        self._timer: threading.Timer | None = None
        self._status: Status | None = None
        self._words = ""
        self._lock = threading.Lock()

    def show_later(self, words: str) -> None:
        """Show `words` a second from now, in place of what was shown before."""
        self.done()
        self._words = words
        if self._shows:
            timer = threading.Timer(QUIET_SECONDS, lambda: self._begin(timer))
            timer.daemon = True
            self._timer = timer
            timer.start()

    @property
    def is_shown(self) -> bool:
        """Whether there is a terminal that shows it."""
        return self._shows

    def change(self, words: str) -> None:
        """Show `words` in place of those that are shown, or are to be shown."""
        with self._lock:
            self._words = words
            if self._status is not None:
                self._status.update(_markup(words))

    def done(self) -> None:
        """Take the words away, and leave the line as it was."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._status is not None:
                self._status.stop()
                self._status = None

    def _begin(self, timer: threading.Timer) -> None:
        with self._lock:
            if self._timer is timer:  # nobody was quicker, nor has said something else
                self._status = Status(_markup(self._words), console=aside())
                self._status.start()


def _markup(words: str) -> str:
    return f"[dim]{escape(printable(words))} …[/dim]"


@contextmanager
def busy(words: str) -> Generator[BusyIndicator]:
    """Say what the block does once it has taken a second; nothing may be printed within it without `done`."""
    indicator = BusyIndicator()
    indicator.show_later(words)
    try:
        yield indicator
    finally:
        indicator.done()
