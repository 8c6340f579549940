"""`RunSource`: reads a run from wherever it still is: its worker, its result on the server, or its record.

Long ones are read page by page. What was read of a run that has ended never changes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, Final, Literal

from temporalio.client import WorkflowExecutionStatus, WorkflowHandle

from holdfast.client.events_from_state import reconstructed
from holdfast.client.execution_summaries import PAUSED, ExecutionSummary, summary
from holdfast.client.holdfast import Holdfast
from holdfast.client.id_lookup import described_run
from holdfast.client.waiting_calls import WaitingCalls, waiting_below
from holdfast.client.watch_events import AttemptFailed, RateLimitAwaited, WorkerAwaited
from holdfast.client.worker_presence import listing_failure, rate_wait, unserved_calls
from holdfast.client.workflow_queries import event_pages, queried
from holdfast.connection.event_page_reader import Reader, next_attempt_at
from holdfast.connection.executions import described, is_paused
from holdfast.connection.rpc_errors import answered
from holdfast.connection.workflow_reader import ASK_TIMEOUT
from holdfast.core.agent.execution_state import model_step
from holdfast.core.agent.state import AgentState
from holdfast.core.base.errors import Conflict, ExecutionNotFound, RecordNotFound, ServerUnavailable, StorageFailed
from holdfast.core.base.frozen import replace
from holdfast.core.wire.contracts import (
    EVENTS_QUERY,
    HEAD_ALONE,
    STATE_QUERY,
    EventsPage,
    EventsRequest,
    PageRequest,
    StatePage,
)
from holdfast.core.wire.execution_events import AnyObserved
from holdfast.core.wire.paging import page as cut
from holdfast.core.wire.records import ExecutionRecord

Source = Literal["server", "record"]
"""Who told of a run: the Temporal server and its workers, or the record that was kept outside of it."""

FIRST_TASK_EVENTS: Final = 4
"""A history that ended before its first task completed has at most: started; task scheduled, task started; the end."""

EVENTS_END = 10**9
"""A place behind all events: a page from there on holds none of them and says where they are."""


@dataclass(frozen=True, slots=True)
class RunSource:
    """One run. `find()` returns it.

    `state` is its last state where that is at hand: of a run that has ended, or whose worker is away. Without it a
    worker is asked. `listed` is what the server knows of it, `record` what was kept; one of the two is there.
    """

    holdfast: Holdfast
    execution_id: str
    state: AgentState | None = None
    listed: ExecutionSummary | None = None
    record: ExecutionRecord | None = None
    begun: bool = True
    """False while it waits for what its agent needs, such as the tools of MCP servers: it has no state yet.

    Nor has one that `is_paused` a state that anybody could tell.
    """
    ended_as: str = ""
    """How the server ended it (`terminated`, `timed_out`) where its state does not know; empty for any other run."""

    @property
    def source(self) -> Source:
        """Who tells its state."""
        return "server" if self.record is None else "record"

    @property
    def is_paused(self) -> bool:
        """Whether an operator has paused it."""
        return self.listed is not None and self.listed.status == PAUSED

    @property
    def agent(self) -> str:
        """The name of its agent; empty where nobody knows it."""
        if self.record is not None:
            return self.record.agent
        return (self.listed and self.listed.agent) or ""

    @classmethod
    async def find(cls, holdfast: Holdfast, execution_id: str) -> RunSource:
        """Return the run of that id, on the server or, where that has forgotten it, in the record store.

        Raises InvalidInput, ExecutionNotFound, ServerUnavailable where it is under way and no worker answers.
        """
        execution_id = await holdfast.find_run(execution_id)
        try:
            return await cls._on_server(holdfast, execution_id)
        except (ExecutionNotFound, ServerUnavailable) as error:
            with suppress(RecordNotFound, StorageFailed):
                record = await holdfast.record(execution_id)
                return cls(holdfast, execution_id, await holdfast.recorded_state(record), record=record)
            raise error from None

    @classmethod
    async def _on_server(cls, holdfast: Holdfast, execution_id: str) -> RunSource:
        client = holdfast
        found = await described_run(client.temporal, execution_id)
        listed = summary(found)
        run = cls(holdfast, execution_id, listed=listed)
        if is_paused(found):  # then no worker is asked
            return dataclasses.replace(run, begun=False)
        if found.status is WorkflowExecutionStatus.COMPLETED:
            return dataclasses.replace(run, state=await client.state(execution_id))
        has_ended = listed.closed_at is not None
        first = found.raw_info.first_run_id  # a continued run began in that one
        if has_ended and first in ("", found.run_id) and found.history_length <= FIRST_TASK_EVENTS:
            return dataclasses.replace(run, begun=False, ended_as=listed.status)
        try:
            head = (await run._page(HEAD_ALONE)).head  # whether a worker answers for it
        except ServerUnavailable as error:
            raise ServerUnavailable(f"the run has ended ({listed.status}): {error}") if has_ended else error from None
        ended_as = listed.status if has_ended and not head.status.is_terminal else ""
        return dataclasses.replace(run, begun=head.execution is not None, ended_as=ended_as)

    async def whole(self) -> AgentState:
        """Return the whole state. Raises ServerUnavailable."""
        return self.state or await self.holdfast.state(self.execution_id)

    async def debug(self) -> dict[str, Any]:
        """Return the few facts one asks for first. Raises ServerUnavailable."""
        facts = self.state.debug() if self.state else await self.holdfast.debug(self.execution_id)
        return {**facts, "status": self.ended_as or facts["status"]}

    def at_end(self, state: AgentState) -> AgentState:
        """Return the state with its clock stopped where the server ended the run; any other as it is."""
        closed_at = self.listed.closed_at if self.listed is not None and self.ended_as else None
        return state if closed_at is None else replace(state, updated_at=closed_at)

    async def waiting_below(self) -> WaitingCalls:
        """Return calls of its subagents that wait for a person. Raises ServerUnavailable."""
        state = await self.whole()
        has_subagents = state.execution is not None and state.execution.subagents_started
        if self.record is not None or state.status.is_terminal or not has_subagents:
            return WaitingCalls()
        return await waiting_below(self.holdfast.temporal, self.execution_id)

    async def model_wait(self) -> AttemptFailed | None:
        """Return why the model call under way, or the listing of MCP servers, is tried again, and when.

        None where the first attempt is made.
        """
        if self.state is not None:
            return None
        client = self.holdfast
        reader = Reader(client.temporal, self.execution_id, client.closed_runs, EventsPage)
        for call in await reader.calls():
            number = model_step(call.activity_id)
            if number is not None and call.attempt > 1 and (message := await reader.failure(call)):
                return AttemptFailed(self.execution_id, number, call.attempt - 1, message, next_attempt_at(call))
        return await listing_failure(reader, self.execution_id)

    async def rate_wait(self) -> RateLimitAwaited | None:
        """Return what the model call under way waits for before it is made; none where it does not wait."""
        if self.state is not None:
            return None
        reader = Reader(self.holdfast.temporal, self.execution_id, self.holdfast.closed_runs, EventsPage)
        for call in await reader.calls():
            number = model_step(call.activity_id)
            if number is not None and (reason := await rate_wait(reader, call)):
                return RateLimitAwaited(self.execution_id, number, reason)
        return None

    async def awaited_workers(self) -> list[WorkerAwaited]:
        """Return which of its tool calls wait for a worker where none is."""
        if self.state is not None:
            return []
        reader = Reader(self.holdfast.temporal, self.execution_id, self.holdfast.closed_runs, EventsPage)
        unserved = await unserved_calls(reader, await reader.calls())
        execution = (await self._page(HEAD_ALONE)).head.execution if unserved else None
        open_calls = {each.index: each.call for each in execution.open_calls} if execution else {}
        return [
            WorkerAwaited(self.execution_id, each.step_number, call.id, call.name, each.task_queue)
            for each in unserved
            if (call := open_calls.get(each.index)) is not None
        ]

    async def pages(self, request: PageRequest) -> AsyncGenerator[StatePage]:
        """Yield the state in pages, from where `request` says on and not beyond its totals; each is let go of.

        Raises ServerUnavailable; Conflict where older messages were moved away meanwhile, to be summarised.
        """
        first: StatePage | None = None
        while True:
            page = await self._page(request)
            first = first or page
            if _layout(page) != _layout(first) and request.messages_total != 0:
                problem = f"older messages of run {self.execution_id} were summarised while they were read"
                raise Conflict(f"{problem}; read it again")
            yield page
            request = replace(
                request,
                messages_from=request.messages_from + len(page.messages),
                steps_from=request.steps_from + len(page.steps),
                messages_total=first.messages_total,
                steps_total=first.steps_total,
            )
            if request.messages_from >= first.messages_total and request.steps_from >= first.steps_total:
                return

    async def events(self) -> AsyncGenerator[AnyObserved]:
        """Yield the observed events so far, in order.

        Raises ServerUnavailable where no worker has them; `has_events` says so before, and `reconstructed_events` has
        what is known without one.
        """
        queue, temporal = self.holdfast.settings.task_queue, self.holdfast.temporal
        for run_id, first in await self.runs():
            async with aclosing(event_pages(temporal, self._handle(run_id), EventsPage, queue, first)) as pages:
                async for page in pages:
                    for event in page.events:
                        yield event

    async def reconstructed_events(self) -> list[AnyObserved]:
        """Return the events reconstructed from the state, which has most of them."""
        return [*reconstructed(await self.whole(), self.agent)]

    async def has_events(self) -> bool:
        """Return whether a worker can tell the run's events; of one under way it must: ServerUnavailable."""
        if self.record is not None:
            return False
        try:
            await self._events("", EVENTS_END)
        except (ServerUnavailable, ExecutionNotFound):
            if self.state is None:
                raise
            return False
        return True

    async def runs(self) -> list[tuple[str, int]]:
        """Return the ids of its runs, oldest first, each with the place of the first event that it has."""
        asked = described(self.holdfast.temporal, self.execution_id, rpc_timeout=ASK_TIMEOUT)
        run_id: str | None = (await answered(asked, self.execution_id)).run_id
        runs: list[tuple[str, int]] = []
        with suppress(ExecutionNotFound):  # the server does not keep runs for ever
            while run_id is not None:
                page = await self._events(run_id, EVENTS_END)
                runs.append((run_id, page.first))
                run_id = page.previous_run_id
        return runs[::-1]

    async def _events(self, run_id: str, place: int) -> EventsPage:
        queue, temporal = self.holdfast.settings.task_queue, self.holdfast.temporal
        return await queried(
            temporal, self._handle(run_id), EVENTS_QUERY, EventsRequest(start=place), EventsPage, queue
        )

    async def _page(self, request: PageRequest) -> StatePage:
        if self.state is not None:
            return cut(self.state, request)
        queue, temporal = self.holdfast.settings.task_queue, self.holdfast.temporal
        return await queried(temporal, self._handle(""), STATE_QUERY, request, StatePage, queue)

    def _handle(self, run_id: str) -> WorkflowHandle[Any, Any]:
        return self.holdfast.temporal.get_workflow_handle(self.execution_id, run_id=run_id or None)


def _layout(page: StatePage) -> tuple[object, ...]:
    moved = page.head.execution.compactions if page.head.execution else 0
    return (*page.sections[:-1], moved)
