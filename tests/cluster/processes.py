"""Programs of a cluster: each ends with the process that started it, and is killed and started again by a test."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

STOP_SECONDS_MAX: Final = 20.0
"""How long a program may take to end by itself before it is killed."""

STARTER: Final = ThreadPoolExecutor(1, thread_name_prefix="cluster")
"""Linux sends the death signal when the thread ends that has started a program: this one stays."""

LINE_CHARS_MAX: Final = 400
"""How much of a line of a log is shown: the server's hold stack traces."""


class Program:
    """One program, started at once; its output is appended to `log`."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        environment: Mapping[str, str],
        *,
        user: str | None = None,
        stop: signal.Signals = signal.SIGTERM,
    ) -> None:
        self.name = name
        self.log = log
        self._command = list(command)
        self._environment = dict(environment)
        self._user = user
        self._stop = stop
        self._process = self._started()

    @property
    def pid(self) -> int:
        """The process id of the last start."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """What it ended with, negative for a signal; None while it runs."""
        return self._process.poll()

    def kill(self) -> None:
        """Kill it, and return once it is gone."""
        self._process.kill()
        self._process.wait(STOP_SECONDS_MAX)

    def start_again(self, program: str | None = None) -> None:
        """Start it anew after it has ended, as another `program` with the same arguments if that is given."""
        assert not self.alive, f"{self.name} runs"
        if program is not None:
            self._command[0] = program
        self._process = self._started()

    def stop(self) -> None:
        """Ask it to end, then make it."""
        if self.alive:
            self._process.send_signal(signal.SIGCONT)  # one that a test has frozen hears nothing
            self._process.send_signal(self._stop)
            try:
                self._process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self.kill()

    def last_words(self, lines: int = 20) -> str:
        """Return the end of its log."""
        return "\n".join(line[:LINE_CHARS_MAX] for line in self.log.read_text(errors="replace").splitlines()[-lines:])

    def _started(self) -> subprocess.Popen[bytes]:
        return STARTER.submit(self._start).result()

    def _start(self) -> subprocess.Popen[bytes]:
        command = ["setpriv", "--pdeathsig", "KILL", *as_user(self._user), "--", *self._command]
        with self.log.open("ab") as output:
            return subprocess.Popen(
                command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )


def as_user(user: str | None) -> list[str]:
    """Return what makes `setpriv` change to that user; None stays who we are."""
    return [] if user is None else ["--reuid", user, "--regid", user, "--init-groups"]


def environment(**more: str) -> dict[str, str]:
    """Return what programs of a cluster are told: how to find others, and nothing of the tests'."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TZ") if name in os.environ}
    return {**kept, **more}
