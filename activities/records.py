"""The record store as activities: records of executions, the snapshots to branch from, saved sessions.

The `record` activity reads in the execution's own run what the store does not have yet: in this worker's cache, or by
query, page by page. Neither the history nor the activity's input grows with the conversation. All of these activities
are idempotent.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from pydantic import AwareDatetime, BaseModel
from temporalio import activity
from temporalio.client import WorkflowHandle
from temporalio.exceptions import ApplicationError

from activities.run_queries import RUN_UNREADABLE, UNREADABLE, ask_run
from holdfast.core.base.errors import HoldfastError, InvalidInput, RecordNotFound, StorageFailed
from holdfast.core.base.frozen import replace
from holdfast.core.base.stored_forms import SESSION
from holdfast.core.wire.contracts import (
    HEAD_ALONE,
    PART_QUERY,
    RECORD_ACTIVITY,
    SNAPSHOT_QUERY,
    STATE_QUERY,
    PartPage,
    PartRequest,
    Recorded,
    RecordRequest,
    StatePage,
)
from holdfast.core.wire.execution_record import parts_needed, question_of, record_of
from holdfast.core.wire.records import Part, Snapshot
from holdfast.core.wire.session_contracts import (
    BRANCH_ACTIVITY,
    FIND_SESSION_ACTIVITY,
    KEEP_SESSION_ACTIVITY,
    Branched,
    BranchRequest,
    FindSession,
    FoundSession,
    SaveSession,
)
from holdfast.storage.records import Records

ASK_TIMEOUT: Final = timedelta(seconds=20)
"""The timeout of one query to a run; a worker may have to load the run first."""

READ_AT_ONCE: Final = 4
"""How many parts are read from a run at once; each can have several megabytes."""

LOOK_SECONDS_MAX: Final = 9.0
"""How old a saved session's read may be when it is replaced: after 10 s another worker gets a frozen one's call."""


class CachedExecution(Protocol):
    """An ended execution in the cache of the worker that runs the activity."""

    def snapshot(self) -> Snapshot:
        """Return its snapshot. Raises ValueError where it has not ended."""
        ...

    def part(self, request: PartRequest) -> PartPage:
        """Return a sealed part. Raises ValueError for another execution's."""
        ...


class RecordActivities:
    """The activities of one record store. `cached` finds an execution by its Temporal run, where this worker has it."""

    def __init__(self, records: Records, cached: Callable[[str], CachedExecution | None] = lambda _: None) -> None:
        self._records, self._cached = records, cached

    @activity.defn(name=RECORD_ACTIVITY)
    async def record(self, request: RecordRequest) -> Recorded:
        """Write the parts, the snapshot and the record of the execution that called this activity.

        Fails retryably with StorageFailed, and with RunUnreadable if the run cannot be queried.
        """
        run = self._run(request.ended_at)
        with _typed_errors():
            snapshot = await run.snapshot()
            at_once = asyncio.Semaphore(READ_AT_ONCE)

            async def write_part(part: Part) -> None:
                async with at_once:
                    if not await self._records.has_part(part.digest):
                        written = await self._records.write_part(await run.part(part.digest))
                        if written != part.digest:
                            raise StorageFailed(f"the run answers with part {written} instead of {part.digest}")

            await asyncio.gather(*map(write_part, snapshot.parts))
            digest = await self._records.write_snapshot(snapshot)
            needed = {part.digest: await self._records.read_part(part.digest) for part in parts_needed(snapshot)}
            if not request.task:  # a Temporal run that continues another does not know the question
                request = replace(request, task=question_of(await self._records.state(digest)))
            await self._records.write(record_of(request, snapshot, digest, needed))
        return Recorded(snapshot=digest)

    def _run(self, ended_at: datetime | None) -> _Run:
        info = activity.info()
        handle = activity.client().get_workflow_handle(info.workflow_id or "", run_id=info.workflow_run_id)
        return _Run(handle, self._cached(info.workflow_run_id or ""), ended_at)

    @activity.defn(name=BRANCH_ACTIVITY)
    async def branch(self, request: BranchRequest) -> Branched:
        """Return the snapshot to continue from. Fails without retry with RecordNotFound and InvalidInput."""
        with _typed_errors():
            return await self._records.branch(request)

    @activity.defn(name=KEEP_SESSION_ACTIVITY)
    async def keep_session(self, request: SaveSession) -> None:
        """Save a session's state, unless a newer one was saved meanwhile.

        A worker that was frozen may process this call long after another worker has done so. If it was frozen between
        reading and writing, it fails with StorageFailed, and the retry reads again.
        """
        with _typed_errors():
            looked_at = time.monotonic()
            saved = await self._saved(request.agent_id)
            if saved is None or _last_changed(saved) <= _last_changed(request.state):
                if time.monotonic() - looked_at > LOOK_SECONDS_MAX:
                    late = f"what is kept of agent {request.agent_id} was read more than {LOOK_SECONDS_MAX:g} s ago"
                    raise StorageFailed(f"{late}; it is read again")
                await self._records.write_session(request.agent_id, request.state.encode())

    @activity.defn(name=FIND_SESSION_ACTIVITY)
    async def find_session(self, request: FindSession) -> FoundSession:
        """Return the agent's saved session, and its latest record if that is newer."""
        with _typed_errors():
            saved, records = await asyncio.gather(
                self._saved(request.agent_id), self._records.by_agent(request.agent_id, 1)
            )
        latest = records[0] if records else None
        if latest is not None and saved is not None and _last_changed(saved) >= latest.completed_at:
            latest = None
        return FoundSession(kept=None if saved is None else saved.decode(), latest=latest)

    async def _saved(self, agent_id: str) -> bytes | None:
        """Return the agent's saved session. Raises FormNewer for a newer Holdfast's: it is not replaced, either."""
        saved = await self._records.read_session(agent_id)
        if saved is not None:
            SESSION.check(saved, f"what is kept of agent {agent_id}")
        return saved


