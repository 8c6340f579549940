"""`run`: one command in a session of its own, with its output as it comes. Runs inside: Python 3.9, stdlib alone."""

from __future__ import annotations

import contextlib
import os
import resource
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from typing import Any

from holdfast.workspace.inside.frames import INPUT, OUTPUT, Gone, write_frame
from holdfast.workspace.inside.paths import Refused, Root
from holdfast.workspace.inside.processes import (
    GRACE_SECONDS,
    adopt_orphans,
    call_file,
    end_descendants,
    reap,
    set_closed,
    started_at,
)

OUTPUT_BYTES_MAX = 4 * 1024 * 1024
"""The most output of one command that is passed on; more is read and dropped, but for its end."""

TAIL_BYTES = 64 * 1024
"""How much of the end of a longer output is passed on."""

CHUNK_BYTES = 64 * 1024

DRAIN_SECONDS = 1.0
"""How long output is still read when all that could write it has ended."""

TICK_SECONDS = 0.05
"""How often a silent command is looked at: an end is noticed by its signal, this is for one that was lost."""

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Output:
    """What a command writes: passed on up to a bound, its end kept."""

    def __init__(self, most: int) -> None:
        self.total = 0
        self._left = max(0, most - TAIL_BYTES)
        self._tail: deque[bytes] = deque()
        self._held = 0
        self.omitted = 0

    def add(self, data: bytes) -> None:
        """Take what the command has written next."""
        self.total += len(data)
        head, rest = data[: self._left], data[self._left :]
        if head:
            self._left -= len(head)
            write_frame(OUTPUT, head)
        if rest:
            self._tail.append(rest)
            self._held += len(rest)
            while self._held - len(self._tail[0]) >= TAIL_BYTES:
                dropped = self._tail.popleft()
                self._held -= len(dropped)
                self.omitted += len(dropped)

    def end(self) -> None:
        """Pass the held end on, behind a line that says how much is missing."""
        tail = b"".join(self._tail)
        if len(tail) > TAIL_BYTES and self.omitted:
            self.omitted += len(tail) - TAIL_BYTES
            tail = tail[-TAIL_BYTES:]
        if self.omitted:
            write_frame(OUTPUT, b"\n[%d bytes of output left out here]\n" % self.omitted)
        if tail:
            write_frame(OUTPUT, tail)


def run(root: Root, runtime: str, request: dict[str, Any], body: bytes) -> dict[str, Any]:
    """Run the command `argv`, or the shell text `shell`, with the body as its input.

    Ends it and everything it has left behind when its main process has ended, at `timeout` seconds, and when the
    caller is gone, which raises Gone. Returns exit code or signal, duration, and whether its time was up.
    """
    argv = request.get("argv") or ["/bin/sh", "-c", request["shell"]]
    argv = [sys.executable or "python3" if part == "{python}" else part for part in argv]
    folder = root.open_folder(request.get("folder") or ".")
    adopted = adopt_orphans()
    set_closed(closed=True)
    wake, woken = os.pipe()
    for end in (wake, woken):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(woken)
    signal.signal(signal.SIGCHLD, _noticed)
    source = _input_file(runtime, body)
    began = time.monotonic()
    try:
        process = subprocess.Popen(  # noqa: S603  # what the model asked for
            argv,
            stdin=source,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=environment(root.path, request.get("env") or {}),
            preexec_fn=lambda: _enter(folder, request.get("limits") or {}),  # noqa: PLW1509  # it has no threads
        )
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise Refused(f"the command could not be started: {error}") from None
    finally:
        os.close(source)
        os.close(folder)
    file = call_file(runtime, request["call"])
    with open(file, "w", encoding="ascii") as pid_file:
        pid_file.write(f"{process.pid} {started_at(process.pid)}")
    try:
        status, timed_out, output = _follow(process, wake, began + float(request["timeout"]), request)
    finally:
        signal.set_wakeup_fd(-1)
        with contextlib.suppress(OSError):
            os.unlink(file)
    result: dict[str, Any] = {
        "seconds": time.monotonic() - began,
        "timed_out": timed_out,
        "output_bytes": output.total,
        "omitted_bytes": output.omitted,
        "adopted": adopted,
    }
    if os.WIFSIGNALED(status):
        result["signal"] = os.WTERMSIG(status)
    else:
        result["exit_code"] = os.WEXITSTATUS(status)
    return result


