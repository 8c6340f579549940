"""A command of ours in a real terminal: what it shows is what a person sees, cell by cell. Needs tmux."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import subprocess
import time
from collections.abc import Generator
from uuid import uuid4

import pytest

from tests.cli.program import Project

TMUX = shutil.which("tmux") or ""

needs_tmux = pytest.mark.skipif(not TMUX, reason="tmux is not installed")

LOOK_SECONDS = 0.1


class Tmux:
    """One terminal, of a tmux server of its own."""

    def __init__(self, socket: str) -> None:
        self._socket = socket

    def __call__(self, *arguments: str) -> str:
        command = [TMUX, "-L", self._socket, "-f", "/dev/null", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=90)
        assert done.returncode == 0, (arguments, done.stderr)
        return done.stdout

    def screen(self) -> str:
        """What is to be seen now."""
        return self("capture-pane", "-p", "-t", "it")

    def shows(self, *words: str, seconds_max: float = 90) -> str:
        """Return the screen once all these words stand on it."""
        deadline = time.monotonic() + seconds_max
        while not all(each in (screen := self.screen()) for each in words):
            assert time.monotonic() < deadline, f"never showed {words}:\n{screen}"
            time.sleep(LOOK_SECONDS)
        return screen

    def types(self, *keys: str) -> None:
        """Press keys, by tmux's names."""
        self("send-keys", "-t", "it", *keys)

    def resize(self, columns: int, lines: int) -> None:
        self("resize-window", "-t", "it", "-x", str(columns), "-y", str(lines))


@contextlib.contextmanager
def tmux(project: Project, command: str, *, columns: int = 100, lines: int = 30) -> Generator[Tmux]:
    """Run a line of shell in a terminal around the block; `holdfast` is ours."""
    socket = f"holdfast-{uuid4()}"
    terminal = Tmux(socket)
    command = f"trap : INT; {command}"  # a Ctrl-C is for the program, not for its shell
    env = {**project.env, "LANG": "C.UTF-8", "TERM": "tmux-256color", "PATH": f"{project.program.parent}:/usr/bin:/bin"}
    given = " ".join(f"{name}={shlex.quote(value)}" for name, value in env.items())
    line = f"cd {shlex.quote(str(project.folder))} && exec env -i {given} sh -c {shlex.quote(command)}"
    try:
        terminal("-u", "new-session", "-d", "-s", "it", "-x", str(columns), "-y", str(lines), line)
        yield terminal
    finally:
        subprocess.run([TMUX, "-L", socket, "kill-server"], capture_output=True, check=False, timeout=90)
