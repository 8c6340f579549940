"""`run_command`: runs a command for a tool, bounded in time and output, and leaves no process behind. Uses no shell.

    from holdfast import run_command, tool

    @tool(timeout_seconds=60)
    def lint(path: str) -> str:
        return run_command(["ruff", "check", path], timeout_seconds=50).output

The command does not see the worker's environment, which holds keys: it gets the variables of `PASSED_ON` and those that
the tool names. That is no sandbox: it runs as the worker's user and can read what that user can read.

The command leads a process group of its own, and the whole group is killed when the command has ended, when its time is
over, when the tool is cancelled (also a sync one), and when the worker leaves. Only a worker that is killed itself, and
processes that have left the group, leave any behind.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Final, cast

from holdfast.core.base.errors import InvalidInput
from holdfast.runtime.thread_interruption import shielded

PASSED_ON: Final = frozenset({"PATH", "HOME", "LANG", "LC_*", "TMPDIR"})
"""The variables of the worker's environment that every child gets; none is a secret. `LC_*` is a prefix."""

OUTPUT_BYTES_MAX: Final = 64 * 1024
"""How much of the end of a command's output is kept; a model is shown less than that."""

TERM_SECONDS: Final = 1.0
"""How long a group has to end by itself after SIGTERM, before SIGKILL."""

CHUNK_BYTES: Final = 16 * 1024
LOOK_SECONDS_MAX: Final = 0.05
DRAIN_SECONDS_MAX: Final = 1.0
"""How long to wait for the output of an ended command: a process that left the group can hold it open."""

_alive: Final = set[int]()


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended. `exit_code` is negative for a signal, as the standard library has it.

    `output` is what it wrote to standard output and standard error, in its order, without the first `cut_bytes` bytes.
    """

    exit_code: int
    output: str
    cut_bytes: int
    timed_out: bool


def child_environment(
    passed_on: Iterable[str] = (), added: Mapping[str, str] | None = None, environment: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the environment of a child: `PASSED_ON` and the variables named in `passed_on`, then `added`.

    For everything that starts programs beside a worker: tools, sinks, servers on standard input.
    """
    names = PASSED_ON | frozenset(passed_on)
    inherited = {name: value for name, value in environment.items() if name in names or name.startswith("LC_")}
    return {**inherited, **(added or {})}


def run_command(
    argv: Sequence[str],
    *,
    timeout_seconds: float,
    cwd: Path | str | None = None,
    env: Mapping[str, str] | None = None,
    pass_env: Sequence[str] = (),
    text_in: str = "",
    output_bytes_max: int = OUTPUT_BYTES_MAX,
) -> Ended:
    """Run a command and return how it ended, also when its time was over; for sync tools.

    Args:
        argv: the program and its arguments.
        timeout_seconds: when it is killed.
        cwd: where it runs; here by default.
        env: variables that it gets, besides `PASSED_ON`.
        pass_env: names of the worker's variables that it gets, too, where they are set.
        text_in: what it reads from standard input.
        output_bytes_max: how much of the end of its output is kept.

    Raises OSError where the program cannot be started, InvalidInput for an `argv` or a time that is none.
    """
    if isinstance(argv, str) or not argv:
        raise InvalidInput(f"a command is a list of the program and its arguments, not {argv!r}; nothing is split here")
    if not timeout_seconds > 0:
        raise InvalidInput(f"timeout_seconds is {timeout_seconds}; a command must have a time, in seconds over 0")
    if isinstance(pass_env, str):
        raise InvalidInput(f"pass_env is a list of names, not {pass_env!r}")
    group = _Group(argv, cwd, child_environment(pass_env, env), text_in, output_bytes_max)
    try:
        in_time = group.wait(timeout_seconds)
    except BaseException:  # a cancelled tool
        group.end()
        raise
    return group.end(timed_out=not in_time)


