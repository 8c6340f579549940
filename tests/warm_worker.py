"""Worker processes forked from a warm one, which has imported a worker's modules: a start costs a quarter.

A fork is a process of its own as `python -m worker` is: its arguments, environment, streams, session and exit code are
its own, and it is killed and frozen as any other. Real starts are what `tests/test_tools_worker.py`,
`tests/models/test_model_choice.py`, `tests/chaos/test_server_away.py` and every `holdfast dev` have.
"""

from __future__ import annotations

import atexit
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
from functools import cache
from typing import cast

from holdfast.server.worker_process import WorkerProcess, worker_environment

MODULES = (
    "worker",
    "openai",
    "openai.resources.chat",
    "holdfast.models",
    "holdfast.models.openai_chat",
)
"""What a worker imports before its first call ends."""

OWN = ("HOLDFAST_", "OPENAI_")
"""How the variables begin that nothing reads as it is imported."""

REQUEST_BYTES_MAX = 128 * 1024
"""More than a command line and an environment take."""

START_SECONDS_MAX = 90


class WarmWorker(WorkerProcess):
    """A WorkerProcess whose process is forked, where its environment allows that."""

    def _started(self, command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
        if sys.platform != "linux" or not _differs_in_our_own(environment):
            return super()._started(command, environment)
        begin = list(command).index("worker") + 1
        return cast("subprocess.Popen[str]", _Forked(command[begin:], environment))  # all of it that is used


def _differs_in_our_own(environment: Mapping[str, str]) -> bool:
    """Whether the warm process, whose environment is this one's, can become a process with that environment."""
    here = worker_environment()
    names = here.keys() | environment.keys()
    return all(name.startswith(OWN) for name in names if here.get(name) != environment.get(name))


class _Forked:
    """A process that is a child of the warm one: what WorkerProcess uses of a Popen."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        self._line, theirs = socket.socketpair()
        read_in, write_in = os.pipe()
        read_out, write_out = os.pipe()
        request = {"arguments": list(arguments), "environment": dict(environment), "folder": os.getcwd()}  # noqa: PTH109
        socket.send_fds(_warm(), [json.dumps(request).encode()], [read_in, write_out, theirs.fileno()])
        for each in (read_in, write_out):
            os.close(each)
        theirs.close()
        self._lock = threading.Lock()
        self.returncode: int | None = None
        self.stdin = open(write_in, "w")  # noqa: SIM115
        self.stdout = open(read_out, errors="replace")  # noqa: SIM115
        assert select.select([self._line], [], [], START_SECONDS_MAX)[0], "the warm process does not fork"
        self.pid = int(self._line.recv(32))

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None and not select.select([self._line], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("worker", timeout or 0)
        with self._lock:
            if self.returncode is None:
                self.returncode = int(self._line.recv(32))
                self._line.close()
            return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@cache
def _warm() -> socket.socket:
    """Start the warm process, which ends with this one, and return the line to it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", "from tests.warm_worker import serve; serve()"],
        stdin=theirs,
        env=worker_environment(),
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
    requests = socket.socket(fileno=os.dup(0))
    lines: dict[int, tuple[int, socket.socket]] = {}
    while True:
        ready = select.select([requests, *lines], [], [])[0]
        for ended in (each for each in ready if isinstance(each, int)):
            pid, line = lines.pop(ended)
            os.close(ended)
            _tell(line, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            line.close()
        if requests not in ready:
            continue
        request, files, _, _ = socket.recv_fds(requests, REQUEST_BYTES_MAX, 3)
        if not request:
            return
        line = socket.socket(fileno=files[2])
        pid = os.fork()
        if pid == 0:
            requests.close()
            for ended, (_, other) in lines.items():
                os.close(ended)
                other.close()
            line.close()
            _become(json.loads(request), files[0], files[1])
        os.close(files[0])
        os.close(files[1])
        lines[os.pidfd_open(pid)] = (pid, line)
        _tell(line, pid)


def _tell(line: socket.socket, number: int) -> None:
    try:
        line.send(str(number).encode())
    except OSError:  # nobody asks any more
        return


def _become(request: Mapping[str, object], stdin: int, output: int) -> None:
    """Be what `python -m worker` would be."""
    os.setsid()
    for number, file in ((0, stdin), (1, output), (2, output)):
        os.dup2(file, number)
    os.close(stdin)
    os.close(output)
    os.environ.clear()
    os.environ.update(cast("Mapping[str, str]", request["environment"]))
    os.chdir(cast("str", request["folder"]))
    sys.argv = ["worker", *cast("Sequence[str]", request["arguments"])]
    sys.modules.pop("worker")
    runpy.run_module("worker", run_name="__main__", alter_sys=True)
