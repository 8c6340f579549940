"""The progress of a run under way, in one short query to its worker: no steps, no messages, no retries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.client.workflow_queries import queried
from holdfast.connection.event_page_reader import Reader
from holdfast.core.agent.execution_state import call_name
from holdfast.core.base.errors import ServerUnavailable
from holdfast.core.wire.contracts import STATE_QUERY, EventsPage, PageRequest, StatePage

if TYPE_CHECKING:
    from holdfast.client.runs import Runs

HEAD_SECONDS_MAX: Final = 3.0
"""How long the question how far a run is may take: it is asked again and again, so it is better given up."""

BEYOND: Final = 2**31
"""A place behind all steps: what is told of them then is how many they are."""


async def head(
    client: Runs,
    execution_id: str,
    *,
    steps_from: int = BEYOND,
    task_queue: str | None = None,
    seconds_max: float | None = None,
) -> StatePage:
    """Return a run's state without its messages and steps; with `steps_from`, its steps from that place on.

    `task_queue` is where its worker is looked for; the server is asked where that is not given. `seconds_max` is how
    long the answer is waited for, HEAD_SECONDS_MAX by default.

    Asked once: where no worker answers in time, that is told. Raises ExecutionNotFound, ServerUnavailable.
    """
    try:
        return await queried(
            client.temporal if task_queue is None else None,
            client.temporal.get_workflow_handle(execution_id),
            STATE_QUERY,
            PageRequest(messages_total=0, steps_from=steps_from),
            StatePage,
            task_queue or client.settings.task_queue,
            seconds_max=HEAD_SECONDS_MAX if seconds_max is None else seconds_max,
        )
    except TimeoutError:
        raise ServerUnavailable(f"the Temporal server at {client.address} does not answer") from None


async def text_so_far(client: Runs, execution_id: str, run_id: str, step_number: int) -> str:
    """Return the end of what has come of the answer of a step under way; empty where nothing is known of it."""
    reader = Reader(client.temporal, execution_id, client.closed_runs, EventsPage)
    call = await reader.pending(run_id, call_name(step_number))
    progress = None if call is None else await reader.progress(call)
    return "" if progress is None else progress.tail
