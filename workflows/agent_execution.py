"""The workflow `AgentExecution`: one request of one agent, durably. The rules are `holdfast.core.loop`'s.

Signals, timers and ended calls become events in an inbox; the core answers with a new state and commands; commands
become activities and timers. The history grows by what is new in each step, never by the conversation, and an execution
that has become long goes on in a new run (`_go_on_in_a_new_run`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeVar, assert_never

from pydantic import BaseModel
from pydantic_core import to_json
from temporalio import workflow
from temporalio.exceptions import ApplicationError, FailureError

with workflow.unsafe.imports_passed_through():
    from holdfast.core import limits
    from holdfast.core.carrying import Past
    from holdfast.core.commands import (
        AskApproval,
        CallModel,
        CallTool,
        CancelInFlight,
        Command,
        Emit,
        Finish,
        RunHooks,
        SpawnSubagent,
        StartTimer,
        SummariseBuffer,
    )
    from holdfast.core.contracts import (
        AGENT_EXECUTION,
        APPROVAL_SIGNAL,
        BUDGET_QUERY,
        BUFFER_QUERY,
        DEBUG_QUERY,
        EVENTS_QUERY,
        MESSAGE_SIGNAL,
        STATE_QUERY,
        STOP_SIGNAL,
        TRANSCRIPT_QUERY,
        ApprovalDecision,
        BufferPage,
        Carried,
        EventsPage,
        EventsRequest,
        ExecutionInput,
        ExecutionResult,
        PageRequest,
        StatePage,
        StopRequest,
        ToolCatalog,
        TranscriptPage,
        TranscriptRequest,
    )
    from holdfast.core.errors import HoldfastError
    from holdfast.core.events import (
        ApprovalGiven,
        DriverFailed,
        Event,
        ExecutionStarted,
        MessageArrived,
        ModelCancelled,
        RunContinued,
        StopRequested,
        TimerFired,
        subagent_cancelled,
    )
    from holdfast.core.frozen import replace
    from holdfast.core.keeping import problem_with_message
    from holdfast.core.loop import AgentLoop, new_agent, user_message
    from holdfast.core.messages import Message
    from holdfast.core.nearest import suggestion
    from holdfast.core.paging import page, without_bulk
    from holdfast.core.state import AgentState
    from holdfast.core.steps import ErrorRecord
    from holdfast.core.stopping import StopReason, StopSignal
    from holdfast.core.subagents import known_subagents, spawn_schema
    from holdfast.core.summarising import summary_request
    from holdfast.core.texts import clamped, error_record
    from holdfast.core.tools import ToolTraits
    from holdfast.core.transcript import Opening
    from workflows.calls import call_error, resolve_tools, take_up
    from workflows.observing import Observing
    from workflows.outcome import final_attributes, result_of
    from workflows.story import current_details
    from workflows.telling import Telling
    from workflows.work import SHORTEST, Ends, Work

ToldT = TypeVar("ToldT", bound=BaseModel)

CANCEL_PASSES = 5
"""How many passes of the loop a cancel needs from a task to the command that the SDK makes of it."""

# Faults of our own end a run with their cause instead of repeating its task for ever. Not plain Exception: that would
# take in the SDK's NondeterminismError, after which a run must wait for a worker with the right code.
FAULTS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    HoldfastError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)


def _told(kind: type[ToldT], given: Sequence[object]) -> ToldT | None:
    """Return what a signal says, its first argument; none where that is nothing, or not of this kind.

    People send signals by hand, with any arguments and any number of them, and whatever a handler raised for that
    would fail the run: so handlers take everything and read it here.
    """
    try:
        return kind.model_validate_json(to_json(given[0])) if given else None
    except ValueError as error:
        workflow.logger.warning("a signal was not taken: %s", clamped(str(error), limits.ERROR_CHARS_MAX))
        return None


@workflow.defn(name=AGENT_EXECUTION, failure_exception_types=FAULTS)
class AgentExecution:
    """One execution. Its result is an ExecutionResult; a `failed` one fails the workflow."""

    @workflow.init
    def __init__(self, given: dict[str, Any], *segments: bytes) -> None:
        # Signals are delivered before run() begins: everything a handler touches is made here.
        # The SDK knows no types for arguments of any number: what it gives is an ExecutionInput as plain data.
        self._start = start = ExecutionInput.model_validate_json(to_json(given))
        self._past = Past()
        self._inbox: deque[Event] = deque()
        self._messages: deque[MessageArrived] = deque()
        self._in_flight: list[asyncio.Task[None]] = []
        self._timer: asyncio.Task[None] | None = None
        self._grace: asyncio.Task[None] | None = None
        self._catalog: ToolCatalog | None = None
        self._tools: dict[str, ToolTraits] = {}
        # The first task's now() is not the same in every replay (a query in it moves it); the start time is.
        self._begins_at = workflow.info().workflow_start_time
        """When the first task took the run up, as recorded; the only moment that task may decide anything by."""
        if start.carried is None:
            self._state = new_agent(
                start.definition, agent_id=start.agent_id, at=self._begins_at, parent_agent_id=start.parent_agent_id
            )
            self._telling = Telling(Opening(definition=start.definition, tools=()))
            self._observing = Observing()
        else:
            carried = start.carried
            self._state = self._past.opened(carried, segments)
            self._telling = Telling(carried.opening, carried.told, self._state)
            self._observing = Observing(carried.events_total, carried.previous_run_id)
            self._offered(carried.catalog)
        self._steps_before = self._state.step_count

    @workflow.run
    async def run(self, given: dict[str, Any], *segments: bytes) -> ExecutionResult:  # noqa: ARG002  # as `__init__`
        """Run the loop to its end."""
        start = self._start
        await self._prepare()
        loop = self._rules()
        self._work = Work(start, self._tools, self._telling, lambda: self._state)
        self._advance(loop, self._started(start) if start.carried is None else RunContinued(at=self._begins_at))
        while not self._state.status.is_terminal:
            if not self._inbox and not self._messages:
                await self._something_happens()
            # Messages first: the server has acknowledged them, so none may be left over when something else ends us.
            waiting = self._messages or self._inbox
            if self._work.ran_in_this_task and self._leads_out(loop, waiting[0]):
                await self._task_is_recorded()
            else:
                self._advance(loop, waiting.popleft())
        await self._let_go()
        if start.searchable:
            updates = final_attributes(self._state)
            workflow.upsert_search_attributes(updates)  # pyright: ignore[reportUnknownMemberType]  # the SDK's own hint
        return result_of(self._state)

    @workflow.signal(name=STOP_SIGNAL, description="Stop the run: now (default) or after the step under way.")
    def stop(self, *given: Any) -> None:  # noqa: ANN401  # see `_told`
        """Take note of a stop; the loop acts on it in the same workflow task."""
        request = _told(StopRequest, given) if given and given[0] is not None else StopRequest()
        if request is not None:
            self._request_stop(request)

    @workflow.signal(name=MESSAGE_SIGNAL, description="Say something: the model sees it with its next call.")
    def message(self, *given: Any) -> None:  # noqa: ANN401  # see `_told`
        """Take note of a message; a signal without one says nothing."""
        if (message := _told(Message, given)) is not None:
            self._say(message)

    @workflow.signal(name=APPROVAL_SIGNAL, description="Decide about a call that waits for approval.")
    def approval(self, *given: Any) -> None:  # noqa: ANN401  # see `_told`
        """Take note of a person's decision; a signal without one decides nothing."""
        if (decision := _told(ApprovalDecision, given)) is not None:
            self._decide(decision)

    @workflow.update(name=STOP_SIGNAL, description="Stop the run; answers with its status when it has ended.")
    async def stop_and_wait(self, request: StopRequest | None = None) -> str:
        """Stop the run as the signal does, and return how it has ended."""
        self._request_stop(request or StopRequest())
        await workflow.wait_condition(lambda: self._state.status.is_terminal)
        return self._state.status.value

    @workflow.update(name=MESSAGE_SIGNAL, description="Say something; refused where there is no room for it.")
    def message_taken(self, message: Message) -> None:
        """Take note of a message as the signal does, but only of one that will be kept."""
        self._say(message)

    @message_taken.validator
    def _refuse_message(self, message: Message) -> None:
        execution = self._state.execution  # none before the first task has begun it
        kept = execution.waiting_messages if execution is not None else ()
        waiting = (*kept, *(each.message for each in self._messages))
        if problem := problem_with_message(message, waiting, ended=self._state.status.is_terminal):
            raise ApplicationError(problem, type="MessageRefused", non_retryable=True)

    @workflow.update(name=APPROVAL_SIGNAL, description="Decide about a call; refused where it does not wait.")
    def approval_taken(self, decision: ApprovalDecision) -> None:
        """Take note of a person's decision as the signal does, but only about a call that waits for one."""
        self._decide(decision)

    @approval_taken.validator
    def _refuse_decision(self, decision: ApprovalDecision) -> None:
        waiting = [each.call.id for each in self._state.waiting_calls]
        if decision.call_id not in waiting:
            text = f"the call {decision.call_id!r} does not wait for approval; {suggestion(decision.call_id, waiting)}"
            raise ApplicationError(text, type="DecisionRefused", non_retryable=True)

    @workflow.query(name=STATE_QUERY, description="The state, page by page.")
    def state(self, request: PageRequest | None = None) -> StatePage:
        """Return a page of the state; the first one without a request."""
        return page(self._state, request or PageRequest())

    @workflow.query(name=DEBUG_QUERY, description="The few facts one asks for first.")
    def debug(self) -> dict[str, Any]:
        """Return status, steps, signals, errors and usage."""
        return self._state.debug()

    @workflow.query(name=TRANSCRIPT_QUERY, description="What the model has been told, for the inference activity.")
    def transcript(self, asked: TranscriptRequest) -> TranscriptPage:
        """Return a run of messages as the model sees them."""
        return self._telling.page(asked)

    @workflow.query(name=BUFFER_QUERY, description="What is to be summarised, for the summarise activity.")
    def buffer(self) -> BufferPage:
        """Return what a model is asked in order to summarise the buffer."""
        return BufferPage(messages=summary_request(self._state.store))

    @workflow.query(name=EVENTS_QUERY, description="What a listener would have heard, page by page.")
    def events(self, request: EventsRequest | None = None) -> EventsPage:
        """Return the observed events from a place on."""
        return self._observing.page(request or EventsRequest())

    @workflow.query(name=BUDGET_QUERY, description="The limits, and what is left of them.")
    def budget(self) -> dict[str, Any]:
        """Return the limits in force and what is left, each none where there is no limit."""
        left = self._state.budget_remaining
        return {"budget": self._state.budget.model_dump(mode="json"), "remaining": left.model_dump(mode="json")}

    async def _something_happens(self) -> None:
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
        self._state, commands = loop.step(self._state, event)
        for command in commands:
            if isinstance(command, Emit):
                self._observing.take(command.event)
        if self._may_go_on_elsewhere(self._state) and self._is_long():
            self._go_on_in_a_new_run()
        for command in commands:
            self._perform(command)
        workflow.set_current_details(current_details(self._state))

    def _may_go_on_elsewhere(self, state: AgentState, *, waiting: int = 0) -> bool:
        """Return whether `state` is between two steps, nothing under way, and we have taken one ourselves.

        No more than so many events may be `waiting`.
        """
        execution = state.running
        step = execution.current_step
        begun = (step is not None and step.inference_response is not None) or execution.open_calls
        if (
            begun
            or execution.cancelling
            or state.status.is_terminal
            or len(self._inbox) + len(self._messages) > waiting
        ):
            return False
        idle = all(task.done() for task in self._in_flight)
        return idle and state.step_count > self._steps_before and workflow.all_handlers_finished()

    def _is_long(self) -> bool:
        info = workflow.info()
        if info.get_current_history_length() >= self._start.continue_events:
            return True
        return info.get_current_history_size() >= limits.CONTINUE_BYTES or info.is_continue_as_new_suggested()

    def _go_on_in_a_new_run(self) -> None:
        """End this run and begin the next, which asks for what comes now: nothing of it has been asked for here."""
        steps, messages = self._past.seal(self._state)
        size = self._past.size
        if size > limits.CARRIED_BYTES_MAX:
            text = f"the conversation and its steps take {size:,} bytes; start a new run from its answer so far"
            error = ErrorRecord(type="HistoryLimit", message=text, source="driver")
            self._inbox.append(DriverFailed(error=error, at=workflow.now()))
            return
        carried = Carried(
            head=without_bulk(self._state),
            segments=tuple(each.segment for each in self._past.sealed),
            steps=steps,
            messages=messages,
            opening=self._telling.opening,
            told=self._telling.told(self._state),
            catalog=self._catalog or ToolCatalog(at=self._begins_at, tools=()),
            events_total=self._observing.total,
            previous_run_id=workflow.info().run_id,
        )
        following = replace(self._start, question="", carried=carried)
        workflow.continue_as_new(args=[following, *(each.data for each in self._past.sealed)])

    def _cancelled(self) -> None:
        """Take Temporal's own cancellation (the Web UI's button) for a stop; call it from where that is caught."""
        reason = workflow.cancellation_reason()
        if reason is None:
            raise  # noqa: PLE0704  # not somebody's wish but the worker putting this run aside
        told = clamped(reason, limits.REASON_CHARS_MAX)
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
        definition = self._start.definition
        if catalog.prices is not None and definition.llm.prices is None:
            self._state = self._state.with_llm(self._state.updated_at, replace(definition.llm, prices=catalog.prices))
        if catalog.prompt:
            prompt = "\n\n".join(filter(None, (definition.system_prompt, catalog.prompt)))
            definition = replace(definition, system_prompt=prompt)
            self._state = self._state.with_system_prompt(self._state.updated_at, prompt)
        subagents = known_subagents(definition, self._start.subagents)
        spawn = spawn_schema(subagents) if subagents else None
        self._telling = Telling(Opening(definition=definition, tools=tuple(self._tools), spawn=spawn))

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
        return ExecutionStarted(
            execution_id=workflow.info().workflow_id,
            messages=(user_message(start.question),),
            budget=start.budget,
            at=workflow.info().workflow_start_time,
        )

    def _request_stop(self, request: StopRequest) -> None:
        at = workflow.now()
        source = request.source or "signal"
        signal = StopSignal(reason=StopReason.USER_REQUESTED, message=request.reason, source=source, at=at)
        self._inbox.append(StopRequested(signal=signal, mode=request.mode, at=at))

    def _say(self, message: Message) -> None:
        self._messages.append(MessageArrived(message=message, at=workflow.now()))

    def _decide(self, decision: ApprovalDecision) -> None:
        self._inbox.append(ApprovalGiven(decision.call_id, decision.verdict, workflow.now()))

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
                self._begin(self._work.spawn(command), partial(subagent_cancelled, command.call_id))
            case RunHooks():
                self._begin(self._work.run_hooks(command))
            case AskApproval():
                self._begin(self._work.await_approval(command))
            case CancelInFlight():
                for task in self._in_flight:
                    task.cancel()
                if self._state.running.cancelling:
                    self._grace = self._task(self._give_up())
            case Finish() | Emit():
                pass  # what is told has been kept
            case _:
                assert_never(command)

    def _begin(self, work: Coroutine[Any, Any, Ends], cancelled: Callable[[datetime], Event] | None = None) -> None:
        """Begin `work`; `cancelled` makes what is told when it is cancelled before it could tell anything itself."""
        self._in_flight = [task for task in self._in_flight if not task.done()]
        task = self._task(work)
        self._in_flight.append(task)
        if cancelled is not None:
            task.add_done_callback(
                lambda ended: self._inbox.append(cancelled(workflow.now())) if ended.cancelled() else None
            )

    def _task(self, work: Coroutine[Any, Any, Ends]) -> asyncio.Task[None]:
        task = asyncio.create_task(self._guarded(work))
        task.add_done_callback(lambda _: work.close())  # one that is cancelled before it began would complain
        return task

    async def _give_up(self) -> Ends:
        """Tell of what was cancelled and has not reported in time that nothing is known of it."""
        calls = self._state.running.open_calls
        seconds = limits.SUBAGENT_GRACE_SECONDS if calls else limits.MODEL_GRACE_SECONDS
        await workflow.sleep(seconds, summary="grace for what was cancelled")
        at = workflow.now()
        return tuple(subagent_cancelled(each.call.id, at) for each in calls) or (ModelCancelled(None, at),)

    async def _let_go(self) -> None:
        """Send on their way the cancels of what is still in flight, without waiting for what they come to."""
        for task in (*self._in_flight, self._timer, self._grace):
            if task is not None:
                task.cancel()
        for _ in range(CANCEL_PASSES):
            await asyncio.sleep(0)
        await workflow.wait_condition(workflow.all_handlers_finished)

    async def _guarded(self, work: Coroutine[Any, Any, Ends]) -> None:
        """Take in what `work` comes to. A fault of our own ends the run with its cause, instead of being waited for."""
        try:
            self._inbox.extend(await work)
        except Exception as error:  # noqa: BLE001  # whatever it is
            self._inbox.append(DriverFailed(error=error_record(error, "driver"), at=workflow.now()))

    async def _wait(self, command: StartTimer) -> Ends:
        # the first task's time can have passed the moment that was decided by; a timer must not be negative
        await workflow.sleep(max(command.fires_at - workflow.now(), SHORTEST), summary="time limit")
        return (TimerFired(at=workflow.now()),)
