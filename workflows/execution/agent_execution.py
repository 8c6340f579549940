"""The workflow `AgentExecution`: one durable execution of an agent. `holdfast.core.loop.agent_loop` has the rules.

Signals, timers and ended calls become events in an inbox; the core answers with a new state and commands; commands
become activities and timers. The history grows by what is new in each step, never by the conversation, and a long
execution continues as new (`_go_on_in_a_new_run`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from functools import partial
from typing import Any, assert_never

from pydantic_core import to_json
from temporalio import workflow
from temporalio.exceptions import FailureError

from holdfast.core.agent.assistants import callable_agents
from holdfast.core.agent.state import AgentState
from holdfast.core.base import bounds
from holdfast.core.base.errors import HoldfastError
from holdfast.core.base.frozen import replace
from holdfast.core.base.safe_text import clamped
from holdfast.core.conversation.error_records import error_record
from holdfast.core.conversation.steps import ErrorRecord
from holdfast.core.loop.agent_loop import AgentLoop
from holdfast.core.loop.commands import (
    CallModel,
    CallTool,
    CancelInFlight,
    Command,
    Emit,
    Finish,
    HandOver,
    RequestApproval,
    RequestInput,
    RunHooks,
    SpawnSubagent,
    StartTimer,
    SummariseBuffer,
)
from holdfast.core.loop.events import (
    ChangeRefused,
    DriverFailed,
    Event,
    ExecutionStarted,
    HandoffRefused,
    MessageArrived,
    ModelCancelled,
    RunContinued,
    TimerFired,
    subagent_cancelled,
)
from holdfast.core.loop.start import between_steps, may_change
from holdfast.core.session.session_state import MESSAGE_ID
from holdfast.core.tools.tool_traits import ToolTraits
from holdfast.core.wire.carry_over import SealedHistory
from holdfast.core.wire.contracts import AGENT_EXECUTION, CarriedRun, ExecutionInput, StopRequest
from holdfast.core.wire.execution_record import question_of, without_record
from holdfast.core.wire.paging import without_bulk
from holdfast.core.wire.result_contracts import ExecutionResult
from holdfast.core.wire.tool_catalog import ToolCatalog
from holdfast.core.wire.transcript_digest import TranscriptPrefix
from workflows import summaries
from workflows.continue_as_new import FAULTS, check_start, is_long, newer_build
from workflows.event_log import EventLog
from workflows.execution.activity_calls import resolve_tools, take_up
from workflows.execution.call_errors import call_error
from workflows.execution.current_details import execution_details
from workflows.execution.definition_change import (
    ResolvedChange,
    opening_of,
    origin_of,
    priced,
    refusal,
    resolved,
    resolved_handoff,
)
from workflows.execution.executor import SHORTEST, Ends, Executor
from workflows.execution.initial_state import at_first, files_sent, started
from workflows.execution.mcp_calls import Unlisted, is_ending, resolve_at_start
from workflows.execution.metrics import ExecutionMetrics
from workflows.execution.model_wait_status import ModelWaits
from workflows.execution.pending_approvals import PendingApprovals
from workflows.execution.query_handlers import QueryHandlers
from workflows.execution.request_delta import ModelTranscript
from workflows.execution.result import SavedResult, result_of
from workflows.execution.signal_handlers import SignalHandlers
from workflows.execution.store_calls import MissingRecord, record
from workflows.search_attributes import Rate, continued_memo, ended, progress, upsert, upsert_in_turn

CANCEL_PASSES = 5
"""How many event loop iterations a cancel needs from a task to the SDK's command."""


