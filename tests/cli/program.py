"""The real program `holdfast` in a user's folder: starting it, listening to it, finding its processes."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

import pytest

from holdfast.client import Settings
from holdfast.testing.script import Call, Reply, Script, call, calls, say
from tests.forked import Forked, fork_request, forks
from tests.server_credentials import ADDRESS, CREDENTIALS

HOLDFAST = Path(sys.executable).with_name("holdfast")
PROJECT = Path(__file__).parent / "project"
READY = "worker ready"
KEPT = ("PATH", "HOME", "LANG", "SSL_CERT_FILE")
"""What our own environment may tell the program; nothing of Temporal, OpenAI or ours."""

embedded_only = pytest.mark.skipif(
    ADDRESS is not None, reason="it is about `holdfast dev` and its server; HOLDFAST_TEST_ADDRESS names another"
)

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, or needs the death signal")


def beside(settings: Settings) -> dict[str, str]:
    """Return the environment of a program that is to meet the server, the worker and the storage of a test."""
    told = {
        **CREDENTIALS,
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "COLUMNS": "200",
        "TEMPORAL_ADDRESS": settings.address or "",
        "HOLDFAST_TASK_QUEUE": settings.task_queue,
        "HOLDFAST_STORAGE": settings.storage or "",
    }
    if settings.encryption_key_file:
        told["HOLDFAST_ENCRYPTION_KEY_FILE"] = str(settings.encryption_key_file)
    return told


STORY = "Once upon a time, " * 20 + "\x1b[31mthe end."
"""What the teller tells, piece by piece, after"""

BROKEN_OFF = Reply(text="Long ago", piece_chars=4, piece_seconds=0.8, pieces_max=3, disconnect=True)
"""a first attempt."""

LETTER = "Dear customer, six times seven is forty-two, and nine times seven is sixty-three. " * 4
"""What the writer writes, and does not come to an end with."""


def clerk(request: dict[str, Any]) -> Reply:
    """Tell how many messages there were and what the last one says, or do what it says."""
    said = [str(message["content"]) for message in request["messages"] if message["role"] == "user"]
    if request["messages"][-1]["role"] == "tool":
        return say(f"it is {request['messages'][-1]['content']}")
    turns = {
        "multiply": call("multiply", a=6, b=7),
        "slow": say("at last " * 600, piece_chars=8, piece_seconds=0.1),
        "fail": Reply(status=401, text="no such key"),
    }
    return turns.get(said[-1]) or say(f"{len(said)}: {said[-1]}")


SCRIPTS: Mapping[str, Script] = {
    "scripted": [call("multiply", a=6, b=7), say("42")],
    "slow": [say("at last", delay_seconds=600)],
    "refused": [Reply(status=401, text="no such key")],
    "teller": [say(STORY, piece_seconds=0.05, failures=(BROKEN_OFF,))],
    "clerk": clerk,
    "lead": [call("spawn", agent="clerk", task="one"), say("so it is")],
    "boss": [call("spawn", agent="warden", task="multiply"), say("so it is")],
    "desk": [
        call("multiply", a=6, b=7),
        calls(Call("multiply", {"a": 9, "b": 7}), Call("spawn", {"agent": "writer", "task": "a letter"})),
        say("42 and 63"),
    ],
    "writer": [Reply(text=LETTER, piece_chars=8, piece_seconds=0.02, pieces_max=16, hang=True)],
    "payer": [call("spawn", agent="guest", task="look"), say("paid")],
    "nobodys-model": [say("free"), say("free again")],
    "artist": [call("draw"), say("drawn")],
    "napper": [call("nap", seconds=20), say("awake")],
}
"""What the models of the project's agents say."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command went."""

    code: int
    out: str
    err: str
    seconds: float

    @property
    def document(self) -> Any:  # noqa: ANN401  # what JSON holds
        """Standard output, which must be one JSON document on one line and nothing else."""
        assert self.out.count("\n") == 1, f"not one line: {self.out!r}"
        assert self.out.endswith("\n"), f"not a whole line: {self.out!r}"
        return json.loads(self.out)


