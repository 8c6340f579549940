"""`WorkflowReader`: reads a workflow from the server, and from its worker by query; one policy says how long it waits.

All that reads (events, receipts, where a session is) reads through this.
"""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any, Final, TypeVar, cast

from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse
from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowExecution as ListedExecution
from temporalio.client import WorkflowHandle, WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.connection.executions import OPEN, executions, response
from holdfast.connection.queue_routing import silence
from holdfast.connection.rpc_errors import NO_WORKER, refusal, says_paused
from holdfast.core.base.errors import ServerUnavailable
from holdfast.core.wire.workflow_ids import is_session, own_id

T = TypeVar("T")

ASK_TIMEOUT: Final = timedelta(seconds=10)
"""How long one question to the server or, by query, to a worker may take."""

LOST_TIMEOUT: Final = timedelta(seconds=3)
"""How long the first try of a query may take: the SDK loses one that arrives at the moment at which a run ends."""

POLL_TIMEOUT: Final = timedelta(seconds=40)
"""How long one long poll may take; the server itself answers after 20 s when nothing has happened."""

SILENCE_SECONDS_MAX: Final = 120.0
"""How long a server may be away (restarting, cut off) before its watcher gives up."""

BACKOFF_SECONDS: Final = (0.1, 0.2, 0.5, 1.0, 2.0)
"""How long to wait before asking again a server that has just not answered; the last for every further time."""

AGAIN_SECONDS: Final = 0.2
"""How long to wait before asking again a worker that was not there."""

PAUSED_SECONDS: Final = 1.0
"""How much longer to wait before asking again for a workflow that an operator has paused."""

ENDED_SECONDS_MAX: Final = 15.0
"""How long a run that has ended waits for a worker that gives its events."""

UNABLE_MAX: Final = 10
"""How often in a row a worker may say that it cannot answer (it may be about to end) before that is believed."""

NEVER: Final = frozenset(
    {
        RPCStatusCode.NOT_FOUND,
        RPCStatusCode.PERMISSION_DENIED,
        RPCStatusCode.UNAUTHENTICATED,
        RPCStatusCode.UNIMPLEMENTED,
        RPCStatusCode.INVALID_ARGUMENT,
    }
)
"""What a server says when asking again does not help."""


async def listed(temporal: TemporalClient, query: str, limit: int) -> list[ListedExecution]:
    """Return at most `limit` of what the server's list has for a query of ours. Raises ServerUnavailable."""
    try:
        return [each async for each in executions(temporal, query, limit=limit, rpc_timeout=ASK_TIMEOUT)]
    except RPCError as error:
        raise refusal(error) from None


class ReadBackOff:
    """Waits between requests to a server that does not answer, longer each time; gives up after SILENCE_SECONDS_MAX."""

    def __init__(self) -> None:
        self._tries = 0
        self._since = 0.0

    def answered(self) -> None:
        """Take note that the server has answered."""
        self._tries = 0

    async def after(self, error: RPCError, workflow_id: str) -> None:
        """Wait before the next try; raise what `error` means for that workflow when there is to be none."""
        now = time.monotonic()
        self._since = self._since if self._tries else now
        if error.status in NEVER or now - self._since > SILENCE_SECONDS_MAX:
            what = "session" if is_session(workflow_id) else "run"
            raise refusal(error, own_id(workflow_id), what=what) from None
        wait = BACKOFF_SECONDS[min(self._tries, len(BACKOFF_SECONDS) - 1)]
        self._tries += 1
        await asyncio.sleep(wait)


class WorkflowReader:
    """Asks about one workflow; a server that is away is waited for as `ReadBackOff` does."""

    def __init__(self, temporal: TemporalClient, workflow_id: str) -> None:
        self.temporal: Final = temporal
        self._workflow_id = workflow_id
        self._id = own_id(workflow_id)
        self.patience = ReadBackOff()

    async def described(self, run_id: str = "") -> DescribeWorkflowExecutionResponse:
        """Return what the server knows of a Temporal run, of the latest one by default. Raises RPCError."""
        return await response(self.temporal, self._workflow_id, run_id, rpc_timeout=ASK_TIMEOUT)

    async def info(self, run_id: str = "") -> WorkflowExecutionInfo:
        """Return the facts of a Temporal run, of the latest one by default. Raises as `described_patiently`."""
        return (await self.described_patiently(run_id)).workflow_execution_info

    async def described_patiently(self, run_id: str = "") -> DescribeWorkflowExecutionResponse:
        """Return what `described` does.

        Raises ExecutionNotFound, and ServerUnavailable after SILENCE_SECONDS_MAX.
        """
        while True:
            try:
                described = await self.described(run_id)
            except RPCError as error:
                await self.patience.after(error, self._workflow_id)
            else:
                self.patience.answered()
                return described

    async def answer(
        self, query: str, request: object, kind: type[T], run_id: str = "", *, ended_seconds_max: float | None = None
    ) -> T:
        """Return what a worker answers to a query; its absence is waited out, and so is an operator's pause.

        With `ended_seconds_max` not for longer than that once the workflow has ended. Raises ExecutionNotFound,
        ServerUnavailable, also where the worker cannot answer.
        """
        handle: WorkflowHandle[Any, Any] = self.temporal.get_workflow_handle(self._workflow_id, run_id=run_id or None)
        began, unable, timeout = time.monotonic(), 0, min(LOST_TIMEOUT, ASK_TIMEOUT)
        while True:
            try:
                result = await handle.query(query, request, result_type=cast("type", kind), rpc_timeout=timeout)
            except RPCError as error:
                unable, timeout = 0, ASK_TIMEOUT
                if error.status not in NO_WORKER:
                    await self.patience.after(error, self._workflow_id)
                    continue
                if ended_seconds_max is not None and time.monotonic() - began > ended_seconds_max:
                    await self._check_running(error, run_id)
                else:
                    await self._check_there(error)
            except (WorkflowQueryFailedError, WorkflowQueryRejectedError) as error:
                unable += 1
                if unable > UNABLE_MAX:
                    raise ServerUnavailable(f"the worker cannot answer for {self._id}: {error}") from None
            except ValueError as error:
                if not says_paused(error):
                    raise
                unable = 0
                await asyncio.sleep(PAUSED_SECONDS)  # the server tells nobody that it is unpaused
            else:
                self.patience.answered()
                return cast("T", result)
            await asyncio.sleep(AGAIN_SECONDS)

    async def _check_there(self, error: RPCError) -> None:
        """Return when the server answers, which then says itself that no worker does; raise as `info`."""
        if error.status is RPCStatusCode.FAILED_PRECONDITION:
            self.patience.answered()
        else:  # a server that says nothing at all looks like one whose worker does not answer
            await self.info()

    async def _check_running(self, error: RPCError, run_id: str) -> None:
        """Raise where the workflow has ended: what a worker does not answer then, none may ever."""
        info = await self.info()
        if info.status not in OPEN:
            remedy = await silence(self.temporal, info.task_queue, self._workflow_id, run_id)
            raise refusal(error, self._id, without_worker=remedy) from None
