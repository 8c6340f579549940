"""Whether a worker process is ready: it polls, its Temporal server answers, and its storage can be used."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Final, NamedTuple, cast

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.worker import Worker

from holdfast.connection.rpc_errors import rpc_message
from holdfast.core.base.errors import HoldfastError, ServerUnavailable, StorageFailed
from holdfast.storage.object_store import Objects

LOGGER: Final = logging.getLogger("holdfast.worker")

CHECK_SECONDS_MAX: Final = 3.0
"""How long `/ready` waits for the server and the storage, both at the same time."""

FRESH_SECONDS: Final = 5.0
"""How long the outcome of a check counts: however many probes come in this time, each check runs once."""

REQUEST_SECONDS_MAX: Final = 2.5
"""How long one request to the server may take: less than CHECK_SECONDS_MAX, so that the answer names what fails."""

WRITTEN_SECONDS: Final = 600.0
"""How long a write to the storage counts; in between, checks only look whether the object is there.

All workers write the same object, which some buckets take once a second at most.
"""

PROBE: Final = "probe"
"""The object that a worker writes to check its storage."""

LOST: Final = (
    "{} holds neither {} nor {} any more: is its volume mounted, is it the same bucket? The worker is ready again once"
    " they are back"
)
"""What is said of a storage that was emptied, or exchanged."""

REASON_CHARS_MAX: Final = 500
"""The longest description of a problem."""

STARTING: Final = "starting: it is not connected to the Temporal server yet, or still prepares its tools"


class CachedCheck:
    """A check of something outside: one at a time, waited for briefly, its outcome kept for FRESH_SECONDS.

    A check that hangs is not begun a second time: each would hold a thread or a connection of its own.
    """

    def __init__(self, check: Callable[[], Awaitable[object]], clock: Callable[[], float] = time.monotonic) -> None:
        """Take a `check` that raises when something is wrong."""
        self._check = check
        self._clock = clock
        self._under_way: asyncio.Task[str | None] | None = None
        self._problem: str | None = None
        self._checked_at: float | None = None

    async def problem(self) -> str | None:
        """Return what is wrong, within CHECK_SECONDS_MAX; None if nothing is."""
        if self._under_way is None and not self._is_fresh():
            self._under_way = asyncio.create_task(self._run(), name="health-check")
        if self._under_way is not None:
            await asyncio.wait([self._under_way], timeout=CHECK_SECONDS_MAX)
        if self._under_way is not None:
            return f"no answer within {CHECK_SECONDS_MAX:g} s"
        return self._problem

    def _is_fresh(self) -> bool:
        return self._checked_at is not None and self._clock() - self._checked_at < FRESH_SECONDS

    async def _run(self) -> None:
        try:
            await self._check()
        except HoldfastError as error:
            self._problem = str(error)[:REASON_CHARS_MAX]
        except Exception as error:  # noqa: BLE001  # whatever it is, it is why we are not ready
            self._problem = f"{type(error).__name__}: {error}"[:REASON_CHARS_MAX]
        else:
            self._problem = None
        finally:
            self._checked_at, self._under_way = self._clock(), None


class WorkerHealth:
    """What keeps a worker process from being ready, by name: `worker`, `server`, `storage`.

    Nothing is asked of the server or the storage before `watch`, nor once the worker has begun to stop.
    """

    def __init__(self) -> None:
        self._polling: Callable[[], str | None] = lambda: STARTING
        self._checks: dict[str, CachedCheck] = {}
        self._reported: dict[str, str] = {}

    def watch(
        self,
        polling: Callable[[], str | None],
        *,
        server: Callable[[], Awaitable[object]],
        storage: Callable[[], Awaitable[object]],
    ) -> None:
        """Take what says why the worker does not poll (none: it does), and two checks that raise."""
        self._polling = polling
        self._checks = {"server": CachedCheck(server), "storage": CachedCheck(storage)}

    async def problems(self) -> dict[str, str]:
        """Return what is wrong, by name, within about CHECK_SECONDS_MAX; empty if the worker is ready."""
        if (problem := self._polling()) is not None:
            return {"worker": problem}
        outcomes = await asyncio.gather(*(check.problem() for check in self._checks.values()))
        found = {name: text for name, text in zip(self._checks, outcomes, strict=True) if text is not None}
        self._log(found)
        if (problem := self._polling()) is not None:  # it has begun to stop meanwhile
            return {"worker": problem, **found}
        return found

    def _log(self, found: dict[str, str]) -> None:
        """Log what changes: nobody reads the body that a probe is answered with."""
        for name in self._checks:
            if name in found and name not in self._reported:
                LOGGER.warning("not ready: %s: %s", name, found[name])
            elif name in self._reported and name not in found:
                LOGGER.warning("ready again: %s", name)
        self._reported = found


class StorageProbe:
    """Checks that the storage can be written and read, with at most one write per WRITTEN_SECONDS while it can."""

    def __init__(self, objects: Objects, clock: Callable[[], float] = time.monotonic) -> None:
        self._objects = objects
        self._clock = clock
        self._written_at: float | None = None
        self._registration: str | None = None

    def expect(self, registration: str) -> None:
        """Take the name of an object that nobody deletes: without it the storage is another one, or lost."""
        self._registration = registration

    async def write(self) -> None:
        """Write the object PROBE, whatever is there. Raises StorageFailed."""
        await self._objects.replace(PROBE, PROBE.encode())
        self._written_at = self._clock()

    async def check(self) -> None:
        """Look whether the object is there; write it if it is not, or if its last write counts no more.

        A volume that is not mounted any more would take writes, too: so an object that is missing is written only where
        the one that nobody deletes is there. Raises StorageFailed where that is missing, or PROBE can be neither seen
        nor written, or written and not seen.
        """
        is_there = await self._is_there(PROBE)
        registration = self._registration
        if is_there is False and registration is not None and await self._is_there(registration) is False:
            raise StorageFailed(LOST.format(self._objects.url, PROBE, registration))
        if not is_there or not self._counts():
            await self.write()
            await self._objects.has(PROBE)

    def _counts(self) -> bool:
        return self._written_at is not None and self._clock() - self._written_at < WRITTEN_SECONDS

    async def _is_there(self, name: str) -> bool | None:
        """Return whether the object is there; None where the storage does not say."""
        try:
            return await self._objects.has(name)
        except StorageFailed:  # S3 says "denied" of a missing object to those who may not list
            return None


class PolledQueue(NamedTuple):
    """A task queue and one of the two kinds of tasks that a process asks it for."""

    name: str
    kind: TaskQueueType.ValueType


def polled_queues(workers: Iterable[Worker]) -> tuple[PolledQueue, ...]:
    """Return what these Temporal workers poll, in their order."""
    kinds: dict[PolledQueue, None] = {}
    for worker in workers:
        config = cast("Mapping[str, Sequence[object]]", worker.config())  # these two are always there
        if config["workflows"]:
            kinds[PolledQueue(worker.task_queue, TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW)] = None
        if config["activities"]:
            kinds[PolledQueue(worker.task_queue, TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY)] = None
    return tuple(kinds)


async def check_server(client: Client, task_queues: Sequence[PolledQueue]) -> None:
    """Ask the server for the client's namespace and the task queues, all at once; tell the first failure.

    The namespace takes the server's database and our credentials; the frontend's own health check would pass with an
    expired key or a lost database. Each task queue takes the process of its matching service. A worker may ask for
    both: they are read calls in its namespace. Raises ServerUnavailable.
    """
    checks = (_check_namespace(client), *(_check_queue(client, each) for each in task_queues))
    outcomes = await asyncio.gather(*checks, return_exceptions=True)
    for error in outcomes:
        if error is not None:
            raise error


async def _check_namespace(client: Client) -> None:
    request = DescribeNamespaceRequest(namespace=client.namespace)
    try:
        await client.workflow_service.describe_namespace(request, timeout=timedelta(seconds=REQUEST_SECONDS_MAX))
    except RPCError as error:
        raise _refused(client, error) from None


async def _check_queue(client: Client, queue: PolledQueue) -> None:
    request = DescribeTaskQueueRequest(
        namespace=client.namespace, task_queue=TaskQueue(name=queue.name), task_queue_type=queue.kind
    )
    try:
        await client.workflow_service.describe_task_queue(request, timeout=timedelta(seconds=REQUEST_SECONDS_MAX))
    except RPCError as error:
        raise _refused(client, error, f", task queue {queue.name!r} (matching service)") from None


def _refused(client: Client, error: RPCError, what: str = "") -> ServerUnavailable:
    where = f"{client.service_client.config.target_host}, namespace {client.namespace!r}{what}"
    return ServerUnavailable(f"{where}: {error.status.name.lower()}: {rpc_message(error)}")