async def whose(execution_id: str) -> str:
    """Return the agent id of an execution, read from its run. Raises StorageFailed if the run cannot be queried.

    Call it within one of the execution's activities.
    """
    run = activity.client().get_workflow_handle(execution_id)
    try:
        page = await ask_run(run, STATE_QUERY, StatePage, HEAD_ALONE, rpc_timeout=ASK_TIMEOUT)
    except UNREADABLE as error:
        raise StorageFailed(f"the run {execution_id} cannot be asked whose it is: {error}; try again") from None
    return page.head.agent_id


class _Dated(BaseModel):
    """The one field that this module reads from a session's state."""

    updated_at: AwareDatetime


def _last_changed(state: str | bytes) -> datetime:
    return _Dated.model_validate_json(state).updated_at


class _Run:
    """The run that called an activity: read in this worker's cache, where it is there, else by query."""

    def __init__(
        self, handle: WorkflowHandle[Any, Any], cached: CachedExecution | None, ended_at: datetime | None
    ) -> None:
        self._handle, self._cached, self._ended_at = handle, cached, ended_at

    async def snapshot(self) -> Snapshot:
        with suppress(ValueError):
            if self._cached is not None and (held := self._cached.snapshot()).head.updated_at == self._ended_at:
                return held
        return await ask_run(self._handle, SNAPSHOT_QUERY, Snapshot, rpc_timeout=ASK_TIMEOUT)

    async def part(self, digest: str) -> bytes:
        request = PartRequest(digest=digest)
        with suppress(ValueError):
            if self._cached is not None:
                return self._cached.part(request).data.encode()
        return (await ask_run(self._handle, PART_QUERY, PartPage, request, rpc_timeout=ASK_TIMEOUT)).data.encode()


@contextmanager
def _typed_errors() -> Generator[None]:
    """Turn Holdfast's errors into failures of their type; those that no retry can fix are not retried."""
    try:
        yield
    except HoldfastError as error:
        final = isinstance(error, RecordNotFound | InvalidInput)
        raise ApplicationError(error.message, type=type(error).__name__, non_retryable=final) from None
    except UNREADABLE as error:
        raise ApplicationError(f"the run cannot be asked for its state: {error}", type=RUN_UNREADABLE) from None
