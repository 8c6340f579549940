"""How far a run under way is, asked of its worker in one short question: no steps, no messages, and no patience."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from temporalio.client import WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.service import RPCError

from holdfast.client.workflow_queries import UNREADABLE, queue_of, unreadable
from holdfast.connection.event_page_reader import Reader
from holdfast.connection.rpc_errors import refusal
from holdfast.core.agent.execution_state import call_name
from holdfast.core.base.errors import ServerUnavailable
from holdfast.core.wire.contracts import STATE_QUERY, EventsPage, PageRequest, StatePage

if TYPE_CHECKING:
    from holdfast.client.runs import Runs

HEAD_SECONDS_MAX: Final = 3.0
"""How long one question may take: it is asked again and again, so it is better given up than waited for."""

BEYOND: Final = 2**31
"""A place behind all steps: what is told of them then is how many they are."""


async def head(
    client: Runs,
    execution_id: str,
    *,
    steps_from: int | None = None,
    task_queue: str | None = None,
    seconds_max: float | None = None,
) -> StatePage:
    """Return a run's state without its messages and steps; with `steps_from`, its steps from that place on.

    `task_queue` is where its worker is looked for; the server is asked where that is not given. `seconds_max` is how
    long the answer is waited for, HEAD_SECONDS_MAX by default.

    Asked once: where no worker answers in time, that is told. Raises ExecutionNotFound, ServerUnavailable.
    """
    wanted = PageRequest(messages_total=0, steps_from=BEYOND if steps_from is None else steps_from)
    handle: Any = client.temporal.get_workflow_handle(execution_id)
    try:
        seconds = HEAD_SECONDS_MAX if seconds_max is None else seconds_max
        async with asyncio.timeout(seconds + 1):  # the SDK tries for longer where the server is away
            limit = timedelta(seconds=seconds)
            page: StatePage = await handle.query(STATE_QUERY, wanted, result_type=StatePage, rpc_timeout=limit)
    except TimeoutError:
        raise ServerUnavailable(f"the Temporal server at {client.address} does not answer") from None
    except RPCError as error:
        queue = task_queue or await queue_of(handle, client.settings.task_queue)
        raise refusal(error, execution_id, asks_worker=queue) from None
    except (WorkflowQueryFailedError, WorkflowQueryRejectedError) as error:
        raise ServerUnavailable(f"the worker cannot answer for run {execution_id}: {error}") from None
    except UNREADABLE as error:
        raise unreadable(error, execution_id) from None
    return page


async def text_so_far(client: Runs, execution_id: str, run_id: str, step_number: int) -> str:
    """Return the end of what has come of the answer of a step under way; empty where nothing is known of it."""
    reader = Reader(client.temporal, execution_id, client.closed_runs, EventsPage)
    call = await reader.pending(run_id, call_name(step_number))
    progress = None if call is None else await reader.progress(call)
    return "" if progress is None else progress.tail