@workflow.defn(name=AGENT_EXECUTION, failure_exception_types=FAULTS)
class AgentExecution(QueryHandlers, SignalHandlers):
    """One execution. Its result is an ExecutionResult; a `failed` one fails the workflow."""

    @workflow.init
    def __init__(self, start_data: dict[str, Any], *segments: bytes) -> None:
        # Signals are delivered before run() begins: everything that a handler touches is created here.
        # The SDK has no types for variadic arguments: the first is an ExecutionInput as plain data.
        check_start(start_data)
        self._start = start = ExecutionInput.model_validate_json(to_json(start_data))
        super().__init__(*((start.carried.taken, start.carried.answered) if start.carried else ()))
        self._history = SealedHistory()
        self._held: Sequence[Command] | None = None
        """Commands held back until the definition has changed; none when nothing is held back."""
        self._handing_to: str | None = None
        """The agent that the conversation is being handed to."""
        self._in_flight: list[asyncio.Task[None]] = []
        self._waits: dict[str, asyncio.Task[None]] = {}
        """The expiry timers of calls that wait for a person, by the id of the call."""
        self._timer: asyncio.Task[None] | None = None
        self._grace: asyncio.Task[None] | None = None
        self._catalog: ToolCatalog | None = None
        self._tools: dict[str, ToolTraits] = {}
        self._waiting = PendingApprovals()
        self._model_waits = ModelWaits()
        self._metrics = ExecutionMetrics(lambda: self._start.definition.name, lambda: self._tools)
        # The first task's now() differs between replays (a query in it moves it); the start time does not.
        self._begins_at = workflow.info().workflow_start_time
        """The recorded time at which the first task took the run up; that task may use no other time."""
        if start.carried is None:
            self._start, self._state = at_first(start, segments, self._history, self._begins_at)
            self._messages_before = len(self._state.messages)
            self._transcript = ModelTranscript(TranscriptPrefix(definition=start.definition, tools=()))
            self._event_log = EventLog()
        else:
            carried = start.carried
            self._state = self._history.opened(carried, segments)
            self._messages_before = carried.messages_before
            self._transcript = ModelTranscript(carried.opening, carried.told, self._state)
            self._event_log = EventLog(carried.events_total, carried.previous_run_id)
            self._set_catalog(carried.catalog)
        self._steps_before = self._state.step_count
        self._rate = Rate(self._steps_before)

    @property
    def as_it_stands(self) -> AgentState:
        """The current state, for tracing in this process."""
        return self._state

    def current_details(self) -> str:
        """Return the current details in the Web UI, as Markdown."""
        return execution_details(self._state, self._start.definition.name, self._model_waits.of(self._state))

    @property
    def started_as(self) -> ExecutionInput:
        """The input, with a changed definition applied."""
        return self._start

    @workflow.run
    async def run(self, start_data: dict[str, Any], *segments: bytes) -> ExecutionResult:  # noqa: ARG002  # as `__init__`
        """Run the loop to its end."""
        start = self._start
        await self._prepare()
        loop = self._rules()
        self._executor = Executor(start, self._catalog, self._transcript, self._rate, lambda: self._state)
        self._advance(loop, self._started(start) if start.carried is None else RunContinued(at=self._begins_at))
        while not self._state.status.is_terminal:
            if self._held is not None:
                loop = await self._changed(loop, self._held)
                continue
            if self._handing_to is not None:
                loop = await self._handed_over(loop, self._handing_to)
                continue
            if not self._inbox and not self._messages:
                await self._something_happens()
            # Messages first: the server has acknowledged them, so none may be left over when the run ends.
            waiting = self._messages or self._inbox
            if self._executor.ran_in_this_task and self._leads_out(loop, waiting[0]):
                await self._task_is_recorded()
            else:
                self._advance(loop, waiting.popleft())
        await self._let_go()
        saved = await self._save()
        if start.searchable:
            upsert(*ended(self._state))
        await workflow.wait_condition(workflow.all_handlers_finished)
        return result_of(self._state, saved)

    async def _save(self) -> SavedResult:
        """Store the ended execution; if that fails, the state has a warning."""
        self._show_surplus()
        self._snapshot = self._history.snapshot(self._state)
        question, ended_at = question_of(self._state), self._snapshot.head.updated_at
        recorded = await record(self._start, question, ended_at, summaries.of_record(self._state))
        if isinstance(recorded, MissingRecord):
            self._metrics.count_unkept()
            self._state = without_record(self._state, recorded.why)
        digest = None if isinstance(recorded, MissingRecord) else recorded.snapshot
        whole = self._start.session is None or digest is None
        delivered = self._delivered_ids()
        return SavedResult(snapshot=digest, taken=delivered, messages_before=self._messages_before, whole=whole)

    async def _something_happens(self) -> None:
        try:
            await workflow.wait_condition(lambda: bool(self._inbox or self._messages))
        except asyncio.CancelledError:
            self._cancelled()

    def _leads_out(self, loop: AgentLoop, event: Event) -> bool:
        """Return whether `event` would end this run, or have it continue as new."""
        state, _ = loop.step(self._state, event)
        return state.status.is_terminal or (self._may_go_on_elsewhere(state, waiting=1) and self._is_long())

    async def _task_is_recorded(self) -> None:
        """End this workflow task first, so that the history records what hooks and `local` tools did in it.

        If the task ended the run at once, a signal that came meanwhile would make the server repeat all of it.
        """
        try:
            await workflow.sleep(SHORTEST, summary="what hooks did is recorded")
        except asyncio.CancelledError:
            self._cancelled()

    def _advance(self, loop: AgentLoop, event: Event) -> None:
        """Apply the core's step to `event`, and carry out its commands."""
        before = self._state
        self._state, commands = loop.step(before, event)
        if isinstance(event, MessageArrived):
            self._note_delivered(event.message)
        events = [command.event for command in commands if isinstance(command, Emit)]
        for each in events:
            self._event_log.take(each)
        self._metrics.count(event, before, self._state, events)
        self._act_or_hold(commands)

    def _act_or_hold(self, commands: Sequence[Command]) -> None:
        """Carry out the commands, unless the definition is to change first."""
        if self._change is not None and self._idle and may_change(self._state, self._inbox):
            self._held = commands
        else:
            self._act(commands)

    def _act(self, commands: Sequence[Command]) -> None:
        """Carry out the commands, here or in the next Temporal run."""
        if self._may_go_on_elsewhere(self._state) and self._is_long():
            self._go_on_in_a_new_run()
        self._end_waits()
        for command in commands:
            self._perform(command)
        self._list()

    def _list(self) -> None:
        """Update the search attributes that changed; called after each event (see `PendingApprovals`, `Rate`)."""
        state = self._state
        waits, is_due = self._waiting.has_changed(state), self._rate.is_due(state.step_count)
        if not self._start.searchable or state.status.is_terminal:
            return
        if waits:
            self._task(upsert_in_turn(self._waiting.updates(state)))
        elif is_due:
            self._task(upsert_in_turn(progress(state)))

    def _end_waits(self) -> None:
        """Cancel the timers of calls that no longer wait, so that the history shows a decision and not a wait."""
        waiting = {each.call.id for each in (*self._state.waiting_calls, *self._state.input_calls)}
        for id_ in [id_ for id_ in self._waits if id_ not in waiting]:
            self._waits.pop(id_).cancel()

    async def _changed(self, loop: AgentLoop, held: Sequence[Command]) -> AgentLoop:
        """Apply the latest definition, which leads to other commands than those `held`.

        If this worker lacks what it names, the agent stays as it is, with a warning.
        """
        change, self._change, self._held = self._change, None, None
        if change is None:
            return loop
        try:
            # of several changes the last one counts
            resolution = await resolved(
                change, self._start, lambda: self._change is not None or is_ending(self._inbox), self._state
            )
        except asyncio.CancelledError:
            self._cancelled()
            self._act(held)
            return loop
        except (FailureError, HoldfastError) as error:
            self._state, _ = loop.step(self._state, ChangeRefused(refusal(error), workflow.now()))
            self._act_or_hold(held)  # another change may have come meanwhile
            return loop
        return self._go_on_as(resolution)

    async def _handed_over(self, loop: AgentLoop, agent: str) -> AgentLoop:
        """Hand the conversation over to `agent`; if this worker lacks what it names, the agent here goes on."""
        try:
            resolution = await resolved_handoff(agent, self._start, partial(is_ending, self._inbox), self._state)
        except asyncio.CancelledError:
            self._cancelled()  # a stop, which comes after the handoff
            return loop
        except (FailureError, HoldfastError) as error:
            self._handing_to = None
            self._advance(loop, HandoffRefused(refusal(error), workflow.now()))
            return loop
        self._handing_to = None
        return self._go_on_as(resolution)

    def _go_on_as(self, resolution: ResolvedChange) -> AgentLoop:
        self._start = resolution.start
        self._set_catalog(resolution.catalog)
        self._transcript.begin_anew(resolution.opening)
        self._executor.go_on_as(self._start, resolution.catalog)
        loop = self._rules()
        self._advance(loop, resolution.event)
        return loop

    def _may_go_on_elsewhere(self, state: AgentState, *, waiting: int = 0) -> bool:
        """Return whether `state` is between two steps, with nothing under way, after a step of this run.

        At most `waiting` events may be queued.
        """
        if not between_steps(state) or len(self._inbox) + len(self._messages) > waiting:
            return False
        return self._idle and state.step_count > self._steps_before and workflow.all_handlers_finished()

    @property
    def _idle(self) -> bool:
        return all(task.done() for task in self._in_flight)

    def _is_long(self) -> bool:
        return is_long(self._start.continue_events)

    def _go_on_in_a_new_run(self) -> None:
        """Continue as new; the next Temporal run issues the next commands, none of which was issued here."""
        steps, messages = self._history.seal(self._state)
        size = self._history.size
        if size > bounds.CARRIED_BYTES_MAX:
            text = f"the conversation and its steps take {size:,} bytes; start a new run from its answer so far"
            error = ErrorRecord(type="HistoryLimit", message=text, source="driver")
            self._inbox.append(DriverFailed(error=error, at=workflow.now(), lost=False))
            return
        carried = CarriedRun(
            head=without_bulk(self._state),
            segments=tuple(each.segment for each in self._history.sealed),
            steps=steps,
            messages=messages,
            opening=self._transcript.opening,
            told=self._transcript.mark_at(self._state),
            catalog=self._catalog or ToolCatalog(at=self._begins_at, tools=()),
            events_total=self._event_log.total,
            previous_run_id=workflow.info().run_id,
            taken=tuple(self._message_ids),
            answered=tuple(self._update_ids),
            messages_before=self._messages_before,
        )
        session = self._start.session and replace(self._start.session, snapshot=None, messages=())
        next_start = replace(self._start, question="", session=session, carried=carried, state=None)
        args, memo = [next_start, *(each.data for each in self._history.sealed)], continued_memo(self._state)
        workflow.continue_as_new(args=args, memo=memo, initial_versioning_behavior=newer_build())

    def _cancelled(self) -> None:
        """Treat Temporal's own cancellation (the Web UI's button) as a stop; call it where that is caught."""
        reason = workflow.cancellation_reason()
        if reason is None:
            raise  # noqa: PLE0704  # not a request: the worker evicts this run
        text = clamped(reason, bounds.REASON_CHARS_MAX)
        self._request_stop(StopRequest(reason=text, source="cancelled"))

    async def _prepare(self) -> None:
        """Resolve the tools and the time; if that fails, the run ends with the reason."""
        try:
            if self._start.carried is None:
                mcp = await resolve_at_start(self._start, self._begins_at, self._inbox, self._state.mcp_catalog)
                if mcp is Unlisted.LATE:  # a timer has fired, so this is no first task
                    self._begins_at = workflow.now()
                elif mcp is not Unlisted.STOPPED:
                    self._begin_with(await resolve_tools(self._start.definition, mcp, files_sent(self._start)))
            else:
                self._begins_at = (await take_up()).at
        except asyncio.CancelledError:
            self._cancelled()
        except FailureError as error:  # in a replay a local activity's failure is not wrapped
            if workflow.cancellation_reason() is not None:
                self._cancelled()
                return
            self._inbox.append(DriverFailed(error=call_error(error, "worker"), at=workflow.now(), lost=False))

    def _begin_with(self, catalog: ToolCatalog) -> None:
        """Begin the execution with the tools that the worker resolved."""
        self._begins_at = catalog.at
        self._set_catalog(catalog)
        start, at = self._start, self._state.updated_at
        opening = opening_of(start.definition, catalog, start.subagents)
        self._state = self._state.with_llm(priced(start.definition.llm, catalog), at=at)
        self._state = self._state.with_system_prompt(opening.definition.system_prompt, at=at)
        session = self._start.session
        self._transcript = (
            ModelTranscript(opening, before=session.messages_before, continues=session.previous_id)
            if session
            else ModelTranscript(opening, state=self._state if start.state else None)
        )

    def _set_catalog(self, catalog: ToolCatalog) -> None:
        self._catalog = catalog
        self._tools = {each.name: each for each in catalog.tools}

    def _rules(self) -> AgentLoop:
        definition = self._transcript.opening.definition
        return AgentLoop(
            definition,
            tools=self._tools,
            hooks=self._catalog.hooks if self._catalog else (),
            **callable_agents(definition, self._start.subagents),
            origin_digest=origin_of(self._start),
            depth_left=self._start.depth_left,
            observed=True,
        )

    def _started(self, start: ExecutionInput) -> ExecutionStarted:
        event = started(start, self._catalog)
        self._message_ids += filter(None, (str(each.metadata.get(MESSAGE_ID, "")) for each in event.messages))
        return event

    def _perform(self, command: Command) -> None:  # noqa: C901, PLR0912  # one case per command
        match command:
            case StartTimer() if command.fires_at <= self._begins_at:
                # it passed while no worker ran: handled before the calls of this very task begin
                self._inbox.append(TimerFired(at=command.fires_at))
            case StartTimer():
                if self._timer is not None:
                    self._timer.cancel()
                self._timer = self._task(self._executor.await_time_limit(command))
            case CallModel():
                self._begin(self._executor.call_model(command), lambda at: ModelCancelled(None, at))
            case SummariseBuffer():
                self._begin(self._executor.summarise(command))
            case CallTool():
                self._begin(self._executor.call_tool(command))
            case SpawnSubagent():
                self._begin(self._executor.spawn(command), partial(subagent_cancelled, command.call_id), child=True)
            case HandOver():
                self._handing_to = command.agent
            case RunHooks():
                self._begin(self._executor.run_hooks(command))
            case RequestApproval():
                self._waits[command.call.id] = self._task(self._executor.await_approval(command))
            case RequestInput():
                self._waits[command.call.id] = self._task(self._executor.await_input(command))
            case CancelInFlight():
                for task in (*self._in_flight, *self._waits.values()):
                    task.cancel()
                if self._state.running.cancelling:
                    self._grace = self._task(self._executor.give_up_cancelled())
            case Finish() | Emit():
                pass  # events are in the log already
            case _:
                assert_never(command)

    def _begin(
        self,
        work: Coroutine[Any, Any, Ends],
        cancelled: Callable[[datetime], Event] | None = None,
        *,
        child: bool = False,
    ) -> None:
        """Start `work`; `cancelled` makes the event when it is cancelled without an event of its own."""
        self._in_flight = [task for task in self._in_flight if not task.done()]
        task = self._task(work, child=child)
        self._in_flight.append(task)
        if cancelled is not None:
            task.add_done_callback(
                lambda ended: self._inbox.append(cancelled(workflow.now())) if ended.cancelled() else None
            )

    def _task(self, work: Coroutine[Any, Any, Ends], *, child: bool = False) -> asyncio.Task[None]:
        task = asyncio.create_task(self._guarded(work, child=child))
        task.add_done_callback(lambda _: work.close())  # one that is cancelled before it began would complain
        return task

    async def _let_go(self) -> None:
        """Send the cancels of calls still in flight, without waiting for their results."""
        for task in (*self._in_flight, *self._waits.values(), self._timer, self._grace):
            if task is not None:
                task.cancel()
        for _ in range(CANCEL_PASSES):
            await asyncio.sleep(0)
        await workflow.wait_condition(workflow.all_handlers_finished)

    async def _guarded(self, work: Coroutine[Any, Any, Ends], *, child: bool) -> None:
        """Queue the events of `work`. An unexpected error ends the run with its cause, so that nothing waits for ever.

        Calls begin in the order of their events, however many events one task handles: starting a `child` takes one
        iteration of the event loop by itself, so everything else gets one, too.
        """
        try:
            if not child:
                await asyncio.sleep(0)
            self._inbox.extend(await work)
        except Exception as error:  # noqa: BLE001  # whatever it is
            self._inbox.append(DriverFailed(error=error_record(error, "driver"), at=workflow.now()))
