"""Workers and commands forked from a warm process, which has imported their modules: a start costs a quarter.

A fork is a process of its own as `python -m worker` or `holdfast` is: its arguments, environment, streams, session and
exit code are its own, and it is killed and frozen as any other. Real starts are what `tests/test_tools_worker.py`,
`tests/models/test_model_choice.py`, `tests/chaos/test_server_away.py`, `tests/cli/test_surroundings.py` and every
`holdfast dev` have.
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
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, cast

from holdfast.server.worker_process import WorkerProcess, worker_environment

MODULES = (
    "worker",
    "openai",
    "openai.resources.chat",
    "holdfast.models.anthropic.model",
    "holdfast.models.openai_chat.model",
    "holdfast.cli.main",
    "holdfast.client.holdfast",
    "holdfast.view.report",
    "mcp",
    "rich.columns",
    "rich.markdown",
    "rich.panel",
)
"""What a worker imports before its first call ends, and a command before it does anything; `mcp` takes a second."""

KEPT = ("PATH", "HOME", "LANG", "SSL_CERT_FILE")
"""What the warm process is told: what packages read as they are imported is as for the tests' own programs."""


OWN = ("HOLDFAST_", "OPENAI_")
"""How the variables begin that nothing reads as it is imported."""

REQUEST_BYTES_MAX = 128 * 1024
"""More than a command line and an environment take."""

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
    ) -> None:
        """Start it; with `apart`, standard error is a stream of its own."""
        self._line, theirs = socket.socketpair()
        read_in, write_in = os.pipe()
        read_out, write_out = os.pipe()
        read_err, write_err = os.pipe() if apart else (-1, os.dup(write_out))
        request = {"program": program, "arguments": list(arguments), "environment": dict(environment)}
        told = json.dumps({**request, "folder": str(folder)}).encode()
        with _ASKING:
            socket.send_fds(_warm(), [told], [read_in, write_out, write_err, theirs.fileno()])
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


@cache
def _warm() -> socket.socket:
    """Start the warm process, which ends with this one, and return the line to it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", "from tests.forked import serve; serve()"],
        stdin=theirs.fileno(),
        env=worker_environment({name: os.environ[name] for name in KEPT if name in os.environ}),
        start_new_session=True,
    )
    theirs.close()

    def end() -> None:
        ours.close()
        process.kill()
        process.wait()

    atexit.register(end)
    return ours


def serve() -> None:
    """Be the warm process: fork for each request on standard input, tell each fork's pid and, later, its exit code."""
    for name in MODULES:
        importlib.import_module(name)
    assert threading.active_count() == 1, "a fork would lack the others"
    gc.collect()
    gc.freeze()
    requests = socket.socket(fileno=os.dup(0))
    lines: dict[int, tuple[int, socket.socket]] = {}
    while True:
        ready = select.select([requests.fileno(), *lines], [], [])[0]
        for ended in (each for each in ready if each in lines):
            pid, line = lines.pop(ended)
            os.close(ended)
            _tell(line, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            line.close()
        if requests.fileno() not in ready:
            continue
        request, files, _, _ = socket.recv_fds(requests, REQUEST_BYTES_MAX, FILES)
        if not request:
            return
        pid = os.fork()
        if pid == 0:
            requests.close()
            for ended, (_, other) in lines.items():
                os.close(ended)
                other.close()
            _become(json.loads(request), files)
        line = socket.socket(fileno=files.pop())
        for each in files:
            os.close(each)
        lines[os.pidfd_open(pid)] = (pid, line)
        _tell(line, pid)


def _tell(line: socket.socket, number: int) -> None:
    with suppress(OSError):  # nobody asks any more
        line.send(str(number).encode())


def _become(request: Mapping[str, Any], files: Sequence[int]) -> NoReturn:
    """Be the program as a shell would have started it."""
    os.setsid()
    for number, file in enumerate(files[:-1]):
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
    sys.argv = [request["program"], *request["arguments"]]
    if request["program"] == "worker":
        sys.modules.pop("worker")
        runpy.run_module("worker", run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, str(Path(sys.executable).parent))
        importlib.import_module("holdfast.cli.main").main()
    sys.exit()
