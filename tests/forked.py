"""Workers, commands and MCP servers forked from a warm process, which has imported their modules.

A start costs a tenth to a quarter of a real one. A fork is a process of its own as `python -m worker` or `holdfast` is:
its arguments, environment, streams, session and exit code are its own, and it is killed and frozen as any other. Real
starts are what `tests/test_tools_worker.py`, `tests/models/test_model_choice.py`, `tests/chaos/test_server_away.py`,
`tests/cli/test_surroundings.py` and the `cold` projects of `tests/cli/program.py` have. `tests/fork_request.py` is a
program that has itself forked: for what others start, a shell or a client of MCP servers.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, cast

from holdfast.server.worker_process import WorkerProcess, worker_environment

MODULES = (
    "worker",
    "openai",
    "openai.resources.chat",
    "holdfast.models.anthropic.model",
    "openai.resources.chat.completions",
    "openai.types.chat.completions",
    "holdfast.models.openai_chat.model",
    "holdfast.cli.main",
    "holdfast.client.holdfast",
    "holdfast.view.report",
    "genai_prices",
    "truststore",
    "httpcore2",
    "holdfast.testing",
    "mcp",
    "anyio._backends._asyncio",
    "uvicorn.lifespan.on",
    "uvicorn.protocols.http.auto",
    "uvicorn.protocols.websockets.auto",
    "rich.logging",
    "rich.columns",
    "rich.markdown",
    "rich.panel",
)
"""What a worker imports before its first call ends, and a command or an MCP server before it does anything."""

KEPT = ("PATH", "HOME", "LANG", "SSL_CERT_FILE")
"""What the warm process is told: what packages read as they are imported is as for the tests' own programs."""


OWN = ("HOLDFAST_", "OPENAI_")
"""How the variables begin that nothing reads as it is imported."""

READ_BY_PYTHON = ("PYTHON", "LANG", "LC_", "TZ", "LD_", "SSL_")
"""How the variables begin that are read before or beneath our modules; what these read, the warm process notices."""

HARMLESS = ("HOME",)
"""Read as modules are imported, for where a user's own packages would be: nothing of ours is there."""

UTF_8 = (None, "C.UTF-8", "en_US.UTF-8")
"""Values of LANG with which a program of ours is the same: Python takes the first as the second."""

REQUEST_BYTES_MAX = 128 * 1024
"""More than a command line and an environment take."""

START_SECONDS_MAX = 300
PID_BYTES = 32
FILES = 4
"""A request's: the three streams, and the line on which its process is told of."""

_ASKING = threading.Lock()
_BEGINNING = threading.Lock()


