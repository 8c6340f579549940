"""The files that go with the next message of a chat: `/attach FILE` adds some, `/detach` drops them. Sends nothing."""

from __future__ import annotations

import asyncio
import shlex
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdfast.cli.screens import output
from holdfast.core.base.errors import InvalidInput
from holdfast.core.conversation.attachments import Attachment, size_text
from holdfast.runtime.files.message_files import MessageFile, message_files

ATTACH: Final = "/attach"
DETACH: Final = "/detach"

NONE: Final = f"no file is attached; {ATTACH} FILE has one go with your next message"


class ChatFiles:
    """Files that wait for the next message; `waiting` are the first ones."""

    def __init__(self, waiting: tuple[MessageFile | Attachment, ...] = ()) -> None:
        self._waiting = waiting

    @property
    def waiting(self) -> tuple[MessageFile | Attachment, ...]:
        """Those that go with the next message."""
        return self._waiting

    def sent(self) -> None:
        """Take note that they have gone out."""
        self._waiting = ()

    async def take(self, line: str) -> bool:
        """Do what a line says about files, and say what is attached then; return false for any other line."""
        command, rest = (*line.split(maxsplit=1), "")[:2]
        if command == DETACH and not rest:
            self._waiting = ()
        elif command == ATTACH:
            try:
                self._waiting = await asyncio.to_thread(message_files, (*self._waiting, *paths_in(rest)))
            except InvalidInput as error:
                output.hint(f"not attached: {error}")
                return True
        else:
            return False
        self.show()
        return True

    def show(self) -> None:
        """Say what is attached."""
        files = [each if isinstance(each, Attachment) else each.attachment for each in self._waiting]
        named = "; ".join(f"{each.name}, {each.media_type}, {size_text(each.size)}" for each in files)
        output.hint(f"with your next message: {named}" if files else NONE)


def paths_in(text: str) -> list[str]:
    """Return the paths that somebody has typed or dropped there: one as it is, or some as a shell reads them."""
    if not text.strip():
        return []
    whole = _path(text.strip())
    with suppress(OSError, ValueError):  # no path at all: several words, say
        if whole.exists():
            return [str(whole)]
    try:
        words = shlex.split(text)
    except ValueError:  # a quote that does not end
        words = [text.strip()]
    return [str(_path(each)) for each in words]


def _path(text: str) -> Path:
    """Return a path with the home folder that it names; as it is where there is no such user."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)
