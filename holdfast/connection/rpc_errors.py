"""The Temporal server's errors in our terms. Asks the server nothing."""

from __future__ import annotations

import re
from collections.abc import Awaitable
from typing import Final, TypeVar

from temporalio.service import RPCError, RPCStatusCode

from holdfast.connection.executions import PAUSED
from holdfast.connection.full_disk import cannot_write
from holdfast.core.base.errors import ExecutionNotFound, HoldfastError, InvalidInput, ServerUnavailable
from holdfast.core.wire.contracts import DEFAULT_TASK_QUEUE
from holdfast.core.wire.search_attributes import SEARCH_ATTRIBUTES
from holdfast.core.wire.workflow_ids import session_workflow_id

T = TypeVar("T")

NO_WORKER: Final = frozenset(
    {RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED, RPCStatusCode.FAILED_PRECONDITION}
)
"""How a query ends when nobody serves the run's task queue."""

TASK_FAILS: Final = "in failed state"
"""What the server says where a worker is there but fails whenever it takes the run up."""

BROKEN: Final = "transport error"
"""How the SDK tells that a connection broke during a request, with the status UNKNOWN."""

NO_ANSWER: Final = frozenset({RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED})
"""How a request ends that nobody has answered in time; the SDK says of its own time limit that it is cancelled."""

IS_PAUSED: Final = ("Workflow is paused", f"{int(PAUSED)} is not a valid WorkflowExecutionStatus")
"""How an update, and a query, of a workflow fail that an operator has paused.

Of a query the server says it by a status, which the SDK (1.35) does not know and raises ValueError over.
"""

UNKNOWN: Final = "invalid search attribute"
"""What the server says of a query that names an attribute which its namespace does not have."""

REGISTER: Final = "`holdfast setup` registers the search attributes"

SHOWN_BY: Final = {"run": "`holdfast list` shows the runs", "session": "a message starts one"}
"""What to do about an id that the server does not know, by what it is the id of."""


async def answered(request: Awaitable[T], execution_id: str = "") -> T:
    """Await `request`; a refusal or silence of the server becomes one of our errors."""
    try:
        return await request
    except RPCError as error:
        raise refusal(error, execution_id) from None


def refusal(error: RPCError, id_: str = "", *, what: str = "run", without_worker: str = "") -> HoldfastError:
    """Return our error for the server's; `without_worker` is what to do where a worker alone could have answered.

    `what` is the id's: a `run`, or an agent's `session`.
    """
    if error.status is RPCStatusCode.NOT_FOUND:
        which = f"no {what} {id_}" if id_ else f"no such {what}"
        return ExecutionNotFound(f"{which} on this server; {SHOWN_BY[what]}")
    if says_paused(error):
        return paused(id_, what=what)
    if TASK_FAILS in str(error):
        problem = f"the worker fails whenever it runs {what} {id_}; its log says why (is its storage reachable?)"
        return ServerUnavailable(f"{problem}; the {what} continues by itself once that is fixed")
    if without_worker and error.status in NO_WORKER:
        return ServerUnavailable(f"no worker answers for {what} {id_}; {without_worker}")
    if (attribute := unknown_attribute(error)) is not None:
        return ServerUnavailable(f"{attribute} is not registered in this namespace; {REGISTER}")
    if cannot_write(str(error)):
        problem = f"the Temporal server cannot write its database ({rpc_message(error)})"
        return ServerUnavailable(f"{problem}; is its disk full? see `holdfast doctor` and the server's log")
    return ServerUnavailable(f"the Temporal server says {error.status.name.lower()}: {rpc_message(error)}")


def says_away(error: RPCError) -> bool:
    """Return whether the request failed because nobody answered it, so that it can be made again.

    For requests that the server itself answers, without a worker.
    """
    return error.status in NO_ANSWER or rpc_message(error).startswith(BROKEN)


def says_paused(error: Exception) -> bool:
    """Return whether a query or an update failed because an operator has paused the workflow."""
    return any(each in str(error) for each in IS_PAUSED)


def paused(id_: str, *, what: str = "run") -> ServerUnavailable:
    """Return what to say of a run, or an agent's session, that an operator has paused: the server asks no worker."""
    workflow_id = session_workflow_id(id_) if what == "session" else id_
    problem = f"{what} {id_} is paused, and no worker is asked for it"
    return ServerUnavailable(f"{problem}; let it go on with `temporal workflow unpause --workflow-id {workflow_id}`")


def rpc_message(error: RPCError) -> str:
    """Return the server's words on one line, cut."""
    return " ".join(str(error).split())[:300]


def unknown_attribute(error: RPCError) -> str | None:
    """Return which of our search attributes the server does not know, where that is what it refuses a query for."""
    if error.status is not RPCStatusCode.INVALID_ARGUMENT or UNKNOWN not in str(error):
        return None
    names = [name for name in SEARCH_ATTRIBUTES if re.search(rf"\b{name}\b", str(error).partition(UNKNOWN)[2])]
    return f"the search attribute {names[0]}" if names else None


def query_refusal(error: RPCError, query: str | None) -> HoldfastError:
    """Return our error for the server's where it was asked for a list with somebody's `query`."""
    if error.status is RPCStatusCode.INVALID_ARGUMENT and query and unknown_attribute(error) is None:
        problem = f"the server does not understand the query {query[:200]!r}: {rpc_message(error)}"
        return InvalidInput(f"{problem}; write it as Temporal's list filters, such as HoldfastAgent = 'clerk'")
    return refusal(error)


def worker_for(task_queue: str) -> str:
    """Return what to do where nobody serves the task queue."""
    return f"start one with {worker_command(task_queue)}"


def worker_command(task_queue: str, options: str = "") -> str:
    """Return the command that starts a worker of the queue, with `options` besides."""
    queue = "" if task_queue == DEFAULT_TASK_QUEUE else f" --task-queue {task_queue}"
    return f"`holdfast worker{options}{queue}`"
