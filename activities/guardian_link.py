"""The worker's end of the line to its guardian: sends each attempt's start and end. Reports nothing to the server.

It also sends the runs in the worker's cache, because the server keeps their tasks for this worker.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Final, Self

from temporalio import activity
from temporalio.api.common.v1 import Payloads
from temporalio.api.failure.v1 import Failure
from temporalio.client import Client
from temporalio.converter import DataConverter
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from activities.async_completion import serialization_context
from holdfast.core.conversation.attempt_tally import WORKER_LOST
from holdfast.core.wire.contracts import SPENT_SIGNAL, FailedAttemptsUsage
from holdfast.models.model_apis import APIS
from holdfast.storage.data_converter import is_sealed

LOGGER: Final = logging.getLogger("holdfast.worker")

START_SECONDS_MAX: Final = 20.0
"""How long a worker waits for its guardian to be ready before it serves without it."""

LINE_SECONDS_MAX: Final = 0.5
"""How long an attempt waits for the guardian to read its line when the socket buffer is full."""

BUFFER_BYTES_MAX: Final = 32 * 1024 * 1024
"""The most that may be buffered for a guardian that does not read; beyond it the guardian is replaced."""

PULSE_SECONDS: Final = 1.0
"""How often a worker with running calls sends a sign of life."""

RESTARTS_MAX: Final = 20
"""How many times a guardian that has ended is replaced in a worker's lifetime."""

RESTART_SECONDS: Final = 1.0
FAREWELL_SECONDS_MAX: Final = 2.0

SOONEST: Final = timedelta(milliseconds=1)
"""Stands for no wait at all: Temporal reads zero as unset."""


@dataclass(frozen=True, slots=True)
class Details:
    """The details that the next attempt finds if the worker dies now; `beside` and `blamed` only for a started tool.

    `spent` is a model call's usage, signalled to the run at once: a call stopped before its next attempt has no other
    way to report it.
    """

    kept: object = None
    beside: object = None
    blamed: object = None
    turn: bool = False
    spent: FailedAttemptsUsage | None = None


PAYLOADS: Final = ("kept", "beside", "blamed", "spent")
"""The fields of `Details` that are encoded as payloads."""


class GuardianLink:
    """The link to a worker's guardian: `async with` starts that process, and ends it without a report."""

    def __init__(self, client: Client, withheld: Sequence[str] = ()) -> None:
        """Make the link; `withheld` are environment variables that the guardian's process does not get."""
        self._client = client
        self._withheld = withheld
        self._keys = count(1)
        self._lines: dict[int, bytes] = {}
        self._cached: dict[str, bytes] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._ready = asyncio.Event()
        self._failure: str | None = None

    @property
    def pid(self) -> int | None:
        """The guardian's process id."""
        return None if self._process is None else self._process.pid

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        reader = await self._start()
        self._tasks = [asyncio.create_task(self._stay(reader)), asyncio.create_task(self._pulse())]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        self._send(b'{"do": "farewell"}\n')
        if self._writer is not None:
            self._writer.close()
        if self._process is not None:
            try:
                await asyncio.to_thread(self._process.wait, FAREWELL_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    @property
    def has_running_calls(self) -> bool:
        """Whether a call is under way that the guardian would report as lost."""
        return bool(self._lines)

    async def until_ready(self) -> bool:
        """Wait until the guardian can reach the server; return False after START_SECONDS_MAX."""
        with suppress(TimeoutError):
            async with asyncio.timeout(START_SECONDS_MAX):
                await self._ready.wait()
        return self._ready.is_set()

    def leave(self) -> None:
        """Report that the worker exits at once and on purpose, so that no call is blamed for it."""
        self._send(b'{"do": "leaving"}\n')

    def attempt(self) -> GuardedAttempt:
        """Return the running activity's attempt; the guardian learns of it with the first `tell`."""
        return GuardedAttempt(self, next(self._keys), self._client.data_converter)

    async def failure_of_loss(self, data_converter: DataConverter) -> str:
        """Return the failure of a lost attempt, encoded for its run; without encryption it is the same for all runs."""
        if self._failure is not None:
            return self._failure
        failure = Failure()
        await data_converter.encode_failure(_lost(), failure)
        text = _text(failure.SerializeToString())
        if not is_sealed(self._client.data_converter):
            self._failure = text
        return text

    async def hold(self, key: int, line: bytes) -> None:
        """Report an attempt to the guardian; if the socket buffer is full, wait up to LINE_SECONDS_MAX."""
        self._lines[key] = line
        self._send(line)
        if self._writer is not None and self._writer.transport.get_write_buffer_size():
            with suppress(TimeoutError, OSError):
                async with asyncio.timeout(LINE_SECONDS_MAX):
                    await self._writer.drain()

    def end(self, key: int) -> None:
        """Report to the guardian that an attempt has ended."""
        if self._lines.pop(key, None) is not None:
            self._send(b'{"do": "end", "key": %d}\n' % key)

    def cache_run(self, workflow_id: str, run_id: str) -> None:
        """Report a run in the worker's cache to the guardian. Call it on the event loop."""
        line = json.dumps({"do": "cache", "workflow": workflow_id, "run": run_id}).encode() + b"\n"
        self._cached[run_id] = line
        self._send(line)

    def evict_run(self, run_id: str) -> None:
        """Report to the guardian that a run has left the cache. Any thread may call it."""
        with suppress(RuntimeError):  # the loop is closed: there is nothing to report any more
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._evicted, run_id)

    def _evicted(self, run_id: str) -> None:
        if self._cached.pop(run_id, None) is not None:
            self._send(json.dumps({"do": "evict", "run": run_id}).encode() + b"\n")

    def _send(self, line: bytes) -> None:
        writer = self._writer
        if writer is None or writer.is_closing():
            return
        writer.write(line)
        if writer.transport.get_write_buffer_size() > BUFFER_BYTES_MAX and self._process is not None:
            self._process.kill()

    async def _start(self) -> asyncio.StreamReader:
        ours, theirs = socket.socketpair()
        try:
            self._process = _started(theirs, self._withheld)
        except OSError:
            ours.close()
            raise
        reader, self._writer = await asyncio.open_connection(sock=ours)
        self._writer.transport.set_write_buffer_limits(high=0)
        service = self._client.service_client.config
        start = {
            "address": service.target_host,
            "namespace": self._client.namespace,
            "identity": self._client.identity,
            "pid": os.getpid(),
            "spent_signal": SPENT_SIGNAL,
        }
        self._writer.write(json.dumps(start).encode() + b"\n")
        for line in (*self._cached.values(), *self._lines.values()):
            self._writer.write(line)
        return reader

    async def _stay(self, reader: asyncio.StreamReader) -> None:
        """Replace a guardian that has ended, up to RESTARTS_MAX times."""
        for _ in range(RESTARTS_MAX):
            with suppress(OSError):
                if await reader.readline():
                    self._ready.set()
                    await reader.read()
            if self._writer is not None:
                self._writer.close()
            if self._process is not None:
                await asyncio.to_thread(self._process.wait)
            await asyncio.sleep(RESTART_SECONDS)
            try:
                reader = await self._start()
            except OSError as error:
                LOGGER.warning("this worker's guardian cannot be started again: %s", error)
        LOGGER.warning("this worker goes on without a guardian: %d of them have ended", RESTARTS_MAX)

    async def _pulse(self) -> None:
        while True:
            await asyncio.sleep(PULSE_SECONDS)
            if self._lines:
                self._send(b"{}\n")