class WarmWorker(WorkerProcess):
    """A WorkerProcess whose process is forked, where its environment allows that."""

    def _started(self, command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
        if sys.platform != "linux" or not _differs_in_our_own(environment):
            return super()._started(command, environment)
        begin = list(command).index("worker") + 1
        forked = Forked("worker", command[begin:], environment, Path.cwd(), apart=False, errors="replace")
        return cast("subprocess.Popen[str]", forked)  # all of it that is used


def ready_files(files: Iterable[int], seconds_max: float | None) -> frozenset[int]:
    """Wait until one of the files can be read, or is at its end; return those that are, none when time is up.

    As `select.select`, which takes no file from 1,024 on.
    """
    watched = select.poll()
    for each in files:
        watched.register(each, select.POLLIN)
    return frozenset(file for file, _ in watched.poll(None if seconds_max is None else seconds_max * 1_000))


def _differs_in_our_own(environment: Mapping[str, str]) -> bool:
    """Whether the warm process, whose environment is this one's, can become a process with that environment."""
    here = worker_environment()
    names = here.keys() | environment.keys()
    return all(name.startswith(OWN) for name in names if here.get(name) != environment.get(name))


def forks(environment: Mapping[str, str]) -> bool:
    """Whether a command with that environment can be forked: nothing in it would have been read before it begins."""
    if sys.platform != "linux":
        return False
    warm, here = _warm(), _warm_environment()
    return not any(warm.heeds(name) and not _alike(name, value, here) for name, value in environment.items())


def _alike(name: str, value: str, here: Mapping[str, str]) -> bool:
    return value == here.get(name) or (name == "LANG" and value in UTF_8 and here.get(name) in UTF_8)


class ForkedProcess:
    """A process that is a child of the warm one: what our tests use of a Popen, but its streams."""

    def __init__(
        self,
        program: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        files: tuple[int, int, int],
        *,
        terminal: bool = False,
    ) -> None:
        """Start it with these three streams; with `terminal`, the first of them is the terminal of its session.

        `program` is "holdfast", "worker" or the path of a file of Python's.
        """
        self._line, theirs = socket.socketpair()
        request = {"program": program, "arguments": list(arguments), "environment": dict(environment)}
        told = json.dumps({**request, "folder": str(folder), "terminal": terminal}).encode()
        with _ASKING:
            socket.send_fds(_warm().line, [told], [*files, theirs.fileno()])
        theirs.close()
        self._lock = threading.Lock()
        self.returncode: int | None = None
        assert ready_files([self._line.fileno()], START_SECONDS_MAX), "the warm process does not fork"
        self.pid = int(self._line.recv(PID_BYTES))

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None and not ready_files([self._line.fileno()], timeout):
            raise subprocess.TimeoutExpired("a forked process", timeout or 0)
        with self._lock:
            if self.returncode is None:
                self.returncode = int(self._line.recv(PID_BYTES))
                self._line.close()
            return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has just ended, and its end is not told yet
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Forked(ForkedProcess):
    """A forked process whose three streams are pipes."""

    def __init__(
        self,
        program: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        *,
        apart: bool,
        errors: str,
    ) -> None:
        """Start it; with `apart`, standard error is a stream of its own."""
        read_in, write_in = os.pipe()
        read_out, write_out = os.pipe()
        read_err, write_err = os.pipe() if apart else (-1, os.dup(write_out))
        try:
            super().__init__(program, arguments, environment, folder, (read_in, write_out, write_err))
        finally:
            for each in (read_in, write_out, write_err):
                os.close(each)
        self.stdin = os.fdopen(write_in, "w", encoding="utf-8", errors=errors)
        self.stdout = os.fdopen(read_out, encoding="utf-8", errors=errors)
        self.stderr = os.fdopen(read_err, encoding="utf-8", errors=errors) if apart else None


@dataclass(frozen=True, slots=True)
class _Warm:
    line: socket.socket
    door: str
    """Where `tests/fork_request.py` finds it."""
    names: frozenset[str]
    """The variables that its modules have read as they were imported."""

    def heeds(self, name: str) -> bool:
        """Whether a fork would heed what this process was told by that variable."""
        return name.startswith(READ_BY_PYTHON) or (name in self.names and name not in HARMLESS)


def fork_request(program: str) -> list[str]:
    """Return the command of a process that has `program` forked, with its streams, and ends as that does.

    Return only once forks are quick: whoever starts the command may wait no longer than for a real start.
    """
    return [*_request_at(_warm().door), program]


def _request_at(door: str) -> list[str]:
    return [sys.executable, "-I", "-S", str(Path(__file__).with_name("fork_request.py")), door]


def _warm_environment() -> dict[str, str]:
    return worker_environment({name: os.environ[name] for name in KEPT if name in os.environ})


def begin() -> None:
    """Start the warm process, where the system allows forks; `ready` waits for it."""
    if sys.platform == "linux":
        with _BEGINNING:
            _begun()


def ready() -> None:
    """Wait for the warm process: whoever needs it first in an event loop would hold that up for many seconds."""
    if sys.platform == "linux":
        _warm()


@cache
def _begun() -> tuple[socket.socket, str]:
    """Start the warm process, which ends with this one; return the line to it and the door of its requests."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    folder = tempfile.TemporaryDirectory(prefix="holdfast-forks-")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(door := f"{folder.name}/door")
        listener.listen()
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", f"from tests.forked import serve; serve({listener.fileno()}, {door!r})"],
            stdin=theirs.fileno(),
            pass_fds=[listener.fileno()],
            env=_warm_environment(),
            start_new_session=True,
        )
    theirs.close()

    def end() -> None:
        ours.close()
        process.kill()
        process.wait()
        folder.cleanup()

    atexit.register(end)
    return ours, door


def _warm() -> _Warm:
    """Return the warm process once its modules are imported; many threads may ask at once."""
    with _BEGINNING:
        return _warmed()


@cache
def _warmed() -> _Warm:
    ours, door = _begun()
    assert ready_files([ours.fileno()], START_SECONDS_MAX), "the warm process does not begin"
    names = ours.recv(REQUEST_BYTES_MAX)
    assert names, "the warm process has ended; see its standard error"
    return _Warm(ours, door, frozenset(json.loads(names)))


class _Noticing(os._Environ[str]):  # pyright: ignore[reportPrivateUsage]  # what os.environ is, without a public name
    """An environment that notices which variables are read."""

    names: set[str] = set()  # noqa: RUF012  # of the one there is

    def __getitem__(self, key: str) -> str:
        self.names.add(key)
        return super().__getitem__(key)


def _imported() -> list[str]:
    """Import the modules, and return the variables that were read meanwhile."""
    plain = type(os.environ)
    os.environ.__class__ = _Noticing
    try:
        for name in MODULES:
            importlib.import_module(name)
    finally:
        os.environ.__class__ = plain
    return sorted(_Noticing.names)


def serve(listening: int, door: str) -> None:
    """Be the warm process: fork for each request on standard input, tell each fork's pid and, later, its exit code.

    Whoever comes through the door asks once; the end of its line is the end of its fork, and of what that has started.
    """
    names = _imported()
    assert threading.active_count() == 1, "a fork would lack the others"
    gc.collect()
    gc.freeze()
    requests, listener = socket.socket(fileno=os.dup(0)), socket.socket(fileno=listening)
    os.set_inheritable(listening, False)  # noqa: FBT003  # positional only
    requests.send(json.dumps(names).encode())
    forks = _Forks()
    while True:
        ready = ready_files([requests.fileno(), listener.fileno(), *forks.files], None)
        forks.settle(ready)
        for each in (requests, listener):
            if each.fileno() not in ready:
                continue
            caller = each if each is requests else each.accept()[0]
            request, files, _, _ = socket.recv_fds(caller, REQUEST_BYTES_MAX, FILES)
            if not request:
                if caller is requests:
                    return
                caller.close()  # killed before it could ask
                continue
            pid = os.fork()
            if pid == 0:
                for other in (requests, listener, caller):
                    other.close()
                forks.close()
                _become(json.loads(request), files, door)
            line = socket.socket(fileno=files.pop())
            for file in files:
                os.close(file)
            forks.add(pid, line, bound=caller is not requests)
            if caller is not requests:
                caller.close()


class _Forks:
    """The forks that run, each with the line on which its end is told."""

    def __init__(self) -> None:
        self._lines: dict[int, tuple[int, socket.socket]] = {}
        self._bound: dict[int, int] = {}

    @property
    def files(self) -> list[int]:
        """What is ready when a fork has ended, or when one is to end because its line has."""
        return [*self._lines, *self._bound]

    def add(self, pid: int, line: socket.socket, *, bound: bool) -> None:
        """Tell a fork's pid; a `bound` one ends with its line, and its group with it."""
        self._lines[os.pidfd_open(pid)] = (pid, line)
        if bound:
            self._bound[line.fileno()] = pid
        _tell(line, pid)

    def settle(self, ready: Container[int]) -> None:
        """Tell the ends of those that have ended; end those whose line has."""
        for ended in [each for each in self._lines if each in ready]:
            pid, line = self._lines.pop(ended)
            if self._bound.pop(line.fileno(), None):
                _kill(pid)  # whoever kills the group of its requester has nothing of this one
            os.close(ended)
            _tell(line, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            line.close()
        for gone in [each for each in self._bound if each in ready]:
            _kill(self._bound.pop(gone))

    def close(self) -> None:
        """Close the files, in a fork."""
        for ended, (_, line) in self._lines.items():
            os.close(ended)
            line.close()


def _kill(pid: int) -> None:
    """End a fork that nobody has waited for yet, and all of its group."""
    for end in (os.kill, os.killpg):
        with suppress(ProcessLookupError):  # no group: it has only begun
            end(pid, signal.SIGKILL)


def _tell(line: socket.socket, number: int) -> None:
    with suppress(OSError):  # nobody asks any more
        line.send(str(number).encode())


def _become(request: Mapping[str, Any], files: Sequence[int], door: str) -> NoReturn:
    """Be the program as a shell would have started it."""
    os.setsid()
    for number, file in enumerate(files[:-1]):
        os.dup2(file, number)
    for file in files:
        os.close(file)
    if request["terminal"]:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C is a signal
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
    sys.stderr = os.fdopen(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
    program, arguments = request["program"], request["arguments"]
    if program.endswith(".py"):
        sys.argv = [program, *arguments]
        sys.path.insert(0, str(Path(program).parent))
        runpy.run_path(program, run_name="__main__")
        sys.exit()
    if program == "holdfast":
        sys.argv = ["holdfast", *arguments]
        sys.path.insert(0, str(Path(sys.executable).parent))
        os.execve = _executed  # type: ignore[assignment]  # narrower: what `holdfast worker` gives it
        _fork_workers(door)
        try:
            importlib.import_module("holdfast.cli.main").main()
        except _Executed as worker:
            arguments = worker.arguments
        else:
            sys.exit()
    sys.argv = ["worker", *arguments]
    sys.modules.pop("worker")
    runpy.run_module("worker", run_name="__main__", alter_sys=True)
    sys.exit()


def _fork_workers(door: str) -> None:
    """Let the worker of a forked `holdfast dev` be forked too: its child is who requests that."""
    started = WorkerProcess._started  # pyright: ignore[reportPrivateUsage]  # as a subclass's would be

    def requested(self: WorkerProcess, command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
        return started(self, [*_request_at(door), *command[command.index("worker") :]], environment)

    WorkerProcess._started = requested  # type: ignore[method-assign]  # pyright: ignore[reportPrivateUsage]


class _Executed(BaseException):
    """`holdfast worker` becomes the worker: what it imports is there already."""

    def __init__(self, arguments: list[str]) -> None:
        super().__init__()
        self.arguments = arguments


def _executed(path: str, command: list[str], environment: Mapping[str, str]) -> NoReturn:
    assert (path, command[1:4]) == (sys.executable, ["-P", "-m", "worker"])
    os.environ.clear()
    os.environ.update(environment)
    raise _Executed(command[4:])
