"""The guardian of a worker: a small process beside it that tells Temporal at once when the worker has died.

Without it the server learns of a death when heartbeats stay away, and that must take long: a tool that holds the
interpreter's lock, or a busy machine, keeps a worker silent although nothing is lost. The worker names each attempt
that begins and each that ends; the guardian fails those under way when the worker is gone, or stopped for
STOPPED_SECONDS_MAX. While the worker lives and cannot speak, it heartbeats for it.

The worker names the runs in its cache, too. The server offers their tasks to this worker alone, and to others only
after a while (`sticky_seconds`); the guardian has it offer them to all at once.

Imports nothing of ours, so that it starts quickly and stays small. Its lines are those of `activities.guardian_link`.
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
"""What it answers once it can reach the server."""

LINE_BYTES_MAX: Final = 4 * 1024 * 1024
"""The longest line a worker sends: a failure and three times the details of a heartbeat."""

READ_BYTES: Final = 1024 * 1024
"""More than the system buffers of a line by default: all that waits is read at once."""

REST_SECONDS: Final = 0.01
"""How long it waits between two reads. Waking for each line would cost a busy worker a tenth of its CPU; what a dead
worker wrote stays readable."""

REPORT_SECONDS_MAX: Final = 30.0
"""How long it tries to tell the server of a death; then the heartbeats' absence tells it."""

RPC_SECONDS_MAX: Final = 10.0
REPORTS_AT_ONCE: Final = 50

ENDED_SECONDS: Final = 2.0
"""For how long after its end an attempt's result may not have reached the server: it is lost if the worker dies."""

LOOK_SECONDS: Final = 1.0
"""How often it looks at a worker that has calls under way."""

SILENT_SECONDS: Final = 2.5
"""A worker that has calls under way speaks every second; one that is silent for so long is looked at. Short, because
one whose tools keep the lock in turn speaks between any two of them, and its own heartbeats may still come too late."""

STOPPED_SECONDS_MAX: Final = 10.0
"""How long a worker may be stopped (SIGSTOP, Ctrl-Z, a debugger) before its calls count as lost."""

STARVED_SECONDS_MAX: Final = 300.0
"""How long it heartbeats for a worker that lives and does not speak: its threads wait for one another that long."""

BEAT_SECONDS: Final = 10.0
"""How often it heartbeats for an attempt of such a worker: three within the time that the server waits."""

LOST_SECONDS_MAX: Final = 10.0
"""How long it waits for the end of a worker whose line has been closed."""

PARTS: Final = ("token", "failure", "kept", "beside", "blamed", "spent")
"""What a line says of an attempt, in base 64; as the fields of `Attempt`."""

GONE: Final = (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT, RPCStatusCode.FAILED_PRECONDITION)
"""What the server says of an attempt, or a run, that it does not wait for any more."""


@dataclass(slots=True, eq=False)
class Attempt:
    """An attempt under way, with what is to be told of it, encoded by the worker.

    `kept` are its heartbeat's details as they stand; `beside` and `blamed` what they become by the worker's death when
    the attempt has begun. `spent` is what the run, by the ids of its workflow and of itself, is told that a model call
    used. `turn` is whether it is its turn among calls that may have killed a worker.
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
        """Whether code of a user's is running in it."""
        return bool(self.beside) and self.ended_at is None


