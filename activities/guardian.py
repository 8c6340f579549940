"""The guardian of a worker: a small process beside it that reports the worker's death to Temporal at once.

Without it the server learns of a death from missing heartbeats, and that timeout must be long: a tool that holds the
interpreter's lock, or a busy machine, silences a worker although nothing is lost. The worker reports each attempt that
starts and each that ends; the guardian fails the running ones when the worker is dead, or stopped for
STOPPED_SECONDS_MAX. While the worker is alive but blocked, the guardian heartbeats for it.

The worker also reports the runs in its cache. The server offers their tasks to this worker alone, and to others only
after `sticky_seconds`; the guardian makes the server offer them to all workers at once.

Imports no Holdfast module, so that it starts quickly and stays small. `activities.guardian_link` writes its lines.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from temporalio.api.common.v1 import Payloads, WorkflowExecution
from temporalio.api.failure.v1 import Failure
from temporalio.api.workflowservice.v1 import (
    RecordActivityTaskHeartbeatRequest,
    ResetStickyTaskQueueRequest,
    RespondActivityTaskFailedRequest,
    SignalWorkflowExecutionRequest,
)
from temporalio.client import Client
from temporalio.envconfig import ClientConfig
from temporalio.service import RPCError, RPCStatusCode

READY: Final = b"ready\n"
"""The guardian's reply once it can reach the server."""

LINE_BYTES_MAX: Final = 4 * 1024 * 1024
"""The longest line a worker sends: a failure and three sets of heartbeat details."""

READ_BYTES: Final = 1024 * 1024
"""Larger than the socket's default buffer, so that one read takes everything that waits."""

REST_SECONDS: Final = 0.05
"""The pause between two reads. Waking for each line would cost a busy worker a tenth of its CPU, and 0.01 s half a
millisecond a step more than this; a dead worker's lines stay readable."""

REPORT_SECONDS_MAX: Final = 30.0
"""How long it tries to report a death; after that the server learns of it from missing heartbeats."""

RPC_SECONDS_MAX: Final = 10.0
REPORTS_AT_ONCE: Final = 50

ENDED_SECONDS: Final = 2.0
"""How long after an attempt's end its result may be on its way: it is lost if the worker dies in that time."""

LOOK_SECONDS: Final = 1.0
"""How often it checks a worker that has running calls."""

SILENT_SECONDS: Final = 2.5
"""A worker with running calls sends a line every second; after this silence the guardian checks it. The time is short
because a worker whose tools hold the lock in turn sends lines between them, while its own heartbeats may be late."""

STOPPED_SECONDS_MAX: Final = 10.0
"""How long a worker may be stopped (SIGSTOP, Ctrl-Z, a debugger) before its calls count as lost."""

STARVED_SECONDS_MAX: Final = 300.0
"""How long it heartbeats for a live but silent worker: its threads can wait for one another that long."""

BEAT_SECONDS: Final = 10.0
"""How often it heartbeats for an attempt of such a worker: three times within the server's timeout."""

LOST_SECONDS_MAX: Final = 10.0
"""How long it waits for a worker to exit after its line was closed."""

PARTS: Final = ("token", "failure", "kept", "beside", "blamed", "spent")
"""The base64 fields of a line about an attempt, named as the fields of `Attempt`."""

GONE: Final = (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT, RPCStatusCode.FAILED_PRECONDITION)
"""The server's status codes for an attempt or a run that it no longer waits for."""


@dataclass(slots=True, eq=False)
class Attempt:
    """A running attempt, with what to report about it, encoded by the worker.

    `kept` are its current heartbeat details. `beside` and `blamed` are the details to report after the worker's death
    if the attempt has started: blamed for the death or not. `spent` is the usage of a model call to signal to `run`,
    the ids of the workflow and the Temporal run. `turn` is whether it has its turn among calls that may have killed a
    worker.
    """

    token: bytes
    failure: bytes
    kept: bytes
    beside: bytes = b""
    blamed: bytes = b""
    spent: bytes = b""
    turn: bool = False
    run: tuple[str, str] = ("", "")
    beaten_at: float = field(default_factory=time.monotonic)
    ended_at: float | None = None

    @property
    def runs_user_code(self) -> bool:
        """Whether user code is running in it."""
        return bool(self.beside) and self.ended_at is None


