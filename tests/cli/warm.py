"""The real command line in processes that need not import it first: a warm one forks for each call.

A call is a process of its own with its own arguments, streams and exit code, as started by a shell; it takes a tenth of
the time, so that hundreds of calls fit into a test run. Real starts are what `test_dev.py`, `test_surroundings.py` and
all tests of a project of their own have.
"""

from __future__ import annotations

import importlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tests.cli.program import HOLDFAST, Ended, Project

AT_ONCE = 3
"""So many calls run at the same time."""

SECONDS_MAX = 90


class _Process:
    """One warm process; it answers one call at a time."""

    def __init__(self, project: Project) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from tests.cli.warm import serve; serve()"],
            cwd=Path(__file__).parents[2],
            env={**project.env, "PYTHONPATH": "."},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, folder: Path, arguments: tuple[str, ...], said: str, env: Mapping[str, str]) -> Ended:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with tempfile.TemporaryDirectory() as streams:
            files = {name: f"{streams}/{name}" for name in ("in", "out", "err")}
            Path(files["in"]).write_text(said, encoding="utf-8", errors="surrogateescape")
            began = time.monotonic()
            asked = {"arguments": arguments, "folder": str(folder), "env": dict(env), **files}
            self._process.stdin.write(json.dumps(asked) + "\n")
            self._process.stdin.flush()
            code = int(self._process.stdout.readline())
            seconds = time.monotonic() - began
            out, err = (
                Path(files[name]).read_text(encoding="utf-8", errors="surrogateescape") for name in ("out", "err")
            )
        return Ended(code, out, err, seconds)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class Warm:
    """Runs commands in a project's folder, up to AT_ONCE at the same time."""

    def __init__(self, project: Project) -> None:
        self.project = self.warmed(project)
        self._free: queue.SimpleQueue[_Process | None] = queue.SimpleQueue()
        self._all: list[_Process] = []
        for _ in range(AT_ONCE):
            self._free.put(None)  # one that is not there yet

    def run(self, *arguments: str, said: str = "", **env: str) -> Ended:
        """Run a command to its end, with further variables."""
        return self.run_in(self.project.folder, {**self.project.env, **env}, arguments, said)

    def warmed(self, project: Project) -> Project:
        """Return a project whose commands run here as well."""
        return replace(project, warm=partial(self.run_in, project.folder))

    def run_in(self, folder: Path, env: Mapping[str, str], arguments: tuple[str, ...], said: str) -> Ended:
        """Run a command to its end in a folder, with these variables alone."""
        process = self._free.get(timeout=SECONDS_MAX * 2)
        try:
            if process is None:
                process = _Process(self.project)
                self._all.append(process)
            return process.run(folder, arguments, said, env)
        finally:
            self._free.put(process)

    def both(self, *arguments: str) -> tuple[Ended, Ended]:
        """Run a command as it is and with `--json`, at the same time."""
        with ThreadPoolExecutor(2) as pool:
            plain, as_json = pool.submit(self.run, *arguments), pool.submit(self.run, *arguments, "--json")
            return plain.result(), as_json.result()

    def close(self) -> None:
        """End the processes."""
        for each in self._all:
            each.close()


@contextmanager
def warm(project: Project) -> Generator[Warm]:
    """Have warm processes around the block."""
    opened = Warm(project)
    try:
        yield opened
    finally:
        opened.close()


def serve() -> None:
    """Be a warm process: fork for each line of standard input, and write the exit code of the call."""
    from holdfast.cli import main  # noqa: PLC0415  # a warm process alone

    for name in ("holdfast.client.holdfast", "holdfast.view.report"):
        importlib.import_module(name)

    for line in sys.stdin:
        asked: dict[str, Any] = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _become(asked)
            main.main()
        sys.stdout.write(f"{_code(pid)}\n")
        sys.stdout.flush()


def _become(asked: dict[str, Any]) -> None:
    """Make this process what a shell would have started."""
    for number, (name, flags) in enumerate(
        (("in", os.O_RDONLY), ("out", os.O_WRONLY | os.O_CREAT), ("err", os.O_WRONLY | os.O_CREAT))
    ):
        opened = os.open(asked[name], flags, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
    sys.argv = ["holdfast", *asked["arguments"]]
    sys.path[0] = str(HOLDFAST.parent)
    os.environ.clear()
    os.environ.update(asked["env"])
    os.setsid()
    os.chdir(asked["folder"])


def _code(pid: int) -> int:
    """Return the exit code of a call; it is ended when it takes too long."""
    until = time.monotonic() + SECONDS_MAX
    while time.monotonic() < until:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return -9
