"""Workers, commands and MCP servers forked from a warm process, which has imported their modules.

A start costs a tenth to a quarter of a real one.

A fork is a process of its own as `python -m worker` or `holdfast` is: its arguments, environment, streams, session and
exit code are its own, and it is killed and frozen as any other. Real starts are what `tests/test_tools_worker.py`,
`tests/models/test_model_choice.py`, `tests/chaos/test_server_away.py`, `tests/cli/test_surroundings.py` and every
`holdfast dev` have.

Of programs that others start by a command, `stand_in_command` is the command: the program `tests/stand_in.py` has
them forked and is killed, signalled and ended for them.
"""

from __future__ import annotations

import atexit
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
import threading
from collections.abc import Mapping, Sequence
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

REQUEST_BYTES_MAX = 128 * 1024
"""More than a command line and an environment take."""

STAND_IN = Path(__file__).with_name("stand_in.py")
STANDING_IN_MAX = 128
"""How many may wait for their fork at once."""

START_SECONDS_MAX = 90
PID_BYTES = 32
FILES = 4
"""A request's: the three streams, and the line on which its process is told of."""

_ASKING = threading.Lock()


class WarmWorker(WorkerProcess):
    """A WorkerProcess whose process is forked, where its environment allows that."""

    def _started(self, command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
        if sys.platform != "linux" or not _differs_in_our_own(environment):
            return super()._started(command, environment)
        begin = list(command).index("worker") + 1
        forked = Forked("worker", command[begin:], environment, Path.cwd(), apart=False, errors="replace")
        return cast("subprocess.Popen[str]", forked)  # all of it that is used


def _differs_in_our_own(environment: Mapping[str, str]) -> bool:
    """Whether the warm process, whose environment is this one's, can become a process with that environment."""
    here = worker_environment()
    names = here.keys() | environment.keys()
    return all(name.startswith(OWN) for name in names if here.get(name) != environment.get(name))


def stand_in_command(program: Path, *arguments: str) -> list[str]:
    """Return the command that runs a program of Python's, forked where the system allows it.

    Return only once forks are quick: whoever starts the command may wait no longer than for a real start.
    """
    if sys.platform != "linux":
        return [sys.executable, str(program), *arguments]
    warm = _warm()
    if not select.select([warm.requests], [], [], START_SECONDS_MAX)[0]:  # its READY, which stays unread
        raise TimeoutError("the warm process has not begun")
    return [sys.executable, "-I", "-S", str(STAND_IN), warm.place, str(program), *arguments]


class Forked:
    """A process that is a child of the warm one: what our tests use of a Popen."""

    def __init__(
        self,
        program: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        *,
        apart: bool,
        errors: str,
        silent: bool = False,
    ) -> None:
        """Start it; with `apart`, standard error is a stream of its own, and what is `silent` writes to nobody.

        `program` is "worker", "holdfast", or the path of a Python file.
        """
        self._line, theirs = socket.socketpair()
        read_in, write_in = os.pipe()
        read_out, write_out = _nothing() if silent else os.pipe()
        read_err, write_err = os.pipe() if apart else (-1, os.dup(write_out))
        request = {"program": program, "arguments": list(arguments), "environment": dict(environment)}
        told = json.dumps({**request, "folder": str(folder)}).encode()
        with _ASKING:
            socket.send_fds(_warm().requests, [told], [read_in, write_out, write_err, theirs.fileno()])
        for each in (read_in, write_out, write_err):
            os.close(each)
        theirs.close()
        self._lock = threading.Lock()
        self.returncode: int | None = None
        self.stdin = os.fdopen(write_in, "w", encoding="utf-8", errors=errors)
        self.stdout = os.fdopen(read_out, encoding="utf-8", errors=errors)
        self.stderr = os.fdopen(read_err, encoding="utf-8", errors=errors) if apart else None
        assert select.select([self._line], [], [], START_SECONDS_MAX)[0], "the warm process does not fork"
        self.pid = int(self._line.recv(PID_BYTES))

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None and not select.select([self._line], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("a forked process", timeout or 0)
        with self._lock:
            if self.returncode is None:
                self.returncode = int(self._line.recv(PID_BYTES))
                self._line.close()
            return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _nothing() -> tuple[int, int]:
    return os.open(os.devnull, os.O_RDONLY), os.open(os.devnull, os.O_WRONLY)


@dataclass(frozen=True, slots=True)
class _Warm:
    """The warm process, as seen from outside."""

    requests: socket.socket
    """Takes requests; READY comes from it once it serves them."""
    place: str
    """Where it listens for stand-ins."""


READY = b"ready"


@cache
def _warm() -> _Warm:
    """Start the warm process, which ends with this one, and return the lines to it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    folder = tempfile.TemporaryDirectory(prefix="warm-")  # only this user's: who can write to the socket runs programs
    place = f"{folder.name}/line"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(place)
    listener.listen(STANDING_IN_MAX)
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", f"from tests.forked import serve; serve({listener.fileno()})"],
        stdin=theirs.fileno(),
        env=worker_environment({name: os.environ[name] for name in KEPT if name in os.environ}),
        start_new_session=True,
        pass_fds=[listener.fileno()],
    )
    theirs.close()
    listener.close()

    def end() -> None:
        ours.close()
        process.kill()
        process.wait()
        folder.cleanup()

    atexit.register(end)
    return _Warm(ours, place)


@dataclass(frozen=True, slots=True)
class _Fork:
    """A process that the warm one has forked, and the line on which its end is told of."""

    pid: int
    line: socket.socket
    stood_in: bool
    """Whether the line is a stand-in's, with whose end the fork ends."""

    def kill(self) -> None:
        """End it, and all that it has started; nothing if it has ended."""
        for end in (os.kill, os.killpg):
            with suppress(ProcessLookupError):
                end(self.pid, signal.SIGKILL)


def serve(listening: int) -> None:
    """Be the warm process: fork for each request on standard input, tell each fork's pid and, later, its exit code.

    The socket `listening` takes those of stand-ins, each on a line of its own.
    """
    for name in MODULES:
        importlib.import_module(name)
    assert threading.active_count() == 1, "a fork would lack the others"
    gc.collect()
    gc.freeze()
    requests, listener = socket.socket(fileno=os.dup(0)), socket.socket(fileno=listening)
    forks: dict[int, _Fork] = {}
    requests.send(READY)
    while True:
        stand_ins = {fork.line.fileno(): fork for fork in forks.values() if fork.stood_in}
        asked, standing_in = requests.fileno(), listener.fileno()
        ready = select.select([asked, standing_in, *stand_ins, *forks], [], [])[0]
        for left in (stand_ins[each] for each in ready if each in stand_ins):
            left.kill()
        for ended in (each for each in ready if each in forks):
            fork = forks.pop(ended)
            os.close(ended)
            if fork.stood_in:
                fork.kill()  # what it has started: its stand-in's group is killed, which has nothing of it
            _tell(fork.line, os.waitstatus_to_exitcode(os.waitpid(fork.pid, 0)[1]))
            fork.line.close()
        if asked in ready:
            request, files, _, _ = socket.recv_fds(requests, REQUEST_BYTES_MAX, FILES)
            if not request:
                return
            line = socket.socket(fileno=files.pop())
            _fork(json.loads(request), files, line, stood_in=False, others=[requests, listener], forks=forks)
        if standing_in in ready:
            line, _ = listener.accept()
            request, files, _, _ = socket.recv_fds(line, REQUEST_BYTES_MAX, FILES - 1)
            if request:  # else it has been killed at once
                _fork(_stand_ins(request), files, line, stood_in=True, others=[requests, listener], forks=forks)


def _fork(
    request: Mapping[str, Any],
    files: Sequence[int],
    line: socket.socket,
    *,
    stood_in: bool,
    others: Sequence[socket.socket],
    forks: dict[int, _Fork],
) -> None:
    """Fork the process that `request` is for, with none of the warm one's `others` and `forks`."""
    pid = os.fork()
    if pid == 0:
        for each in (line, *others, *(fork.line for fork in forks.values())):
            each.close()
        for ended in forks:
            os.close(ended)
        _become(request, files)
    for file in files:
        os.close(file)
    forks[os.pidfd_open(pid)] = _Fork(pid, line, stood_in)
    _tell(line, pid)


def _stand_ins(request: bytes) -> Mapping[str, Any]:
    """Return the request of a stand-in as `Forked` writes one."""
    folder, count, *fields = [os.fsdecode(each) for each in request.split(b"\0")]
    program, *arguments = fields[: int(count)]
    environment = dict(each.split("=", 1) for each in fields[int(count) :])
    return {"program": program, "arguments": arguments, "environment": environment, "folder": folder}


def _tell(line: socket.socket, number: int) -> None:
    with suppress(OSError):  # nobody asks any more
        line.send(str(number).encode())


def _become(request: Mapping[str, Any], files: Sequence[int]) -> NoReturn:
    """Be the program as a shell would have started it, with `files` as its streams."""
    os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
    for file in files:
        os.close(file)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
    sys.stderr = os.fdopen(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
    program = request["program"]
    sys.argv = [program, *request["arguments"]]
    if program.endswith(".py"):
        sys.path.insert(0, str(Path(program).parent))
        runpy.run_path(program, run_name="__main__")
    elif program == "worker":
        sys.modules.pop("worker")
        runpy.run_module("worker", run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, str(Path(sys.executable).parent))
        importlib.import_module("holdfast.cli.main").main()
    sys.exit()