class Guardian:
    """The state and the reports of one guardian."""

    def __init__(
        self, client: Client, lines: AsyncGenerator[bytes], worker: int, namespace: str, spent_signal: str
    ) -> None:
        self._client = client
        self._lines = lines
        self._worker = worker
        self._namespace = namespace
        self._spent_signal = spent_signal
        self._attempts: dict[int, Attempt] = {}
        self._cached: dict[str, str] = {}
        """The Temporal runs in the worker's cache: workflow ids by run id."""
        self._ended: deque[int] = deque()
        self._spoke_at = time.monotonic()
        self._stopped_at: float | None = None
        self._blaming = True

    async def guard(self) -> None:
        """Return once the worker has ended and its calls and runs are reported, or after REPORT_SECONDS_MAX."""
        dead = asyncio.create_task(_death(self._worker))
        listening = asyncio.create_task(self._listen())
        looking = asyncio.create_task(self._look())
        await asyncio.wait([dead, listening], return_when=asyncio.FIRST_COMPLETED)
        looking.cancel()
        if listening.done() and listening.exception() is None and listening.result():
            return  # it exited on purpose
        with suppress(TimeoutError):  # a tool can close the line, and a process it left behind can hold it open
            async with asyncio.timeout(LOST_SECONDS_MAX):
                await asyncio.shield(dead)
        if dead.done():
            await asyncio.wait([listening], timeout=LOOK_SECONDS)
            await self._report(self._left(), blaming=self._blaming)

    async def _listen(self) -> bool:
        """Process the worker's lines until the line closes; return whether the last one was `farewell`."""
        async for line in self._lines:
            self._spoke_at = time.monotonic()
            message: dict[str, Any] = json.loads(line)
            match message.get("do"):
                case "hold":
                    self._hold(message)
                case "end":
                    self._end(message["key"])
                case "cache":
                    self._cached[message["run"]] = message["workflow"]
                case "evict":
                    self._cached.pop(message["run"], None)
                case "leaving":
                    self._blaming = False
                case "farewell":
                    return True
                case _:
                    pass  # a sign of life
        return False

    def _hold(self, message: dict[str, Any]) -> None:
        parts: dict[str, Any] = {name: base64.b64decode(message.get(name, "")) for name in PARTS}
        run = (message["workflow"], message["run"])
        if (before := self._attempts.get(message["key"])) is not None:
            before.ended_at = time.monotonic()  # prevents a heartbeat with its old details
        self._attempts[message["key"]] = Attempt(**parts, turn=bool(message.get("turn")), run=run)

    def _end(self, key: int) -> None:
        now = time.monotonic()
        if (attempt := self._attempts.get(key)) is not None:
            attempt.ended_at = now
            self._ended.append(key)
        while self._ended and now - (self._attempts[self._ended[0]].ended_at or now) > ENDED_SECONDS:
            del self._attempts[self._ended.popleft()]

    def _left(self) -> list[Attempt]:
        """Return the worker's attempts, the running ones first."""
        return sorted(self._attempts.values(), key=lambda each: each.ended_at is not None)

    async def _look(self) -> None:
        """Check a silent worker that has running calls: heartbeat for it, or report its calls as lost."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            now = time.monotonic()
            under_way = [each for each in self._attempts.values() if each.ended_at is None]
            silent = now - self._spoke_at
            if not under_way or silent < SILENT_SECONDS:
                self._stopped_at = None
            elif not _is_stopped(self._worker):
                self._stopped_at = None
                if silent < STARVED_SECONDS_MAX:
                    await self._beat([each for each in under_way if now - each.beaten_at >= BEAT_SECONDS])
            elif self._stopped_at is None:
                self._stopped_at = now
            elif now - self._stopped_at >= STOPPED_SECONDS_MAX - SILENT_SECONDS:
                await self._report(under_way, blaming=False)
                for key, attempt in list(self._attempts.items()):
                    if attempt in under_way:
                        del self._attempts[key]
                self._ended = deque(key for key in self._ended if key in self._attempts)

    async def _beat(self, attempts: list[Attempt]) -> None:
        at_once = asyncio.Semaphore(REPORTS_AT_ONCE)

        async def beat(attempt: Attempt) -> None:
            attempt.beaten_at = time.monotonic()
            request = RecordActivityTaskHeartbeatRequest(
                task_token=attempt.token,
                namespace=self._namespace,
                identity=self._client.identity,
                details=Payloads.FromString(attempt.kept),
            )
            async with at_once:
                if attempt.ended_at is not None:
                    return  # the worker has reported something newer meanwhile
                with suppress(RPCError):
                    await self._client.workflow_service.record_activity_task_heartbeat(
                        request, timeout=timedelta(seconds=RPC_SECONDS_MAX)
                    )

        await asyncio.gather(*map(beat, attempts))

    async def _report(self, attempts: list[Attempt], *, blaming: bool) -> None:
        """Fail the attempts, so that the server retries them at once, and release the runs in the worker's cache.

        With `blaming`, attempts that may have killed the worker are marked as such. A released run's tasks are offered
        to every worker.
        """
        blameable = [each for each in attempts if each.runs_user_code] if blaming else []
        turns = [each for each in blameable if each.turn]
        at_once = asyncio.Semaphore(REPORTS_AT_ONCE)
        until = time.monotonic() + REPORT_SECONDS_MAX
        unreleased = dict(self._cached)

        async def release(run_id: str) -> None:
            if (workflow_id := unreleased.pop(run_id, None)) is not None:
                execution = WorkflowExecution(workflow_id=workflow_id, run_id=run_id)
                request = ResetStickyTaskQueueRequest(namespace=self._namespace, execution=execution)
                await self._send(self._client.workflow_service.reset_sticky_task_queue, request, until)

        async def release_idle(run_id: str) -> None:
            async with at_once:
                await release(run_id)

        async def fail(attempt: Attempt) -> None:
            details = attempt.kept
            if attempt in blameable:
                alone = len(blameable) == 1
                details = attempt.blamed if alone or attempt in turns else attempt.beside
            request = RespondActivityTaskFailedRequest(
                task_token=attempt.token,
                namespace=self._namespace,
                identity=self._client.identity,
                failure=Failure.FromString(attempt.failure),
                last_heartbeat_details=Payloads.FromString(details) if details else None,
            )
            async with at_once:
                await release(run_id := attempt.run[1])  # before anything creates a task for the run
                await self._signal_usage(attempt, until)
                respond = self._client.workflow_service.respond_activity_task_failed
                if not await self._send(respond, request, until) and run_id in self._cached:
                    # the server forgets the release together with a request that it refuses
                    unreleased[run_id] = self._cached[run_id]

        await asyncio.gather(*map(fail, attempts))
        await asyncio.gather(*map(release_idle, list(unreleased)))

    async def _signal_usage(self, attempt: Attempt, until: float) -> None:
        """Signal a model call's usage to its run: if the call is cancelled before its next attempt, nobody else can."""
        if not attempt.spent or attempt.ended_at is not None:
            return
        workflow_id, run_id = attempt.run
        request = SignalWorkflowExecutionRequest(
            namespace=self._namespace,
            workflow_execution=WorkflowExecution(workflow_id=workflow_id, run_id=run_id),
            signal_name=self._spent_signal,
            input=Payloads.FromString(attempt.spent),
            identity=self._client.identity,
            request_id=str(uuid4()),
        )
        await self._send(self._client.workflow_service.signal_workflow_execution, request, until)

    async def _send(self, call: Callable[..., Awaitable[object]], request: object, until: float) -> bool:
        """Return whether the server accepted a request; retry until `until` unless it refuses it for good (GONE)."""
        pause = 0.05
        while time.monotonic() < until:
            try:
                await call(request, timeout=timedelta(seconds=RPC_SECONDS_MAX))
            except RPCError as error:
                if error.status in GONE:
                    return False
                await asyncio.sleep(pause)
                pause = min(2 * pause, 1.0)
            else:
                return True
        return False