def _started(line: socket.socket, withheld: Sequence[str]) -> subprocess.Popen[bytes]:
    with line:
        return subprocess.Popen(  # our own module, no shell
            [sys.executable, "-P", "-m", "activities.guardian"],
            stdin=line.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # a reader of our output must not wait for its end
            env=_environment(withheld),
            start_new_session=True,  # a terminal's Ctrl-C goes to the worker alone
        )


class GuardedAttempt:
    """One attempt of an activity, as reported to the guardian."""

    def __init__(self, link: GuardianLink, key: int, data_converter: DataConverter) -> None:
        info = activity.info()
        self._converter = data_converter.with_context(serialization_context())
        self._link, self._key = link, key
        self._attempt = {"do": "hold", "key": key, "token": _text(info.task_token)}
        self._attempt |= {"workflow": info.workflow_id or "", "run": info.workflow_run_id or ""}

    async def tell(self, details: Details) -> None:
        """Report the attempt's progress to the guardian before returning."""
        if "failure" not in self._attempt:
            self._attempt["failure"] = await self._link.failure_of_loss(self._converter)
        line = {**self._attempt, "turn": details.turn}
        values = {name: value for name in PAYLOADS if (value := getattr(details, name)) is not None}
        if values:
            payloads = await self._converter.encode(list(values.values()))
            for name, payload in zip(values, payloads, strict=True):
                line[name] = _text(Payloads(payloads=[payload]).SerializeToString())
        await self._link.hold(self._key, json.dumps(line).encode() + b"\n")

    def end(self) -> None:
        """Report to the guardian that the attempt has ended."""
        self._link.end(self._key)


def _lost() -> ApplicationError:
    text = "the worker died while the call was under way"
    benign = ApplicationErrorCategory.BENIGN
    return ApplicationError(text, type=WORKER_LOST, next_retry_delay=SOONEST, category=benign)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _environment(withheld: Sequence[str] = ()) -> dict[str, str]:
    """Return the guardian's environment: ours without models' keys, and with this code on its path."""
    here = str(Path(__file__).resolve().parents[1])
    path = os.environ.get("PYTHONPATH")
    of_apis = tuple(f"{api.variables}_" for api in APIS.values())
    ours = {name: value for name, value in os.environ.items() if not name.startswith(of_apis) and name not in withheld}
    return {**ours, "PYTHONPATH": os.pathsep.join(filter(None, (here, path)))}