def _input_file(runtime: str, body: bytes) -> int:
    """Return an open file without a name that holds `body`; `tempfile` would double what a command's start imports."""
    path = os.path.join(runtime, f"input-{os.getpid()}")
    source = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    os.unlink(path)
    left = memoryview(body)
    while left:
        left = left[os.write(source, left) :]
    os.lseek(source, 0, os.SEEK_SET)
    return source


def _noticed(_number: int, _frame: object) -> None:
    """Do nothing: the wake-up descriptor has said it."""


def environment(home: str, more: dict[str, str]) -> dict[str, str]:
    """Return a command's variables: nothing of the worker's but where programs are."""
    own = {"PATH": os.environ.get("PATH") or PATH, "HOME": home, "LANG": "C.UTF-8", "TERM": "dumb"}
    return {**own, "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", **more}


def _enter(folder: int, limits: dict[str, int]) -> None:
    os.fchdir(folder)
    set_closed(closed=False)  # else its own files in /proc are closed to it, too
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as score:
        score.write("1000")  # out of memory, the command ends, and the program can say so
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if limits.get("file_bytes"):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limits["file_bytes"], limits["file_bytes"]))


def _follow(
    process: subprocess.Popen[bytes], wake: int, deadline: float, request: dict[str, Any]
) -> tuple[int, bool, Output]:
    """Read the output until the command has ended; return its wait status, and whether its time was up."""
    pipe = process.stdout.fileno() if process.stdout else -1
    os.set_blocking(pipe, False)
    output = Output(int(request.get("output_max") or OUTPUT_BYTES_MAX))
    statuses: dict[int, int] = {}
    timed_out = False
    try:
        with selectors.DefaultSelector() as selector:
            for fd in (pipe, wake, INPUT):
                selector.register(fd, selectors.EVENT_READ)
            while process.pid not in statuses:
                ready = {key.fd for key, _ in selector.select(TICK_SECONDS)}
                if INPUT in ready and not os.read(INPUT, 1):
                    raise Gone  # noqa: TRY301  # what was started ends first
                if wake in ready:
                    os.read(wake, 512)
                if pipe in ready and not _pump(pipe, output):
                    selector.unregister(pipe)
                statuses.update(reap())
                if process.pid not in statuses and time.monotonic() > deadline:
                    timed_out = True
                    end_descendants(process.pid, statuses, grace=GRACE_SECONDS)
                    break
        end_descendants(process.pid, statuses, grace=0)
    except BaseException:
        end_descendants(process.pid, statuses, grace=GRACE_SECONDS)
        raise
    finally:
        process.returncode = 0  # it is reaped here; without this Popen would look for it
    _drain(pipe, output)
    output.end()
    return statuses.get(process.pid, signal.SIGKILL), timed_out, output


def _pump(pipe: int, output: Output) -> bool:
    """Read what there is; return whether more can come."""
    try:
        data = os.read(pipe, CHUNK_BYTES)
    except BlockingIOError:
        return True
    output.add(data)
    return bool(data)


def _drain(pipe: int, output: Output) -> None:
    """Read what is left in the pipe; a process that could not be ended may still hold it open."""
    deadline = time.monotonic() + DRAIN_SECONDS
    while time.monotonic() < deadline:
        try:
            data = os.read(pipe, CHUNK_BYTES)
        except BlockingIOError:
            return
        if not data:
            return
        output.add(data)
