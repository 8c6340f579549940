"""A command of ours in a terminal of its own: what a person types, and what the screen shows."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Generator

from tests.cli.program import Project
from tests.forked import ForkedProcess

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\x1b\].*?\x07")
"""How a program moves the cursor and colours text."""

PROMPT = re.compile(r">(?! \d)")
"""The sign behind which one types; one before a number belongs to a cost."""

HEARD_SECONDS_MAX = 30

CTRL_C, CTRL_D, ENTER, BACKSPACE = "\x03", "\x04", "\r", "\x7f"


class Terminal:
    """A terminal of 24 lines of 100 characters with one command in it."""

    def __init__(self, screen: int, process: subprocess.Popen[bytes] | ForkedProcess) -> None:
        self._screen = screen
        self._process = process
        self.shown = ""
        """What has been written on the screen, without colours."""
        self._seen = 0

    def types(self, keys: str) -> None:
        """Press keys."""
        os.write(self._screen, keys.encode())

    def leaves(self, key: str, words: str) -> None:
        """Press Ctrl-C or Ctrl-D until `words` stand on the screen, which takes a second press at most.

        Python hears no Ctrl-C that comes in the moment between a prompt's last character and its waiting for keys.
        """
        self.types(key)
        try:
            self.shows(words, HEARD_SECONDS_MAX)
        except AssertionError:
            self.types(key)
            self.shows(words)

    def shows(self, words: str, seconds_max: float = 90) -> None:
        """Return when `words` stand on the screen, behind those that were waited for before."""
        self._matches(re.compile(re.escape(words)), seconds_max)

    def prompts(self, seconds_max: float = 90) -> None:
        """Return when one can type, behind what was waited for before."""
        self._matches(PROMPT, seconds_max)

    def _matches(self, words: re.Pattern[str], seconds_max: float) -> None:
        deadline = time.monotonic() + seconds_max
        while (found := words.search(self.shown, self._seen)) is None:
            self._heard(deadline, f"showed {words.pattern!r}")
            assert self._read(), f"ended without {words.pattern!r}: {self.shown!r}"
        self._seen = found.end()

    def stays(self, seconds: float) -> str:
        """Return what is written within so many seconds."""
        before, deadline = len(self.shown), time.monotonic() + seconds
        while select.select([self._screen], [], [], max(0.0, deadline - time.monotonic()))[0] and self._read():
            pass
        return self.shown[before:]

    def ended(self, seconds_max: float = 90) -> int:
        """Return the exit code, once the command has ended."""
        deadline = time.monotonic() + seconds_max
        self._heard(deadline, "ended")
        while self._read():
            self._heard(deadline, "ended")
        return self._process.wait(seconds_max)

    def _heard(self, deadline: float, what: str) -> None:
        """Wait until there is something to take in; fail at the deadline, by when the command never did `what`."""
        ready, _, _ = select.select([self._screen], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"never {what}: {self.shown!r}"

    def _read(self) -> bool:
        """Take in what is written; False when there is nobody to write any more."""
        try:
            piece = os.read(self._screen, 65536)
        except OSError:  # Linux says so when the other side has gone
            return False
        self.shown += ESCAPES.sub("", piece.decode(errors="replace"))
        return bool(piece)


@contextlib.contextmanager
def terminal(project: Project, *arguments: str) -> Generator[Terminal]:
    """Run a command in a terminal around the block."""
    screen, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    process = _started(project, arguments, side)
    os.close(side)
    try:
        yield Terminal(screen, process)
    finally:
        process.kill()
        process.wait()
        os.close(screen)


def _started(project: Project, arguments: tuple[str, ...], side: int) -> subprocess.Popen[bytes] | ForkedProcess:
    """Start a command whose session's terminal is `side`, as a login's is."""
    env = {**project.env, "TERM": "xterm"}
    if project.forks:
        return ForkedProcess("holdfast", arguments, env, project.folder, (side, side, side), terminal=True)
    return subprocess.Popen(
        [project.program, *arguments],
        cwd=project.folder,
        env=env,
        stdin=side,
        stdout=side,
        stderr=side,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509  # so that Ctrl-C is a signal
    )
