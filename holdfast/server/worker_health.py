"""Whether a worker process is ready: it polls, its Temporal server answers, and its storage can be reached."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from holdfast.connection.rpc_errors import rpc_message
from holdfast.core.base.errors import HoldfastError, ServerUnavailable

LOGGER: Final = logging.getLogger("holdfast.worker")

CHECK_SECONDS_MAX: Final = 3.0
"""How long `/ready` waits for the server and the storage, both at the same time."""

FRESH_SECONDS: Final = 5.0
"""How long the outcome of a check counts: probes, however many, cost one request each in this time."""

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


async def check_namespace(client: Client) -> None:
    """Ask the server for the client's namespace, which takes its database and our credentials.

    The frontend's own health check would pass with an expired key or a lost database. Raises ServerUnavailable.
    """
    limit = timedelta(seconds=CHECK_SECONDS_MAX)
    try:
        await client.workflow_service.describe_namespace(
            DescribeNamespaceRequest(namespace=client.namespace), timeout=limit
        )
    except RPCError as error:
        where = client.service_client.config.target_host
        raise ServerUnavailable(
            f"{where}, namespace {client.namespace!r}: {error.status.name.lower()}: {rpc_message(error)}"
        ) from None