class Running:
    """A command under way; what it prints is collected by threads of their own."""

    def __init__(self, process: subprocess.Popen[str] | Forked) -> None:
        self.process = process
        self.pid = process.pid
        self._began = self._over = time.monotonic()
        self._out: list[str] = []
        self._err: list[str] = []
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        assert process.stdout is not None
        assert process.stderr is not None
        self._listeners = [self._listen(process.stdout, self._out), self._listen(process.stderr, self._err)]

    def _listen(self, stream: IO[str], kept: list[str]) -> threading.Thread:
        def listen() -> None:
            for line in stream:
                kept.append(line)
                self._lines.put(line)
            self._over = time.monotonic()  # whoever asks for the end may ask much later

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        return thread

    def heard(self, words: str, seconds_max: float = 90) -> str:
        """Return the next line, of either stream, that holds `words`."""
        deadline = time.monotonic() + seconds_max
        try:
            while words not in (line := self._lines.get(timeout=max(0.0, deadline - time.monotonic()))):
                pass
        except queue.Empty:
            raise AssertionError(f"never said {words!r}: {self._out} {self._err}") from None
        return line

    def said(self, text: str) -> None:
        """Write `text` to its standard input and end that."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError), self.process.stdin as stdin:
            stdin.write(text)

    def ended(self, seconds_max: float = 90) -> Ended:
        """Wait for its end."""
        code = self.process.wait(seconds_max)
        for listener in self._listeners:
            listener.join(5)
        return Ended(code, "".join(self._out), "".join(self._err), self._over - self._began)

    def close(self) -> None:
        """End it whatever it does."""
        self.process.kill()
        self.process.wait()
        for listener in self._listeners:
            listener.join(5)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


@dataclass(frozen=True, slots=True)
class Project:
    """A user's folder, and the environment in which commands run there."""

    folder: Path
    env: Mapping[str, str]
    program: Path = HOLDFAST
    warm: bool = True
    """Whether its commands are forked where their environment allows that; see `tests/forked.py`."""
    address: str | None = None
    """Where the server is that HOLDFAST_TEST_ADDRESS names; none where `dev` starts one."""

    @classmethod
    def at(cls, folder: Path, endpoint: str, built: Path | None = None, address: str | None = None) -> Project:
        """Copy the project to `folder`, and a data directory `built` before into it; its models are at `endpoint`.

        With an `address`, its commands use the server there, on a task queue that no other project has.
        """
        shutil.copytree(PROJECT, folder, ignore=shutil.ignore_patterns("__pycache__"))
        if built is not None and address is None:
            shutil.copytree(built, folder / "data")
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        own = {"HOLDFAST_DATA_DIR": str(folder / "data"), "HOLDFAST_MODEL": "scripted", "OPENAI_BASE_URL": endpoint}
        if address is not None:
            own |= {**CREDENTIALS, "TEMPORAL_ADDRESS": address, "HOLDFAST_TASK_QUEUE": f"cli-{uuid4()}"}
        return cls(folder, {**kept, **own, "OPENAI_API_KEY": "test-key"}, address=address)

    @property
    def is_alone(self) -> bool:
        """Whether nobody else begins anything on the server meanwhile: what is last there is of this project."""
        return self.address is None

    @property
    def settings(self) -> Settings:
        """What a client of the same server and folder is given."""
        return Settings.from_environment(self.env, address=self.address, agents_dir=self.folder / "agents")

    def where(self, *without: str, **env: str) -> Project:
        """Return the same folder with other variables."""
        kept = {name: value for name, value in self.env.items() if name not in without}
        return replace(self, env={**kept, **env})

    @property
    def cold(self) -> Project:
        """The same folder; each of its commands is a real start, as a user's."""
        return replace(self, warm=False)

    @property
    def forks(self) -> bool:
        """Whether a command is forked."""
        return self.warm and self.program == HOLDFAST and forks(self.env)

    def on_path(self, folder: Path) -> Path:
        """Return the folder for PATH in which a shell finds the program: `folder`, where commands are forked."""
        if not self.forks:
            return self.program.parent
        script = folder / self.program.name
        script.write_text(f'#!/bin/sh\nexec {shlex.join(fork_request("holdfast"))} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
        return folder

    def start(self, *arguments: str) -> Running:
        """Start a command in a session of its own, as a terminal would."""
        if self.forks:
            errors = "surrogateescape"
            return Running(Forked("holdfast", arguments, self.env, self.folder, apart=True, errors=errors))
        return Running(
            subprocess.Popen(
                [self.program, *arguments],
                cwd=self.folder,
                env=dict(self.env),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                encoding="utf-8",
                errors="surrogateescape",
                start_new_session=True,
            )
        )

    def run(self, *arguments: str, said: str = "", seconds_max: float = 90) -> Ended:
        """Run a command to its end."""
        with self.started(*arguments) as running:
            running.said(said)
            return running.ended(seconds_max)

    def both(self, *arguments: str, said: str = "", seconds_max: float = 90) -> tuple[Ended, Ended]:
        """Run a command as it is and with `--json`, at the same time."""
        with self.started(*arguments) as plain, self.started(*arguments, "--json") as as_json:
            for running in (plain, as_json):
                running.said(said)
            return plain.ended(seconds_max), as_json.ended(seconds_max)

    @contextlib.contextmanager
    def started(self, *arguments: str) -> Generator[Running]:
        """Run a command around the block."""
        running = self.start(*arguments)
        try:
            yield running
        finally:
            running.close()

    @contextlib.contextmanager
    def dev(self, *arguments: str) -> Generator[Running]:
        """Run `holdfast dev` on free ports; its worker serves when the block begins, nothing is left after it.

        Where the project is on a named server, run `holdfast worker` there.
        """
        program = ("dev", "--port", "0", "--ui-port", "0") if self.address is None else ("worker",)
        command = (*program, "--import", "my_tools", *arguments)
        with self.started(*command) as dev:
            dev.heard(READY)
            try:
                yield dev
            finally:
                left = children(dev.pid)
                watched = Watched(left)
                dev.process.kill()  # abruptly: a graceful end takes its time and is a test of its own
                for pid in left:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                watched.all_end()


def start_id(project: Project, agent: str = "assistant", *options: str) -> str:
    """Start a run without waiting for it and return its id."""
    started = project.run("run", agent, "what is six times seven?", "--detach", *options)
    assert started.code == 0, started
    return started.out.strip()


def children(pid: int) -> list[int]:
    """Return the processes that `pid` has started and that still run."""
    found: list[int] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            if int(parent) == pid and state != "Z":
                found.append(int(stat.parent.name))
    return sorted(found)


def worker_of(dev: Running) -> int:
    """Return the pid of the worker that `dev` has started."""
    return _child(dev, b"\0worker\0")


def server_of(dev: Running) -> int:
    """Return the pid of the server that `dev` has started."""
    return _child(dev, b"\0start-dev\0")


def _child(dev: Running, argument: bytes) -> int:
    found: list[int] = []
    for pid in children(dev.pid):
        with contextlib.suppress(OSError):  # a process can end while we look
            if argument in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    [child] = found
    return child


class Watched:
    """Processes whose end can be awaited, whoever started them; to be made while they run."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._open: list[int] = []
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                self._open.append(os.pidfd_open(pid))

    def all_end(self, seconds_max: float = 90) -> bool:
        """Return whether all of them end within the time."""
        deadline = time.monotonic() + seconds_max
        left = set(self._open)
        try:
            while left and time.monotonic() < deadline:
                left -= set(select.select(sorted(left), [], [], max(0.0, deadline - time.monotonic()))[0])
            return not left
        finally:
            for each in self._open:
                os.close(each)
