"""Queries of workflows, answered by their workers; a missing answer becomes an error that says why."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeVar, cast

from pydantic import ValidationError
from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowHandle, WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.service import RPCError

from holdfast.connection import workflow_reader
from holdfast.connection.event_page_cache import PageT
from holdfast.connection.queue_routing import silence
from holdfast.connection.rpc_errors import NO_WORKER, paused, refusal, says_paused, worker_for
from holdfast.core.base.errors import HoldfastError, InvalidInput, ServerUnavailable
from holdfast.core.wire.contracts import EVENTS_QUERY, EventsRequest
from holdfast.core.wire.workflow_ids import kind_of, own_id

T = TypeVar("T")

UNREADABLE: Final = (ValidationError, RuntimeError)
"""What the SDK raises for an answer that is not of the type asked for, or cannot be fetched from where it is kept."""


async def queried(
    temporal: TemporalClient | None,
    handle: WorkflowHandle[Any, Any],
    name: str,
    request: object,
    kind: type[T],
    task_queue: str,
    *,
    what: str = "run",
    seconds_max: float | None = None,
) -> T:
    """Return the answer, of type `kind`, to the query `name`.

    `task_queue` is where its worker is said to be missing; with `temporal`, the server is asked for that, and for the
    build whose workers would answer. `what` the workflow is, errors say: a `run` or a `session`. With `seconds_max` it
    is asked once, and the answer waited for no longer. Raises ExecutionNotFound, ServerUnavailable, TimeoutError where
    the server is away for so long.
    """
    args = [] if request is None else [request]
    ask = partial(handle.query, name, args=args, result_type=kind)
    try:
        if seconds_max is not None:
            async with asyncio.timeout(seconds_max + 1):  # the SDK tries for longer where the server is away
                return cast("T", await ask(rpc_timeout=timedelta(seconds=seconds_max)))
        try:
            answer = await ask(rpc_timeout=min(workflow_reader.LOST_TIMEOUT, workflow_reader.ASK_TIMEOUT))
        except RPCError as error:
            if error.status not in NO_WORKER:
                raise
            answer = await ask(rpc_timeout=workflow_reader.ASK_TIMEOUT)
    except RPCError as error:
        remedy = worker_for(task_queue)
        if error.status in NO_WORKER and temporal is not None:
            remedy = await silence(temporal, task_queue, handle.id, handle.run_id or "")
        raise refusal(error, own_id(handle.id), what=what, without_worker=remedy) from None
    except UNREADABLE as error:
        raise await not_readable(handle, error, what) from None
    except (WorkflowQueryFailedError, WorkflowQueryRejectedError) as error:
        await _check_ours(handle)
        raise ServerUnavailable(f"the worker cannot answer for {what} {own_id(handle.id)}: {error}") from None
    except ValueError as error:
        if says_paused(error):
            raise paused(own_id(handle.id), what=what) from None
        raise
    return cast("T", answer)


async def event_pages(
    temporal: TemporalClient,
    handle: WorkflowHandle[Any, Any],
    kind: type[PageT],
    task_queue: str,
    start: int = 0,
    *,
    what: str = "run",
) -> AsyncGenerator[PageT]:
    """Yield the events of a Temporal run from a place on, page by page; one page at least. Raises as `queried`."""
    while True:
        page = await queried(temporal, handle, EVENTS_QUERY, EventsRequest(start=start), kind, task_queue, what=what)
        yield page
        start = page.start + len(page.events)
        if start >= page.total or not page.events:
            return


async def not_readable(handle: WorkflowHandle[Any, Any], error: Exception, what: str = "run") -> HoldfastError:
    """Return our error for what is not understood: of a workflow that is none of ours, or of another version."""
    try:
        await _check_ours(handle)
    except InvalidInput as foreign:
        return foreign
    why, id_ = " ".join(str(error).split())[:200], own_id(handle.id)
    problem = f"the worker's answer for {what} {id_} cannot be read ({why})"
    return ServerUnavailable(f"{problem}; is the worker of another version?")


async def _check_ours(handle: WorkflowHandle[Any, Any]) -> None:
    """Raise InvalidInput where the server says that the workflow is none of ours."""
    with suppress(RPCError, ValueError):  # the SDK does not know that a workflow can be paused, which ours can
        described = await handle.describe(rpc_timeout=workflow_reader.ASK_TIMEOUT)
        if kind_of(described.workflow_type) is None:
            raise foreign(handle.id, described.workflow_type)


def foreign(workflow_id: str, workflow_type: str) -> InvalidInput:
    """Return what to say of a workflow that is none of ours."""
    return InvalidInput(f"{workflow_id} is a workflow of the type {workflow_type!r}, neither a run nor a session")
