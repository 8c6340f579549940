"""The workflow `AgentExecution`: one request of one agent, durably. The rules are `holdfast.core.loop.agent_loop`'s.

Signals, timers and ended calls become events in an inbox; the core answers with a new state and commands; commands
become activities and timers. The history grows by what is new in each step, never by the conversation, and an execution
that has become long goes on in a new run (`_go_on_in_a_new_run`).
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

from holdfast.core.agent.initial_state import as_defined, first_run, new_agent
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.subagents import known_subagents
from holdfast.core.agent.tools import ToolTraits
from holdfast.core.base import bounds
from holdfast.core.base.errors import HoldfastError
from holdfast.core.base.frozen import replace
from holdfast.core.base.safe_text import clamped
from holdfast.core.conversation.error_records import error_record
from holdfast.core.conversation.messages import user_message
from holdfast.core.conversation.steps import ErrorRecord
from holdfast.core.loop.agent_loop import AgentLoop
from holdfast.core.loop.commands import (
    CallModel,
    CallTool,
    CancelInFlight,
    Command,
    Emit,
    Finish,
    RequestApproval,
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
    MessageArrived,
    ModelCancelled,
    RunContinued,
    TimerFired,
    subagent_cancelled,
)
from holdfast.core.loop.start import between_steps, may_change
from holdfast.core.session.session_state import MESSAGE_ID
from holdfast.core.wire.carry_over import SealedHistory
from holdfast.core.wire.contracts import AGENT_EXECUTION, CarriedRun, ExecutionInput, StopRequest, ToolCatalog
from holdfast.core.wire.execution_record import asked_of, without_record
from holdfast.core.wire.paging import without_bulk
from holdfast.core.wire.result_contracts import ExecutionResult
from holdfast.core.wire.transcript_digest import TranscriptPrefix
from workflows import summaries
from workflows.continue_as_new import FAULTS, check_start, is_long
from workflows.event_log import EventLog
from workflows.execution.activity_calls import call_error, resolve_tools, take_up
from workflows.execution.current_details import CurrentDetails
from workflows.execution.definition_change import opening_of, priced, resolved
from workflows.execution.executor import SHORTEST, Ends, Executor
from workflows.execution.metrics import ExecutionMetrics
from workflows.execution.model_wait_status import ModelWaits
from workflows.execution.pending_approvals import PendingApprovals
from workflows.execution.query_handlers import QueryHandlers
from workflows.execution.request_delta import ModelTranscript
from workflows.execution.result import SavedResult, result_of
from workflows.execution.signal_handlers import SignalHandlers
from workflows.execution.store_calls import MissingRecord, record
from workflows.search_attributes import Rate, ended, progress, show, tell

CANCEL_PASSES = 5
"""How many passes of the loop a cancel needs from a task to the command that the SDK makes of it."""


@workflow.defn(name=AGENT_EXECUTION, failure_exception_types=FAULTS)
class AgentExecution(QueryHandlers, SignalHandlers):
    """One execution. Its result is an ExecutionResult; a `failed` one fails the workflow."""

    @workflow.init
    def __init__(self, given: dict[str, Any], *segments: bytes) -> None:
        # Signals are delivered before run() begins: everything a handler touches is made here.
        # The SDK knows no types for arguments of any number: what it gives is an ExecutionInput as plain data.
        check_start(given)
        self._start = start = ExecutionInput.model_validate_json(to_json(given))
        super().__init__(*((start.carried.taken, start.carried.answered) if start.carried else ()))
        self._past = SealedHistory()
        self._held: Sequence[Command] | None = None
        """What is not begun because the definition changes first; none where nothing is held back."""
        self._in_flight: list[asyncio.Task[None]] = []
        self._waits: dict[str, asyncio.Task[None]] = {}
        """For decisions that may not come in time, by the id of the call."""
        self._timer: asyncio.Task[None] | None = None
        self._grace: asyncio.Task[None] | None = None
        self._catalog: ToolCatalog | None = None
        self._tools: dict[str, ToolTraits] = {}
        self._waiting = PendingApprovals()
        self._story = CurrentDetails()
        self._model_waits = ModelWaits(self._tell_story)
        self._metering = ExecutionMetrics(lambda: self._start.definition.name, lambda: self._tools)
        # The first task's now() is not the same in every replay (a query in it moves it); the start time is.
        self._begins_at = workflow.info().workflow_start_time
        """When the first task took the run up, as recorded; the only moment that task may decide anything by."""
        if start.carried is None:
            self._state = self._at_first(start, segments)
            self._messages_before = len(self._state.messages)
            self._telling = ModelTranscript(TranscriptPrefix(definition=start.definition, tools=()))
            self._observing = EventLog()
        else:
            carried = start.carried
            self._state = self._past.opened(carried, segments)
            self._messages_before = carried.messages_before
            self._telling = ModelTranscript(carried.opening, carried.told, self._state)
            self._observing = EventLog(carried.events_total, carried.previous_run_id)
            self._offered(carried.catalog)
        self._steps_before = self._state.step_count
        self._rate = Rate(self._steps_before)

    def _at_first(self, start: ExecutionInput, kept: Sequence[bytes]) -> AgentState:
        """Return the agent as its first run finds it: new, as somebody gives it, or as its session left it."""
        if start.state is not None:
            given = self._past.opened(start.state, kept)
            return first_run(given, start.definition, agent_id=start.agent_id, at=self._begins_at)
        session = start.session
        if session is None or session.snapshot is None:
            state = new_agent(
                start.definition, agent_id=start.agent_id, at=self._begins_at, parent_agent_id=start.parent_agent_id
            )
        else:
            state = self._past.restored(kept[0], agent_id=start.agent_id)
            state = as_defined(state, start.definition, self._begins_at)
        return state if session is None else replace(state, execution_count=session.executions)

    @property
    def as_it_stands(self) -> AgentState:
        """The execution now, for what tells of it in this process."""
        return self._state

    @property
    def started_as(self) -> ExecutionInput:
        """What it was started with; a changed definition in its place."""
        return self._start

    @workflow.run
    async def run(self, given: dict[str, Any], *segments: bytes) -> ExecutionResult:  # noqa: ARG002  # as `__init__`
        """Run the loop to its end."""
        start = self._start
        self._tell_story()
        await self._prepare()
        loop = self._rules()
        self._work = Executor(start, self._tools, self._telling, self._rate, lambda: self._state)
        self._advance(loop, self._started(start) if start.carried is None else RunContinued(at=self._begins_at))
        while not self._state.status.is_terminal:
            if self._held is not None:
                loop = await self._changed(loop, self._held)
                continue
            if not self._inbox and not self._messages:
                await self._something_happens()
            # Messages first: the server has acknowledged them, so none may be left over when something else ends us.
            waiting = self._messages or self._inbox
            if self._work.ran_in_this_task and self._leads_out(loop, waiting[0]):
                await self._task_is_recorded()
            else:
                self._advance(loop, waiting.popleft())
        await self._let_go()
        self._tell_story()
        kept = await self._kept()
        self._tell_story()
        if start.searchable:
            show(*ended(self._state))
        await workflow.wait_condition(workflow.all_handlers_finished)
        return result_of(self._state, kept)

    async def _kept(self) -> SavedResult:
        """Have what has ended kept; where that cannot be, a warning says so."""
        self._tell_surplus()
        self._snapshot = self._past.snapshot(self._state)
        kept = await record(self._start, asked_of(self._state), summaries.of_record(self._state))
        if isinstance(kept, MissingRecord):
            self._metering.count_unkept()
            self._state = without_record(self._state, kept.why)
        digest = None if isinstance(kept, MissingRecord) else kept.snapshot
        whole = self._start.session is None or digest is None
        return SavedResult(snapshot=digest, taken=self._said(), messages_before=self._messages_before, whole=whole)

    def _tell_story(self) -> None:
        """Have the Web UI show how far we are; to be called before we wait, not after each event."""
        wait = self._model_waits.of(self._state)
        workflow.set_current_details(self._story.told(self._state, self._start.definition.name, wait))

    async def _something_happens(self) -> None:
        self._tell_story()
        try:
            await workflow.wait_condition(lambda: bool(self._inbox or self._messages))
        except asyncio.CancelledError:
            self._cancelled()

    def _leads_out(self, loop: AgentLoop, event: Event) -> bool:
        """Return whether `event` would end this run, or have it go on in a new one."""
        state, _ = loop.step(self._state, event)
        return state.status.is_terminal or (self._may_go_on_elsewhere(state, waiting=1) and self._is_long())

    async def _task_is_recorded(self) -> None:
        """Let this workflow task come to its end, so that what hooks and `local` tools did in it stands in the history.

        Were it to end the run at once, a signal that came meanwhile would have the server repeat the whole task.
        """
        try:
            await workflow.sleep(SHORTEST, summary="what hooks did is recorded")
        except asyncio.CancelledError:
            self._cancelled()

    def _advance(self, loop: AgentLoop, event: Event) -> None:
        """Let the core decide about `event` and do what it wants."""
        before = self._state
        self._state, commands = loop.step(before, event)
        if isinstance(event, MessageArrived):
            self._note_taken(event.message)
        told = [command.event for command in commands if isinstance(command, Emit)]
        for each in told:
            self._observing.take(each)
        self._metering.count(event, before, self._state, told)
        self._act_or_hold(commands)

    def _act_or_hold(self, commands: Sequence[Command]) -> None:
        """Do what the core wants, unless the agent is to become another one before that."""
        if self._change is not None and self._idle and may_change(self._state, self._inbox):
            self._held = commands
        else:
            self._act(commands)

    def _act(self, commands: Sequence[Command]) -> None:
        """Do what the core wants, here or in the next run."""
        if self._may_go_on_elsewhere(self._state) and self._is_long():
            self._go_on_in_a_new_run()
        self._end_waits()
        for command in commands:
            self._perform(command)
        self._list()

    def _list(self) -> None:
        """Have the run listed by what has changed; call it after each event (see `PendingApprovals`, `Rate`)."""
        state = self._state
        waits, is_due = self._waiting.has_changed(state), self._rate.is_due(state.step_count)
        if not self._start.searchable or state.status.is_terminal:
            return
        if waits:
            self._task(tell(self._waiting.updates(state)))
        elif is_due:
            self._task(tell(progress(state)))

    def _end_waits(self) -> None:
        """Cancel the timers of calls that wait no more: who looks at the history sees a decision, not a wait."""
        waiting = {each.call.id for each in self._state.waiting_calls}
        for id_ in [id_ for id_ in self._waits if id_ not in waiting]:
            self._waits.pop(id_).cancel()

    async def _changed(self, loop: AgentLoop, held: Sequence[Command]) -> AgentLoop:
        """Go on by the definition that came last, which asks for something else than what is `held`.

        Where this worker cannot offer what it names, the agent stays as it is, and says so.
        """
        change, self._change, self._held = self._change, None, None
        if change is None:
            return loop
        try:
            resolution = await resolved(change)
        except asyncio.CancelledError:
            self._cancelled()
            self._act(held)
            return loop
        except (FailureError, HoldfastError) as error:
            refusal = call_error(error, "worker") if isinstance(error, FailureError) else error_record(error, "worker")
            self._state, _ = loop.step(self._state, ChangeRefused(refusal, workflow.now()))
            self._act_or_hold(held)  # another change may have come meanwhile
            return loop
        self._start = replace(self._start, definition=change.definition, subagents=change.subagents)
        self._offered(resolution.catalog)
        self._telling.begin_anew(resolution.opening)
        self._work.go_on_as(self._start, self._tools)
        loop = self._rules()
        self._advance(loop, resolution.event)
        return loop

    def _may_go_on_elsewhere(self, state: AgentState, *, waiting: int = 0) -> bool:
        """Return whether `state` is between two steps, nothing under way, and we have taken one ourselves.

        No more than so many events may be `waiting`.
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
        """End this run and begin the next, which asks for what comes now: nothing of it has been asked for here."""
        steps, messages = self._past.seal(self._state)
        size = self._past.size
        if size > bounds.CARRIED_BYTES_MAX:
            text = f"the conversation and its steps take {size:,} bytes; start a new run from its answer so far"
            error = ErrorRecord(type="HistoryLimit", message=text, source="driver")
            self._inbox.append(DriverFailed(error=error, at=workflow.now()))
            return
        carried = CarriedRun(
            head=without_bulk(self._state),
            segments=tuple(each.segment for each in self._past.sealed),
            steps=steps,
            messages=messages,
            opening=self._telling.opening,
            told=self._telling.told(self._state),
            catalog=self._catalog or ToolCatalog(at=self._begins_at, tools=()),
            events_total=self._observing.total,
            previous_run_id=workflow.info().run_id,
            taken=tuple(self._taken),
            answered=tuple(self._answered),
            messages_before=self._messages_before,
        )
        session = self._start.session and replace(self._start.session, snapshot=None, messages=())
        following = replace(self._start, question="", session=session, carried=carried, state=None)
        workflow.continue_as_new(args=[following, *(each.data for each in self._past.sealed)])

    def _cancelled(self) -> None:
        """Take Temporal's own cancellation (the Web UI's button) for a stop; call it from where that is caught."""
        reason = workflow.cancellation_reason()
        if reason is None:
            raise  # noqa: PLE0704  # not somebody's wish but the worker putting this run aside
        told = clamped(reason, bounds.REASON_CHARS_MAX)
        self._request_stop(StopRequest(reason=told, source="cancelled"))

    async def _prepare(self) -> None:
        """Learn which tools there are, and when we are; where that fails, the run ends with the reason."""
        try:
            if self._start.carried is None:
                self._begin_with(await resolve_tools(self._start.definition))
            else:
                self._begins_at = (await take_up()).at
        except asyncio.CancelledError:
            self._cancelled()
        except FailureError as error:  # in a replay a local activity's failure comes bare, whatever it is
            if workflow.cancellation_reason() is not None:
                self._cancelled()
                return
            self._inbox.append(DriverFailed(error=call_error(error, "worker"), at=workflow.now()))

    def _begin_with(self, catalog: ToolCatalog) -> None:
        """Begin the execution with what the worker offers to it."""
        self._begins_at = catalog.at
        self._offered(catalog)
        start, at = self._start, self._state.updated_at
        opening = opening_of(start.definition, catalog, start.subagents)
        self._state = self._state.with_llm(priced(start.definition.llm, catalog), at=at)
        self._state = self._state.with_system_prompt(opening.definition.system_prompt, at=at)
        session = self._start.session
        self._telling = (
            ModelTranscript(opening, before=session.messages_before, continues=session.previous_id)
            if session
            else ModelTranscript(opening, state=self._state if start.state else None)
        )

    def _offered(self, catalog: ToolCatalog) -> None:
        self._catalog = catalog
        self._tools = {each.name: each for each in catalog.tools}

    def _rules(self) -> AgentLoop:
        definition = self._telling.opening.definition
        return AgentLoop(
            definition,
            tools=self._tools,
            hooks=self._catalog.hooks if self._catalog else (),
            subagents=known_subagents(definition, self._start.subagents),
            depth_left=self._start.depth_left,
            observed=True,
        )

    def _started(self, start: ExecutionInput) -> ExecutionStarted:
        said = (user_message(start.question),) if start.question else ()
        messages = start.session.messages if start.session else said
        self._taken += filter(None, (str(each.metadata.get(MESSAGE_ID, "")) for each in messages))
        return ExecutionStarted(
            execution_id=workflow.info().workflow_id,
            messages=messages,
            budget=start.budget,
            at=workflow.info().workflow_start_time,
            metadata=start.metadata,
        )

    def _perform(self, command: Command) -> None:  # noqa: C901, PLR0912  # one case per command
        match command:
            case StartTimer() if command.fires_at <= self._begins_at:
                # it struck while no worker was there: taken up before the calls of this very task are begun
                self._inbox.append(TimerFired(at=command.fires_at))
            case StartTimer():
                if self._timer is not None:
                    self._timer.cancel()
                self._timer = self._task(self._wait(command))
            case CallModel():
                self._begin(self._work.call_model(command), lambda at: ModelCancelled(None, at))
            case SummariseBuffer():
                self._begin(self._work.summarise(command))
            case CallTool():
                self._begin(self._work.call_tool(command))
            case SpawnSubagent():
                self._begin(self._work.spawn(command), partial(subagent_cancelled, command.call_id), child=True)
            case RunHooks():
                self._begin(self._work.run_hooks(command))
            case RequestApproval():
                self._waits[command.call.id] = self._task(self._work.await_approval(command))
            case CancelInFlight():
                for task in (*self._in_flight, *self._waits.values()):
                    task.cancel()
                if self._state.running.cancelling:
                    self._grace = self._task(self._give_up())
            case Finish() | Emit():
                pass  # what is told has been kept
            case _:
                assert_never(command)

    def _begin(
        self,
        work: Coroutine[Any, Any, Ends],
        cancelled: Callable[[datetime], Event] | None = None,
        *,
        child: bool = False,
    ) -> None:
        """Begin `work`; `cancelled` makes what is told when it is cancelled before it could tell anything itself."""
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

    async def _give_up(self) -> Ends:
        """Tell of what was cancelled and has not reported in time; it counts as the most that it can have used."""
        calls = self._state.running.open_calls
        seconds = bounds.SUBAGENT_GRACE_SECONDS if calls else bounds.MODEL_GRACE_SECONDS
        await workflow.sleep(seconds, summary=summaries.of_grace(len(calls)))
        at = workflow.now()
        return self._work.children_unheard(at) if calls else (self._work.cancelled_unheard(at),)

    async def _let_go(self) -> None:
        """Send on their way the cancels of what is still in flight, without waiting for what they come to."""
        for task in (*self._in_flight, *self._waits.values(), self._timer, self._grace):
            if task is not None:
                task.cancel()
        for _ in range(CANCEL_PASSES):
            await asyncio.sleep(0)
        await workflow.wait_condition(workflow.all_handlers_finished)

    async def _guarded(self, work: Coroutine[Any, Any, Ends], *, child: bool) -> None:
        """Take in what `work` comes to. A fault of our own ends the run with its cause, instead of being waited for.

        Calls begin in the order of the events that led to them, however many events one task takes in: the start of a
        `child` takes a turn of the event loop by itself, so everything else is given one, too.
        """
        try:
            if not child:
                await asyncio.sleep(0)
            self._inbox.extend(await work)
        except Exception as error:  # noqa: BLE001  # whatever it is
            self._inbox.append(DriverFailed(error=error_record(error, "driver"), at=workflow.now()))

    async def _wait(self, command: StartTimer) -> Ends:
        # the first task's time can have passed the moment that was decided by; a timer must not be negative
        caption = summaries.of_time_limit(self._state.running, command.fires_at)
        await workflow.sleep(max(command.fires_at - workflow.now(), SHORTEST), summary=caption)
        return (TimerFired(at=workflow.now()),)