class Guardian:
    """What one guardian knows of its worker."""

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
        """The runs in the worker's cache: the ids of their workflows by their own."""
        self._ended: deque[int] = deque()
        self._spoke_at = time.monotonic()
        self._stopped_at: float | None = None
        self._blaming = True

    async def guard(self) -> None:
        """Return when the worker has ended, and its calls and runs are reported or REPORT_SECONDS_MAX have passed."""
        dead = asyncio.create_task(_death(self._worker))
        listening = asyncio.create_task(self._listen())
        looking = asyncio.create_task(self._look())
        await asyncio.wait([dead, listening], return_when=asyncio.FIRST_COMPLETED)
        looking.cancel()
        if listening.done() and listening.exception() is None and listening.result():
            return  # it has said farewell
        with suppress(TimeoutError):  # a line can be closed by a tool, and held open by a process that it has left
            await asyncio.wait_for(asyncio.shield(dead), LOST_SECONDS_MAX)
        if dead.done():
            await asyncio.wait([listening], timeout=LOOK_SECONDS)
            await self._report(self._left(), blaming=self._blaming)

    async def _listen(self) -> bool:
        """Take note of what the worker says until it is gone; return whether it has said farewell."""
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
                    pass  # it lives
        return False

    def _hold(self, message: dict[str, Any]) -> None:
        parts: dict[str, Any] = {name: base64.b64decode(message.get(name, "")) for name in PARTS}
        run = (message["workflow"], message["run"])
        if (before := self._attempts.get(message["key"])) is not None:
            before.ended_at = time.monotonic()  # a heartbeat that still carries its old details is not sent
        self._attempts[message["key"]] = Attempt(**parts, turn=bool(message.get("turn")), run=run)

    def _end(self, key: int) -> None:
        now = time.monotonic()
        if (attempt := self._attempts.get(key)) is not None:
            attempt.ended_at = now
            self._ended.append(key)
        while self._ended and now - (self._attempts[self._ended[0]].ended_at or now) > ENDED_SECONDS:
            del self._attempts[self._ended.popleft()]

    def _left(self) -> list[Attempt]:
        """Return what the worker leaves, those first that have not ended."""
        return sorted(self._attempts.values(), key=lambda each: each.ended_at is not None)

    async def _look(self) -> None:
        """See to a worker that has calls under way and does not speak."""
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
                    return  # the worker has told more of it meanwhile
                with suppress(RPCError):
                    await self._client.workflow_service.record_activity_task_heartbeat(
                        request, timeout=timedelta(seconds=RPC_SECONDS_MAX)
                    )

        await asyncio.gather(*map(beat, attempts))

    async def _report(self, attempts: list[Attempt], *, blaming: bool) -> None:
        """Fail the attempts, so that the server begins them anew at once; `blaming` those that may have killed it.

        And have tasks of the runs in the worker's cache offered to every worker.
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
                await release(run_id := attempt.run[1])  # before anything makes a task of the run
                await self._tell_spent(attempt, until)
                respond = self._client.workflow_service.respond_activity_task_failed
                if not await self._send(respond, request, until) and run_id in self._cached:
                    # With a request that it refuses, the server forgets the release.
                    unreleased[run_id] = self._cached[run_id]

        await asyncio.gather(*map(fail, attempts))
        await asyncio.gather(*map(release_idle, list(unreleased)))

    async def _tell_spent(self, attempt: Attempt, until: float) -> None:
        """Tell the run what a model call has used: when it is cancelled before its next attempt, nobody else can."""
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
        """Return whether the server has taken a request; one that fails otherwise is sent again, up to that moment."""
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
    """Yield what the worker says, until it has closed the line."""
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
    """Return when the worker has died: its line can be closed before, or held open by a process it has started."""
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
            loop.remove_reader(descriptor)  # it stays readable, and would keep the loop busy
            os.close(descriptor)
        return
    while os.getppid() == worker:  # noqa: ASYNC110  # elsewhere nothing tells of the end of a process that is no child
        await asyncio.sleep(0.1)


def _process_descriptor(worker: int) -> int | None:
    """Return what becomes readable with the worker's end; none where the system has no such thing, or refuses it."""
    if sys.platform != "linux":
        return None
    with suppress(OSError):  # also that of a worker which has ended: it is nobody's parent any more
        return os.pidfd_open(worker)
    return None


def _is_stopped(worker: int) -> bool:
    """Return whether the worker is stopped; where nobody can say, a silent one is."""
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
            connecting = Client.connect(**configured, identity=start["identity"])
            client = await asyncio.wait_for(connecting, RPC_SECONDS_MAX)
            break
        except (RuntimeError, RPCError, TimeoutError):  # the server is away, or takes the line and says nothing
            if os.getppid() != start["pid"]:
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, 2.0)
    with suppress(OSError):  # what a worker that has died meanwhile wrote is still to be reported
        await asyncio.get_running_loop().sock_sendall(line, READY)
    await Guardian(client, lines, start["pid"], start["namespace"], start["spent_signal"]).guard()


def main() -> None:
    """Guard the worker at the other end of standard input."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it lives as long as its worker, which decides about its own end
    try:
        asyncio.run(_main())
    finally:
        os._exit(0)


if __name__ == "__main__":
    main()