async def _read(line: socket.socket) -> AsyncGenerator[bytes]:
    """Yield the worker's lines until it closes the socket."""
    loop = asyncio.get_running_loop()
    rest = b""
    while data := await loop.sock_recv(line, READ_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        for each in lines:
            yield each
        if len(rest) > LINE_BYTES_MAX:
            raise ValueError(f"a line of over {LINE_BYTES_MAX} bytes")
        if not rest:
            await asyncio.sleep(REST_SECONDS)


async def _death(worker: int) -> None:
    """Return once the worker has died. Its socket does not tell: a process it started can hold that open."""
    descriptor = _process_descriptor(worker)
    if descriptor is not None:
        if os.getppid() != worker:
            os.close(descriptor)
            return
        dead, loop = asyncio.Event(), asyncio.get_running_loop()
        loop.add_reader(descriptor, dead.set)
        try:
            await dead.wait()
        finally:
            loop.remove_reader(descriptor)  # it stays readable and would keep the loop busy
            os.close(descriptor)
        return
    while os.getppid() == worker:  # noqa: ASYNC110  # other systems do not notify of the end of a process that is no child
        await asyncio.sleep(0.1)


def _process_descriptor(worker: int) -> int | None:
    """Return a file descriptor that becomes readable when the worker ends; None if the system has none or refuses."""
    if sys.platform != "linux":
        return None
    with suppress(OSError):  # also for a worker that has ended already
        return os.pidfd_open(worker)
    return None


def _is_stopped(worker: int) -> bool:
    """Return whether the worker is stopped; if that cannot be read, a silent worker counts as stopped."""
    try:
        state = Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return True
    return state in ("T", "t")


async def _main() -> None:
    line = socket.socket(fileno=os.dup(0))
    line.settimeout(0)
    lines = _read(line)
    start: dict[str, Any] = json.loads(await anext(lines))
    configured = ClientConfig.load_client_connect_config()
    configured["target_host"], configured["namespace"] = start["address"], start["namespace"]
    pause = 0.1
    while True:
        try:
            async with asyncio.timeout(RPC_SECONDS_MAX):
                client = await Client.connect(**configured, identity=start["identity"])
            break
        except (
            RuntimeError,
            RPCError,
            TimeoutError,
        ):  # the server is down, or accepts the connection and does not answer
            if os.getppid() != start["pid"]:
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, 2.0)
    with suppress(OSError):  # the worker has died meanwhile; its lines must still be reported
        await asyncio.get_running_loop().sock_sendall(line, READY)
    await Guardian(client, lines, start["pid"], start["namespace"], start["spent_signal"]).guard()


def main() -> None:
    """Guard the worker at the other end of standard input."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it lives as long as its worker, which handles these signals itself
    try:
        asyncio.run(_main())
    finally:
        os._exit(0)


if __name__ == "__main__":
    main()
