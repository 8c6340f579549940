"""The workflow `AgentExecution`: one request of one agent, durably. The rules are `holdfast.core.loop`'s.

Signals, timers and ended calls become events in an inbox; the core answers with a new state and commands; commands
become activities and timers. The history grows by what is new in each step, never by the conversation.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, assert_never

from temporalio import workflow
from temporalio.common import SearchAttributeKey, SearchAttributeUpdate
from temporalio.exceptions import ActivityError, ApplicationError, RetryState

with workflow.unsafe.imports_passed_through():
    from holdfast.core import limits
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
        BUFFER_QUERY,
        DEBUG_QUERY,
        EXECUTION_FAILED,
        MESSAGE_SIGNAL,
        STATE_QUERY,
        STOP_SIGNAL,
        TRANSCRIPT_QUERY,
        ApprovalDecision,
        BufferPage,
        ExecutionFailure,
        ExecutionInput,
        ExecutionResult,
        PageRequest,
        StatePage,
        StopRequest,
        TranscriptPage,
        TranscriptRequest,
    )
    from holdfast.core.definition import LLM
    from holdfast.core.errors import HoldfastError
    from holdfast.core.events import (
        ApprovalExpired,
        ApprovalGiven,
        BufferSummarised,
        DriverFailed,
        Event,
        ExecutionStarted,
        HooksReturned,
        MessageArrived,
        ModelAnswered,
        ModelFailed,
        StopRequested,
        SummaryFailed,
        TimerFired,
        ToolFailed,
        ToolReturned,
    )
    from holdfast.core.frozen import canonical, replace
    from holdfast.core.hooks import HookTraits
    from holdfast.core.loop import AgentLoop, new_agent, user_message
    from holdfast.core.messages import Message
    from holdfast.core.paging import page
    from holdfast.core.state import AgentState, ExecutionStatus, call_name, named_id
    from holdfast.core.steps import ErrorRecord
    from holdfast.core.stopping import StopReason, StopSignal
    from holdfast.core.subagents import known_subagents, reachable, spawn_schema
    from holdfast.core.summarising import summary_request
    from holdfast.core.texts import clamped, error_record
    from holdfast.core.tools import ToolTraits
    from holdfast.core.transcript import Opening
    from workflows.calls import (
        STARTING_MAX,
        call_error,
        call_model,
        call_subagent,
        call_tool,
        model_error,
        resolve_tools,
        run_hooks,
        summarise,
        tool_error,
    )
    from workflows.story import current_details
    from workflows.telling import Telling

STATUS = SearchAttributeKey.for_keyword("AgentStatus")
STOP_REASON = SearchAttributeKey.for_keyword("AgentStopReason")
STEPS = SearchAttributeKey.for_int("AgentSteps")
TOKENS = SearchAttributeKey.for_int("AgentTokens")


SHORTEST = timedelta(milliseconds=1)
"""The least a timer or a timeout can be set to."""

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


@workflow.defn(name=AGENT_EXECUTION, failure_exception_types=FAULTS)
class AgentExecution:
    """One execution. Its result is an ExecutionResult; a `failed` one fails the workflow."""

    @workflow.init
    def __init__(self, start: ExecutionInput) -> None:
        # Signals are delivered before run() begins: everything a handler touches is made here.
        self._start = start
        # The first task's now() is not the same in every replay (a query in it moves it); the start time is.
        self._state = new_agent(
            start.definition,
            agent_id=start.agent_id,
            at=workflow.info().workflow_start_time,
            parent_agent_id=start.parent_agent_id,
        )
        self._inbox: deque[Event] = deque()
        self._messages: deque[MessageArrived] = deque()
        self._in_flight: list[asyncio.Task[None]] = []
        self._timer: asyncio.Task[None] | None = None
        self._starting = asyncio.Semaphore(STARTING_MAX)
        self._tools: dict[str, ToolTraits] = {}
        self._hooks: tuple[HookTraits, ...] = ()
        self._telling = Telling(Opening(definition=start.definition, tools=()))
        self._begins_at = workflow.info().workflow_start_time
        """When the first task took the run up, as recorded; the only moment that task may decide anything by."""

    @workflow.run
    async def run(self, start: ExecutionInput) -> ExecutionResult:
        """Run the loop to its end."""
        await self._prepare()
        loop = self._rules()
        self._advance(loop, self._started(start))
        while not self._state.status.is_terminal:
            if not self._inbox and not self._messages:
                await self._something_happens()
            # Messages first: the server has acknowledged them, so none may be left over when something else ends us.
            self._advance(loop, (self._messages or self._inbox).popleft())
        if self._timer is not None:
            self._timer.cancel()
            self._in_flight.append(self._timer)
        # A cancelled call ends at once (TRY_CANCEL); waiting for it is what sends the cancel on its way.
        await asyncio.gather(*self._in_flight, return_exceptions=True)
        return self._ended()

    @workflow.signal(name=STOP_SIGNAL, description="Stop the run: now (default) or after the step under way.")
    def stop(self, request: StopRequest | None = None) -> None:
        """Take note of a stop; the loop acts on it in the same workflow task."""
        self._request_stop(request or StopRequest())

    @workflow.signal(name=MESSAGE_SIGNAL, description="Say something: the model sees it with its next call.")
    def message(self, message: Message | None = None) -> None:
        """Take note of a message; a signal without one says nothing."""
        if message is None:
            return
        self._messages.append(MessageArrived(message=message, at=workflow.now()))

    @workflow.signal(name=APPROVAL_SIGNAL, description="Decide about a call that waits for approval.")
    def approval(self, decision: ApprovalDecision | None = None) -> None:
        """Take note of a person's decision; a signal without one decides nothing."""
        if decision is None:
            return
        self._inbox.append(ApprovalGiven(decision.call_id, decision.verdict, workflow.now()))

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

    async def _something_happens(self) -> None:
        try:
            await workflow.wait_condition(lambda: bool(self._inbox or self._messages))
        except asyncio.CancelledError:
            self._cancelled()

    def _advance(self, loop: AgentLoop, event: Event) -> None:
        """Let the core decide about `event` and do what it wants."""
        self._state, commands = loop.step(self._state, event)
        for command in commands:
            self._perform(command)
        workflow.set_current_details(current_details(self._state))

    def _cancelled(self) -> None:
        """Take Temporal's own cancellation (the Web UI's button) for a stop; call it from where that is caught."""
        reason = workflow.cancellation_reason()
        if reason is None:
            raise  # noqa: PLE0704  # not somebody's wish but the worker putting this run aside
        told = clamped(reason, limits.REASON_CHARS_MAX)
        self._request_stop(StopRequest(reason=told, source="cancelled"))

    async def _prepare(self) -> None:
        """Learn which tools there are; where that fails, the run begins and ends with the reason."""
        try:
            catalog = await resolve_tools(self._start.definition)
        except asyncio.CancelledError:
            self._cancelled()
            return
        except (ActivityError, ApplicationError) as error:  # a local activity's failure can come bare
            if workflow.cancellation_reason() is not None:
                self._cancelled()
                return
            self._inbox.append(DriverFailed(error=call_error(error, "worker"), at=workflow.now()))
            return
        self._begins_at = catalog.at
        self._tools = {each.name: each for each in catalog.tools}
        self._hooks = catalog.hooks
        definition = self._start.definition
        if catalog.prompt:
            prompt = "\n\n".join(filter(None, (definition.system_prompt, catalog.prompt)))
            definition = replace(definition, system_prompt=prompt)
            self._state = self._state.with_system_prompt(self._state.updated_at, prompt)
        subagents = known_subagents(definition, self._start.subagents)
        spawn = spawn_schema(subagents) if subagents else None
        self._telling = Telling(Opening(definition=definition, tools=tuple(self._tools), spawn=spawn))

    def _rules(self) -> AgentLoop:
        definition = self._telling.opening.definition
        return AgentLoop(
            definition,
            tools=self._tools,
            hooks=self._hooks,
            subagents=known_subagents(definition, self._start.subagents),
            depth_left=self._start.depth_left,
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

    def _perform(self, command: Command) -> None:  # noqa: C901, PLR0912  # one case per command
        match command:
            case StartTimer() if command.fires_at <= self._begins_at:
                # it struck while no worker was there: taken up before the calls of this very task are begun
                self._inbox.append(TimerFired(at=command.fires_at))
            case StartTimer():
                if self._timer is not None:
                    self._timer.cancel()
                self._timer = asyncio.create_task(self._guarded(lambda: self._wait(command)))
            case CallModel():
                self._start_task(lambda: self._call_model(command))
            case SummariseBuffer():
                self._start_task(lambda: self._summarise(command))
            case CallTool():
                self._start_task(lambda: self._call_tool(command))
            case SpawnSubagent():
                self._start_task(lambda: self._spawn(command))
            case RunHooks():
                self._start_task(lambda: self._run_hooks(command))
            case AskApproval():
                self._start_task(lambda: self._await_approval(command))
            case CancelInFlight() | Finish():
                for task in self._in_flight:
                    task.cancel()
            case Emit():
                pass  # nobody listens inside a workflow
            case _:
                assert_never(command)

    def _start_task(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._in_flight = [task for task in self._in_flight if not task.done()]
        self._in_flight.append(asyncio.create_task(self._guarded(work)))

    async def _guarded(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """A fault of our own ends the run with its cause; unseen, it would leave the run waiting for ever."""
        try:
            await work()
        except Exception as error:  # noqa: BLE001  # whatever it is
            self._inbox.append(DriverFailed(error=error_record(error, "driver"), at=workflow.now()))

    async def _wait(self, command: StartTimer) -> None:
        # the first task's time can have passed the moment that was decided by; a timer must not be negative
        await workflow.sleep(max(command.fires_at - workflow.now(), SHORTEST), summary="time limit")
        self._inbox.append(TimerFired(at=workflow.now()))

    async def _call_model(self, command: CallModel) -> None:
        if problem := _outgrown():
            self._inbox.append(DriverFailed(error=problem, at=workflow.now()))
            return
        try:
            response = await call_model(
                command, self._telling.inference_input(self._state, command.max_output_tokens), self._time_left()
            )
        except ActivityError as error:
            if not self._awaits_limit(error):
                self._inbox.append(self._struck() or ModelFailed(error=model_error(error), at=workflow.now()))
        else:
            self._inbox.append(ModelAnswered(response=response, at=workflow.now()))

    async def _summarise(self, command: SummariseBuffer) -> None:
        try:
            summary = await summarise(command, self._state.llm or LLM(), self._time_left())
        except ActivityError as error:
            if not self._awaits_limit(error):
                self._inbox.append(self._struck() or SummaryFailed(error=model_error(error), at=workflow.now()))
        else:
            self._inbox.append(BufferSummarised(text=summary.text, usage=summary.usage, at=workflow.now()))

    async def _run_hooks(self, command: RunHooks) -> None:
        runs = await run_hooks(command)
        call = command.context.call
        self._inbox.append(HooksReturned(command.context.trigger, call.id if call else None, runs, workflow.now()))

    async def _await_approval(self, command: AskApproval) -> None:
        """Report when nobody has decided in time; a decision comes by signal."""
        if command.expires_at is None:
            return
        await workflow.sleep(
            max(command.expires_at - workflow.now(), SHORTEST), summary=f"approval of {command.call.name}"
        )
        self._inbox.append(ApprovalExpired(call_id=command.call.id, at=workflow.now()))

    async def _spawn(self, command: SpawnSubagent) -> None:
        definition = next(each for each in self._start.subagents if each.name == command.agent)
        name = call_name(command.step_number, command.index)
        start = ExecutionInput(
            agent_id=str(workflow.uuid4()),
            definition=definition,
            question=command.task,
            budget=command.budget,
            subagents=reachable(definition, self._start.subagents),
            parent_agent_id=self._state.agent_id,
            depth_left=command.depth_left,
            searchable=self._start.searchable,
        )
        ended = await call_subagent(command, start, named_id(self._state.running.execution_id, name), self._starting)
        self._inbox.append(ended)

    def _time_left(self) -> timedelta | None:
        """Return how long a call may take with all its attempts: none is begun after the limit, worker or not."""
        strikes_at = self._state.running.time_limit_at
        return None if strikes_at is None else max(strikes_at - workflow.now(), SHORTEST)

    def _struck(self) -> TimerFired | None:
        """Return the time limit's event when it is what ended a call; the timer itself may come a moment later."""
        strikes_at, now = self._state.running.time_limit_at, workflow.now()
        return TimerFired(at=now) if strikes_at is not None and now >= strikes_at else None

    def _awaits_limit(self, error: ActivityError) -> bool:
        """Return whether a model call ended early because its next attempt would come after the time limit.

        Temporal does not wait for what it will not begin; the run does, as it would in a process, and its timer ends
        it.
        """
        return error.retry_state is RetryState.TIMEOUT and self._time_left() is not None and self._struck() is None

    async def _call_tool(self, command: CallTool) -> None:
        started_at = workflow.now()
        event: Event
        traits, call = self._tools[command.call.name], command.call
        try:
            result = await call_tool(command, traits, self._time_left())
        except ActivityError as error:
            told = tool_error(error, traits)
            event = self._struck() or ToolFailed(call_id=call.id, error=told, started_at=started_at, at=workflow.now())
        else:
            event = ToolReturned(call.id, result.text, started_at, workflow.now(), stop=result.stop)
        self._inbox.append(event)

    def _ended(self) -> ExecutionResult:
        """Return the result of a run that ended well, or fail the workflow, so that Temporal's own status is true."""
        state = self._state
        if self._start.searchable:
            updates: list[SearchAttributeUpdate[Any]] = [
                STATUS.value_set(state.status),
                STOP_REASON.value_set(state.stop_reason or StopReason.UNKNOWN),
                STEPS.value_set(state.step_count),
                TOKENS.value_set(state.usage.total_tokens),
            ]
            workflow.upsert_search_attributes(updates)  # pyright: ignore[reportUnknownMemberType]  # the SDK's own hint
        if state.status is ExecutionStatus.FAILED:
            reason = state.stop_reason or StopReason.ERROR
            message = state.stop_signal.message if state.stop_signal else "the execution failed"
            details = ExecutionFailure(
                execution_id=state.running.execution_id,
                reason=reason,
                message=message,
                usage=state.usage,
                cost=state.cost,
                steps_used=state.steps_used,
            )
            raise ApplicationError(message, details, type=EXECUTION_FAILED, non_retryable=True)
        return ExecutionResult(
            execution_id=state.running.execution_id,
            status=state.status,
            stop_reason=state.stop_reason,
            step_count=state.step_count,
            usage=state.usage,
            final_response=state.current_response,
            cost=state.cost,
            steps_used=state.steps_used,
            why=state.stop_signal.message if state.stop_signal else "",
            state=_small(state),
        )


def _small(state: AgentState) -> AgentState | None:
    """Return the state when it fits the result, else none: `page` answers without reading more than that much."""
    first = page(state, PageRequest(), limits.RESULT_BYTES_MAX)
    whole = len(first.messages) == first.messages_total and len(first.steps) == first.steps_total
    return state if whole and len(canonical(state)) <= limits.RESULT_BYTES_MAX else None


def _outgrown() -> ErrorRecord | None:
    """Return why this run must not go on, when its history is near what the server or a worker can bear."""
    events, size = workflow.info().get_current_history_length(), workflow.info().get_current_history_size()
    if events < limits.HISTORY_EVENTS_MAX and size < limits.HISTORY_BYTES_MAX:
        return None
    text = f"the run's history has {events:,} events and {size:,} bytes; start a new run from its answer so far"
    return ErrorRecord(type="HistoryLimit", message=text, source="driver")
