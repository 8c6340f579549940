"""What a person types in a terminal: lines at a prompt, which can be edited, and plain ones while an agent works."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

from prompt_toolkit import PromptSession
from prompt_toolkit.output.vt100 import Vt100_Output

LINE_BYTES_MAX: Final = 65_536
"""More than a terminal gives of a line that is not edited at a prompt."""


class Leaving(Exception):  # not an error: Ctrl-D
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

    async def line(self, prompt: str, draft: str = "") -> str:
        """Return a line that is typed at a prompt and begins as `draft`; Ctrl-C drops what is typed. Raises Leaving.

        Cancelled, the prompt goes from the screen; `draft` has what was typed.
        """
        self._session.app.erase_when_done = False
        try:
            return await self._session.prompt_async(prompt, default=draft, handle_sigint=False)
        except KeyboardInterrupt:
            if self.draft:
                return ""
            raise Leaving(interrupted=True) from None
        except EOFError:
            raise Leaving(interrupted=False) from None

    @property
    def draft(self) -> str:
        """What has been typed at the prompt so far."""
        return self._session.default_buffer.text

    def put_away(self) -> None:
        """Have a prompt that is cancelled leave nothing on the screen."""
        self._session.app.erase_when_done = True

    @contextmanager
    def heard(self, tell: Callable[[str | Leaving], None]) -> Generator[None]:
        """Tell of each line that is typed without a prompt, while the block runs."""

        def read() -> None:
            typed = os.read(sys.stdin.fileno(), LINE_BYTES_MAX)
            if not typed:
                loop.remove_reader(sys.stdin)
            tell(typed.decode(errors="replace").rstrip("\n") if typed else Leaving(interrupted=False))

        loop = asyncio.get_running_loop()
        loop.add_reader(sys.stdin, read)
        try:
            yield
        finally:
            loop.remove_reader(sys.stdin)
