"""What the Temporal server's refusals mean in our terms. Asks the server nothing."""

from __future__ import annotations

import re
from collections.abc import Awaitable
from typing import Final, TypeVar

from temporalio.service import RPCError, RPCStatusCode

from holdfast.connection.full_disk import cannot_write
from holdfast.core.base.errors import ExecutionNotFound, HoldfastError, InvalidInput, ServerUnavailable
from holdfast.core.wire.contracts import DEFAULT_TASK_QUEUE
from holdfast.core.wire.search_attributes import SEARCH_ATTRIBUTES

T = TypeVar("T")

NO_WORKER: Final = frozenset(
    {RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED, RPCStatusCode.FAILED_PRECONDITION}
)
"""How a query ends when nobody serves the run's task queue."""

TASK_FAILS: Final = "in failed state"
"""What the server says where a worker is there but fails whenever it takes the run up."""

UNKNOWN: Final = "invalid search attribute"
"""What the server says of a query that names an attribute which its namespace does not have."""

REGISTER: Final = "`holdfast setup` registers what runs and sessions are listed by"

SHOWN_BY: Final = {"run": "`holdfast list` shows the runs there are", "session": "a message begins one"}
"""What to do about an id that the server does not know, by what it is the id of."""


async def answered(asked: Awaitable[T], execution_id: str = "") -> T:
    """Await `asked`; a refusal or silence of the server becomes one of our errors."""
    try:
        return await asked
    except RPCError as error:
        raise refusal(error, execution_id) from None


def refusal(error: RPCError, id_: str = "", *, what: str = "run", asks_worker: str = "") -> HoldfastError:
    """Return our error for the server's; `asks_worker` is the task queue whose worker alone could have answered.

    `what` is the id's: a `run`, or an agent's `session`.
    """
    if error.status is RPCStatusCode.NOT_FOUND:
        which = f"no {what} {id_}" if id_ else f"no such {what}"
        return ExecutionNotFound(f"{which} on this server; {SHOWN_BY[what]}")
    if TASK_FAILS in str(error):
        told = f"the worker fails whenever it takes {what} {id_} up; its log says why (is its storage there?)"
        return ServerUnavailable(f"{told}; the {what} goes on by itself once that is mended")
    if asks_worker and error.status in NO_WORKER:
        return ServerUnavailable(f"no worker answers for {what} {id_}; {worker_for(asks_worker)}")
    if (attribute := unknown_attribute(error)) is not None:
        return ServerUnavailable(f"{attribute} is not registered in this namespace; {REGISTER}")
    if cannot_write(str(error)):
        told = f"the Temporal server cannot write its database ({said(error)})"
        return ServerUnavailable(f"{told}; is its disk full? `holdfast doctor` tells, and its log")
    return ServerUnavailable(f"the Temporal server says {error.status.name.lower()}: {said(error)}")


def said(error: RPCError) -> str:
    """Return the server's words on one line, cut."""
    return " ".join(str(error).split())[:300]


def unknown_attribute(error: RPCError) -> str | None:
    """Return which of our search attributes the server does not know, where that is what it refuses a query for."""
    if error.status is not RPCStatusCode.INVALID_ARGUMENT or UNKNOWN not in str(error):
        return None
    named = [name for name in SEARCH_ATTRIBUTES if re.search(rf"\b{name}\b", str(error).partition(UNKNOWN)[2])]
    return f"the search attribute {named[0]}" if named else None


def query_refusal(error: RPCError, query: str | None) -> HoldfastError:
    """Return our error for the server's where it was asked for a list with somebody's `query`."""
    if error.status is RPCStatusCode.INVALID_ARGUMENT and query and unknown_attribute(error) is None:
        told = f"the server does not understand the query {query[:200]!r}: {said(error)}"
        return InvalidInput(f"{told}; write it as Temporal's list filters, such as HoldfastAgent = 'clerk'")
    return refusal(error)


def worker_for(task_queue: str) -> str:
    """Return what to do where nobody serves the task queue."""
    queue = "" if task_queue == DEFAULT_TASK_QUEUE else f" --task-queue {task_queue}"
    return f"start one with `holdfast worker{queue}`"
