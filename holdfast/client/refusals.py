"""What the Temporal server's refusals mean in our terms. Asks the server nothing."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final, TypeVar

from temporalio.service import RPCError, RPCStatusCode

from holdfast.core.contracts import DEFAULT_TASK_QUEUE
from holdfast.core.errors import ExecutionNotFound, HoldfastError, ServerUnavailable

T = TypeVar("T")

NO_WORKER: Final = frozenset(
    {RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED, RPCStatusCode.FAILED_PRECONDITION}
)
"""How a query ends when nobody serves the run's task queue."""

TASK_FAILS: Final = "in failed state"
"""What the server says where a worker is there but fails whenever it takes the run up."""


async def answered(asked: Awaitable[T], execution_id: str = "") -> T:
    """Await `asked`; a refusal or silence of the server becomes one of our errors."""
    try:
        return await asked
    except RPCError as error:
        raise refusal(error, execution_id) from None


def refusal(error: RPCError, execution_id: str = "", *, asks_worker: str = "") -> HoldfastError:
    """Return our error for the server's; `asks_worker` is the task queue whose worker alone could have answered."""
    if error.status is RPCStatusCode.NOT_FOUND:
        which = f"no run {execution_id}" if execution_id else "no such run"
        return ExecutionNotFound(f"{which} on this server; `holdfast list` shows the runs there are")
    if TASK_FAILS in str(error):
        told = f"the worker fails whenever it takes run {execution_id} up; its log says why (is its storage there?)"
        return ServerUnavailable(f"{told}; the run goes on by itself once that is mended")
    if asks_worker and error.status in NO_WORKER:
        queue = "" if asks_worker == DEFAULT_TASK_QUEUE else f" --task-queue {asks_worker}"
        return ServerUnavailable(f"no worker answers for run {execution_id}; start one with `holdfast worker{queue}`")
    said = " ".join(str(error).split())[:300]
    return ServerUnavailable(f"the Temporal server says {error.status.name.lower()}: {said}")
