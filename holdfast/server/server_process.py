"""One `temporal` process, bound to the life of this one; it knows nothing of data directories or command lines."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.runtime.subprocesses import child_environment
from holdfast.server.ports import HOST, IN_USE

PASSED_ON: Final = ("TZ", "GODEBUG", "GOGC", "GOMAXPROCS", "GOMEMLIMIT")
"""What of our environment the server gets besides what every child does: its Go runtime's settings, and no secret."""

LAUNCH_SECONDS_MAX: Final = 10.0
START_SECONDS_MAX: Final = 30.0
"""A start takes 0.1 to 0.3 s on an idle machine; a loaded one gets a hundred times that."""
STOP_SECONDS_MAX: Final = 4.0
"""The server stops by itself in 1.1 to 1.3 s; after this time it is killed, which costs the database nothing.

(With an undelivered cancel command it can take 9 s.)
"""
KILL_SECONDS_MAX: Final = 5.0
ASK_SECONDS_MAX: Final = 2.0
ANNOUNCE_SECONDS_MAX: Final = 1.0
"""How long a server that answers may take to write its ports into its log; one that never does is taken at its word."""

POLL_SECONDS: Final = 0.02
LAST_WORDS_BYTES_MAX: Final = 64 * 1024
LAST_WORDS_CHARS_MAX: Final = 400

PORT_LOST: Final = ("frontend.NewHTTPAPIServer(", "grpc.(*Server).Serve(")
"""Where server 1.32 panics when a port is taken between its own check and its listening: one of its HTTP API, or one
that two of its services have to themselves."""

# The launcher becomes the server (execv keeps its pid, its inherited descriptors and its death signal), so nothing of
# ours runs between fork and exec, where another thread's lock could hang us. SIGKILL, because a dying parent leaves
# nobody to wait for a graceful stop, and the database loses nothing by it (write-ahead log, synchronous=FULL).
_LAUNCHER: Final = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the process that started the server is gone")
os.execv(sys.argv[2], sys.argv[2:])
"""


WATCH_SECONDS: Final = 0.1
"""How often it is looked whether the server may go on: a `stat`, so that little is acknowledged in vain."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What to run: `command` in `folder`, output appended to `log`, the descriptor `inherited` kept open in it.

    `fault` is asked again and again why the server must not go on; it is killed for the first reason given.
    """

    command: Sequence[str]
    folder: Path
    log: Path
    inherited: int
    fault: Callable[[], str | None] = lambda: None


class ServerProcess:
    """A running server; `ended` is set once it is gone."""

    def __init__(self, launch: Launch) -> None:
        self.ended = threading.Event()
        self.fault: str | None = None
        """Why we have ended it ourselves."""
        self._log = launch.log
        self._log_start = launch.log.stat().st_size if launch.log.exists() else 0
        started: Future[subprocess.Popen[bytes]] = Future()
        # Linux sends the death signal when the creating *thread* ends, so a thread of its own creates the server and
        # stays until it is gone; the caller's thread may end.
        threading.Thread(target=self._run, args=(launch, started), name="holdfast-server", daemon=True).start()
        self._process = started.result(LAUNCH_SECONDS_MAX)
        threading.Thread(target=self._watch, args=(launch,), name="holdfast-database", daemon=True).start()

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._process.pid

    def stop(self) -> None:
        """Ask it to end (SIGTERM), then make it (SIGKILL); returns at once when it has ended."""
        if self.ended.is_set():
            return
        self._process.send_signal(signal.SIGTERM)
        if not self.ended.wait(STOP_SECONDS_MAX):
            self._process.kill()
            self.ended.wait(KILL_SECONDS_MAX)

    def wait_until_ready(self, http_port: int, http_name: str = HOST) -> str | None:
        """Return None once the server serves namespace `default`; else end it and return the reason, one line.

        `http_name` is the Host under which its HTTP API answers.
        """
        deadline = time.monotonic() + START_SECONDS_MAX
        answered_at: float | None = None
        while not self.ended.wait(POLL_SECONDS):
            now = time.monotonic()
            if serves(http_port, http_name):
                answered_at = answered_at or now
                # Two servers that start at once can be given one port: the other one's answer is not ours.
                if self._announces(http_port) or now > answered_at + ANNOUNCE_SECONDS_MAX:
                    return None
            if now > deadline:
                self.stop()
                return f"it did not answer within {START_SECONDS_MAX:.0f} s; last output: {self.last_words()}"
        return self.last_words()

    def last_words(self) -> str:
        """Return the last line this process wrote to its log that says something."""
        try:
            lines = self._lines()
        except OSError as error:
            return f"(its log cannot be read: {error.strerror})"
        if any(place in line for line in lines for place in PORT_LOST):
            return f"a port was lost while it started: {IN_USE}"
        texts = (" ".join(line.split()) for line in reversed(lines))
        return next((line[-LAST_WORDS_CHARS_MAX:] for line in texts if line), "(it printed nothing)")

    def _announces(self, http_port: int) -> bool:
        """Whether this very process says that it listens there."""
        with contextlib.suppress(OSError):
            return any("HTTP" in line and line.endswith(f":{http_port}") for line in self._lines())
        return False

    def _lines(self) -> list[str]:
        with self._log.open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_start, end - LAST_WORDS_BYTES_MAX))
            return log.read().decode(errors="replace").splitlines()

    def _run(self, launch: Launch, started: Future[subprocess.Popen[bytes]]) -> None:
        try:
            process = _spawn(launch)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            started.set_exception(error)
            return
        started.set_result(process)
        process.wait()
        self.ended.set()

    def _watch(self, launch: Launch) -> None:
        while not self.ended.wait(WATCH_SECONDS):
            self.fault = launch.fault()
            if self.fault is not None:
                self._process.kill()
                return


def serves(http_port: int, http_name: str = HOST) -> bool:
    """Whether a Temporal server answers for namespace `default` on this HTTP port (its API's, or its Web UI's)."""
    return _ask(http_port, http_name, "GET", "/api/v1/namespaces/default", None) == http.client.OK


def set_retention(http_port: int, http_name: str, seconds: int) -> bool:
    """Keep closed executions of namespace `default` this long; return whether the server agreed."""
    body = json.dumps({"config": {"workflowExecutionRetentionTtl": f"{seconds}s"}})
    return _ask(http_port, http_name, "POST", "/api/v1/namespaces/default/update", body) == http.client.OK


def _ask(http_port: int, http_name: str, method: str, path: str, body: str | None) -> int | None:
    """Return the HTTP status, None when nobody answers in time.

    The server's HTTP API rather than the SDK: no event loop (callers may be inside one), no half second of imports,
    and http.client rather than urllib, which would send a loopback call through a proxy named in the environment.
    """
    connection = http.client.HTTPConnection(HOST, http_port, timeout=ASK_SECONDS_MAX)
    with contextlib.closing(connection):
        try:
            headers = {"Content-Type": "application/json", "Host": http_name}
            connection.request(method, path, body=body, headers=headers)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return None


def _spawn(launch: Launch) -> subprocess.Popen[bytes]:
    command = list(launch.command)
    if sys.platform == "linux" and sys.executable:
        command = [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), *command]
    with launch.log.open("ab") as output:
        return subprocess.Popen(  # noqa: S603 - the program is found by us and no shell reads the words
            command,
            cwd=launch.folder,
            env=child_environment(PASSED_ON),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=(launch.inherited,),
            umask=0o077,  # the database holds conversations
            start_new_session=True,  # a terminal's Ctrl-C reaches us only: we decide in which order things stop
        )
