"""Updates of workflows: each is retried, in bounded time, until its outcome is known. Knows no update's meaning."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final, TypeVar
from uuid import uuid4
from weakref import WeakValueDictionary

from temporalio.client import WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.connection.rpc_errors import TASK_FAILS
from holdfast.core.base.bounds import ERROR_CHARS_MAX
from holdfast.core.base.safe_text import clamped

T = TypeVar("T")

Ask = Callable[[str, timedelta], Awaitable[T]]
"""Asks for an update under an id, in one request that may take so long."""

ASKED_TIMEOUT: Final = timedelta(seconds=10)
"""How long one request for an update may take, which a worker has to answer."""

UPDATE_SECONDS_MAX: Final = 30.0
"""How long an update may take in all: a server that is busy or restarting is asked again within it."""

BACKOFF_SECONDS: Final = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""How long to wait before asking again; the last for every further time. Each is drawn from its upper half."""

AGAIN: Final = frozenset({RPCStatusCode.RESOURCE_EXHAUSTED, RPCStatusCode.ABORTED, RPCStatusCode.UNAVAILABLE})
"""How a server refuses for the moment: ten updates of the workflow are under way (its limit), it ends, or restarts."""

FAILING_SECONDS_MAX: Final = 12.0
"""How long a worker may fail at a workflow's task before that is believed.

A task that queries have disturbed starts over (`workflows.replay_guard`), twice in a row or more where many ask; the
server then refuses updates until it succeeds, and may wait 10 s before it tries again.
"""

CLOSING: Final = "aborted by closing workflow"
"""What the server says of an update whose run ended before it was accepted.

It goes on saying that of this update id, even when there is another run of the workflow: we ask again under a new one.
"""

TASK_LOST: Final = "due to unexpected workflow task failure"
"""What the server says when the task with the update was thrown away, as when an event came while the run continued.

Nothing of that task holds, so the update was not accepted.
"""

NOT_PROCESSED: Final = "wasn't processed by worker"
"""What the server says when a worker answered the task without the update.

It was not accepted, and asking again is a new update.
"""

LOST: Final = "AcceptedUpdateCompletedWorkflow"
"""The type of the failure of an update that was accepted by a run which then ended without an answer."""


UPDATES_AT_ONCE: Final = 8
"""How many messages of one client are on their way to a workflow at once: the server lets ten updates in.

One more than ten is worse than a refusal: with it the server (1.32) forgets the task that the others are in, which the
worker's answer then finds gone. Seventy messages at once to a run went round so for 20 s; in turns they take 0.5 s. Two
places are left for stops and for other clients.
"""


class UpdateQueues:
    """A queue per workflow for what one client sends it. A request's time begins when it leaves the queue.

    A thousand stops sent at once waited for one another on the server: the last of them for 4.3 s of the ten that a
    request may take, and on a slower machine for more. In turns the slowest takes 0.14 s, and all of them no longer.
    """

    def __init__(self) -> None:
        # weak: a queue exists as long as somebody waits in it
        self._queues: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def of(self, workflow_id: str) -> asyncio.Semaphore:
        """Return the workflow's queue; to be held by whoever waits in it."""
        return self._queues.setdefault(workflow_id, asyncio.Semaphore(UPDATES_AT_ONCE))


class Unanswered(Exception):
    """Nobody knows whether the update was applied. The caller makes of this an error that names what was sent."""


async def updated(
    ask: Ask[T],
    update_id: str,
    *,
    served: Callable[[], Awaitable[bool]],
    again: frozenset[RPCStatusCode] = AGAIN,
    lost_again: bool = False,
    stored: bool = False,
    seconds_max: float | None = None,
) -> T:
    """Return what `ask` gives. The server takes an update once that is asked for again under its id.

    Raises Unanswered when that is not known within `seconds_max` (UPDATE_SECONDS_MAX), or when a request's time is over
    and `served` says that no worker could answer; else what Temporal raises: WorkflowUpdateFailedError for a refusal,
    RPCError for what the server says. `again` are the statuses after which asking again is worth while;
    `lost_again`: also when the run ended over the update. `stored`: others may have used the id before, so a refusal
    can be an old one, whose cause has passed: it counts only when it is said again under an id that nobody has used.
    """
    try:
        async with asyncio.timeout(UPDATE_SECONDS_MAX if seconds_max is None else seconds_max):
            return await _ask_until_known(ask, update_id, served, again, lost_again=lost_again, stored=stored)
    except TimeoutError:
        raise Unanswered from None


def lost(error: WorkflowUpdateFailedError) -> bool:
    """Return whether the run ended over the update, so that it has no answer."""
    return isinstance(error.cause, ApplicationError) and error.cause.type == LOST


def refusal_text(error: WorkflowUpdateFailedError) -> str:
    """Return what the workflow says of its refusal."""
    return clamped(getattr(error.cause, "message", None) or str(error.cause), ERROR_CHARS_MAX)


class PassingRefusals:
    """Which of the server's refusals of one update pass: it is asked for again after them."""

    def __init__(self, again: frozenset[RPCStatusCode]) -> None:
        self._again = again
        self._failing_since: float | None = None

    def passes(self, error: RPCError) -> bool:
        """Return whether asking again is worth while."""
        if TASK_FAILS not in str(error):
            self._failing_since = None
            return CLOSING in str(error) or TASK_LOST in str(error) or error.status in self._again
        # a task that starts over (`workflows.replay_guard`) fails for a moment: only a lasting failure is final
        now = time.monotonic()
        self._failing_since = self._failing_since or now
        return now - self._failing_since <= FAILING_SECONDS_MAX


async def _ask_until_known(
    ask: Ask[T],
    update_id: str,
    served: Callable[[], Awaitable[bool]],
    again: frozenset[RPCStatusCode],
    *,
    lost_again: bool,
    stored: bool,
) -> T:
    tries = ended = 0
    refusals = PassingRefusals(again)
    while True:
        try:
            # the server goes on refusing an id that a closing run has refused: each such run needs a new one
            return await ask(f"{update_id}.{ended}" if ended else update_id, ASKED_TIMEOUT)
        except WorkflowUpdateRPCTimeoutOrCancelledError as error:  # the SDK raises it for both
            if isinstance(error.__cause__, asyncio.CancelledError):
                raise error.__cause__ from None
            # without a worker the server neither accepts nor refuses an update: the request just times out
            if not await served():
                raise Unanswered from None
            closing = False  # for example its worker died with the task: the server gives it to another one later
        except RPCError as error:
            closing = CLOSING in str(error)
            if not refusals.passes(error):
                raise
        except WorkflowUpdateFailedError as error:
            closing = lost(error)
            unseen = NOT_PROCESSED in refusal_text(error)
            if (
                stored and not closing and not unseen
            ):  # the server repeats this answer for the id while that run is the latest
                update_id, ended, stored = f"{update_id}.{uuid4()}", 0, False
                continue
            if not unseen and not (closing and lost_again):
                raise
        ended += closing
        pause = BACKOFF_SECONDS[min(tries, len(BACKOFF_SECONDS) - 1)]
        tries += 1
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311  # so that senders do not retry in step