async def run_command_async(
    argv: Sequence[str],
    *,
    timeout_seconds: float,
    cwd: Path | str | None = None,
    env: Mapping[str, str] | None = None,
    pass_env: Sequence[str] = (),
    text_in: str = "",
    output_bytes_max: int = OUTPUT_BYTES_MAX,
) -> Ended:
    """Do the same for async tools: cancelling it kills the group without waiting for that."""
    work = partial(
        run_command,
        argv,
        timeout_seconds=timeout_seconds,
        cwd=cwd,
        env=env,
        pass_env=pass_env,
        text_in=text_in,
        output_bytes_max=output_bytes_max,
    )
    from holdfast.runtime.user_code import call_foreign  # noqa: PLC0415  # it brings asyncio

    return cast("Ended", await call_foreign("process", str(argv[:1]), work, apart=False))


def kill_all() -> None:
    """Kill every group that this process started, at once: for a worker that exits."""
    for group in tuple(_alive):
        signal_group(group, signal.SIGKILL, reaped=False)


class _Group:
    """A command under way, with its process group and the end of its output."""

    def __init__(
        self, argv: Sequence[str], cwd: Path | str | None, env: Mapping[str, str], text_in: str, bytes_max: int
    ) -> None:
        self._bytes_max, self._chunks, self._chunk_bytes, self._cut = bytes_max, deque[bytes](), 0, 0
        with shielded():  # else a cancel could come between its start and its registration
            self._process = subprocess.Popen(  # noqa: S603  # the tool author's command; no shell
                list(argv),
                cwd=cwd,
                env=dict(env),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._pid = self._process.pid
            _alive.add(self._pid)
        self._threads = [
            threading.Thread(target=self._feed, args=(self._process.stdin, text_in), daemon=True),
            threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def wait(self, seconds: float) -> bool:
        """Return whether the command ended within that time; interruptible at any moment."""
        until, pause = time.monotonic() + seconds, 0.001
        while self._process.poll() is None:
            left = until - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(pause, left))
            pause = min(2 * pause, LOOK_SECONDS_MAX)
        return True

    def end(self, *, timed_out: bool = False) -> Ended:
        """Kill what is left of the group and return how the command ended."""
        with shielded():
            if self._process.poll() is None:
                signal_group(self._pid, signal.SIGTERM, reaped=False)
                self.wait(TERM_SECONDS)
            reaped = self._process.returncode is not None
            signal_group(self._pid, signal.SIGKILL, reaped=reaped)  # also processes that the command left behind
            code = self._process.wait()
            _alive.discard(self._pid)
            until = time.monotonic() + DRAIN_SECONDS_MAX
            for thread in self._threads:
                thread.join(max(0.0, until - time.monotonic()))
        text = b"".join(self._chunks).decode("utf-8", "replace")
        return Ended(code, text, self._cut, timed_out)

    def _feed(self, pipe: IO[bytes], text: str) -> None:
        with suppress(OSError), pipe:
            pipe.write(text.encode("utf-8", "replace"))

    def _read(self, pipe: IO[bytes]) -> None:
        with suppress(OSError, ValueError), pipe:
            while chunk := os.read(pipe.fileno(), CHUNK_BYTES):
                self._keep(chunk)

    def _keep(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self._chunk_bytes += len(chunk)
        while (over := self._chunk_bytes - self._bytes_max) > 0:
            first = self._chunks.popleft()
            if len(first) > over:
                self._chunks.appendleft(first[over:])
            dropped = min(over, len(first))
            self._chunk_bytes -= dropped
            self._cut += dropped


def signal_group(leader: int, number: signal.Signals, *, reaped: bool) -> None:
    """Send a signal to the group of a child of ours that leads one; `reaped` says whether its end was waited for.

    Then a process of its number is a stranger, and the group has ended, too: the kernel gives the number of a group
    that exists to no new process.
    """
    with suppress(ProcessLookupError, PermissionError):  # it has ended; macOS says so with the second
        if not (reaped and _exists(leader)):
            os.killpg(leader, number)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is somebody else's
        return True
    return True
