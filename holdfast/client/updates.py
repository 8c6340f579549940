"""Updates of workflows: each is asked for until it is known what came of it, in bounded time. Knows no meaning."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final, NoReturn, TypeVar

from temporalio.client import WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.client.refusals import TASK_FAILS
from holdfast.core.limits import ERROR_CHARS_MAX
from holdfast.core.texts import clamped

T = TypeVar("T")

Ask = Callable[[str, timedelta], Awaitable[T]]
"""Asks for an update under an id, in one request that may take so long."""

ASKED_TIMEOUT: Final = timedelta(seconds=10)
"""How long one request may take that a worker has to answer."""

UPDATE_SECONDS_MAX: Final = 30.0
"""How long an update may take in all: a server that is busy or restarting is asked again within it."""

BACKOFF_SECONDS: Final = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""How long to wait before asking again; the last for every further time. Each is drawn from its upper half."""

AGAIN: Final = frozenset({RPCStatusCode.RESOURCE_EXHAUSTED, RPCStatusCode.ABORTED, RPCStatusCode.UNAVAILABLE})
"""How a server refuses for the moment: ten updates of the workflow are under way (its limit), it ends, or restarts."""

CLOSING: Final = "aborted by closing workflow"
"""What it says of an update that a run ended before: it was not taken.

It goes on saying that of this update id, even when there is another run of the workflow: we ask again under a new one.
"""

TASK_LOST: Final = "due to unexpected workflow task failure"
"""What it says when the task that had the update was thrown away, as when something came as the run went on elsewhere.

Nothing of that task holds, so the update was not taken.
"""

LOST: Final = "AcceptedUpdateCompletedWorkflow"
"""The type of the failure of an update that was accepted by a run which then ended without an answer."""


class Unanswered(Exception):
    """An update was asked for, and nobody knows whether it was taken. Whoever asks tells it in terms of what it was."""


async def updated(
    ask: Ask[T],
    update_id: str,
    *,
    again: frozenset[RPCStatusCode] = AGAIN,
    lost_again: bool = False,
    seconds_max: float = UPDATE_SECONDS_MAX,
) -> T:
    """Return what `ask` gives. The server takes an update once that is asked for again under its id.

    Raises Unanswered when that is not known within `seconds_max`; else what Temporal raises: WorkflowUpdateFailedError
    for a refusal, RPCError for what the server says. `again` are the statuses after which asking again is worth while;
    `lost_again`: also when the run ended over the update.
    """
    limit = asyncio.timeout(seconds_max)
    try:
        async with limit:
            return await _asked(ask, update_id, again, lost_again=lost_again)
    except TimeoutError:
        raise Unanswered from None
    except WorkflowUpdateRPCTimeoutOrCancelledError as error:
        _tell(error, expired=limit.expired())


def lost(error: WorkflowUpdateFailedError) -> bool:
    """Return whether the run ended over the update, so that it has no answer."""
    return isinstance(error.cause, ApplicationError) and error.cause.type == LOST


def told_of(error: WorkflowUpdateFailedError) -> str:
    """Return what the workflow says of its refusal."""
    return clamped(getattr(error.cause, "message", None) or str(error.cause), ERROR_CHARS_MAX)


async def _asked(ask: Ask[T], update_id: str, again: frozenset[RPCStatusCode], *, lost_again: bool) -> T:
    tries = ended = 0
    while True:
        try:
            return await ask(f"{update_id}.{ended}" if ended else update_id, ASKED_TIMEOUT)
        except RPCError as error:
            closing = CLOSING in str(error)
            if TASK_FAILS in str(error) or not (closing or TASK_LOST in str(error) or error.status in again):
                raise
        except WorkflowUpdateFailedError as error:
            closing = lost(error)
            if not (closing and lost_again):
                raise
        ended += closing
        pause = BACKOFF_SECONDS[min(tries, len(BACKOFF_SECONDS) - 1)]
        tries += 1
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311  # so that not all senders come at once


def _tell(error: WorkflowUpdateRPCTimeoutOrCancelledError, *, expired: bool) -> NoReturn:
    """Raise what the SDK's error means, which it makes of a silence and of a cancellation of ours alike."""
    if isinstance(error.__cause__, asyncio.CancelledError) and not expired:
        raise error.__cause__
    raise Unanswered from None
