"""Terminal input: editable lines at a prompt, and keys pressed while an agent works."""

from __future__ import annotations

import asyncio
import codecs
import os
import sys
import termios
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from prompt_toolkit import PromptSession
from prompt_toolkit.output.vt100 import Vt100_Output

LINE_BYTES_MAX: Final = 65_536
"""More than a terminal gives of a line that is not edited at a prompt."""

LOCAL_FLAGS: Final = 3
"""Where termios keeps the flags of echo and of whole lines."""

CTRL_C: Final = "\x03"
CTRL_D: Final = b"\x04"


class LeaveRequest(Exception):  # not an error: Ctrl-C or Ctrl-D
    """The person wants to leave; `interrupted` when it was Ctrl-C that said so."""

    def __init__(self, *, interrupted: bool) -> None:
        super().__init__()
        self.interrupted = interrupted


class Keyboard:
    """The terminal that standard input is."""

    def __init__(self) -> None:
        output = Vt100_Output.from_pty(sys.stdout, term=os.environ.get("TERM"))
        output.enable_cpr = False  # a prompt of one line does not need what not every terminal answers
        self._session: PromptSession[str] = PromptSession(output=output)
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._typed = ""
        self._closed = False

    async def line(self, prompt: str, draft: str = "") -> str:
        """Return a line that is typed at a prompt and begins as `draft`; Ctrl-C drops what is typed.

        Cancelled, the prompt goes from the screen; `draft` has what was typed. Raises LeaveRequest.
        """
        self._session.app.erase_when_done = False
        try:
            return await self._session.prompt_async(prompt, default=draft, handle_sigint=False)
        except KeyboardInterrupt:
            if self.draft:
                return ""
            raise LeaveRequest(interrupted=True) from None
        except EOFError:
            raise LeaveRequest(interrupted=False) from None

    @property
    def draft(self) -> str:
        """What has been typed at the prompt so far."""
        return self._session.default_buffer.text

    @property
    def entered(self) -> bool:
        """True from the key that ends the prompt until the prompt is gone: to cancel it would lose the line."""
        return self._session.app.is_done

    def put_away(self) -> None:
        """Have a prompt that is cancelled leave nothing on the screen."""
        self._session.app.erase_when_done = True

    @contextmanager
    def unechoed(self) -> Generator[None]:
        """Have the terminal show nothing of what is typed by itself, while the block runs."""
        terminal = sys.stdin.fileno()
        before = termios.tcgetattr(terminal)
        quiet = termios.tcgetattr(terminal)
        quiet[LOCAL_FLAGS] &= ~(termios.ECHO | termios.ICANON)
        termios.tcsetattr(terminal, termios.TCSADRAIN, quiet)
        try:
            yield
        finally:
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)

    @contextmanager
    def listening(self) -> Generator[asyncio.Event]:
        """Give an event that is set once something is typed without a prompt while the block runs: see `typed`."""

        def read() -> None:
            keys = os.read(sys.stdin.fileno(), LINE_BYTES_MAX)
            self._closed = self._closed or not keys or CTRL_D in keys
            self._typed += self._decoder.decode(keys)
            loop.remove_reader(sys.stdin)  # what comes next is for the prompt that shows it
            pressed.set()

        pressed = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(sys.stdin, read)
        try:
            yield pressed
        finally:
            loop.remove_reader(sys.stdin)

    def typed(self) -> tuple[list[str], str]:
        """Return the whole lines typed without a prompt, and the beginning of the next. Raises LeaveRequest.

        Ctrl-C is a signal while there is no prompt, but a key when it was pressed just before the prompt went.
        """
        if self._closed:
            raise LeaveRequest(interrupted=False)
        typed, self._typed = self._typed, ""
        if CTRL_C in typed:
            raise LeaveRequest(interrupted=True)
        # Enter that was pressed while a prompt had the terminal is not yet the end of a line
        *lines, draft = typed.replace("\r", "\n").split("\n")
        return lines, draft if draft.isprintable() else ""  # an arrow or the like is no text
