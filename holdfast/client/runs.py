"""`Runs`: the half of `Holdfast` that starts, follows, stops and reads single runs. It knows no workflow code."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing, suppress
from datetime import timedelta
from functools import partial
from typing import Any, Literal, Self, TypeVar, Unpack, cast, overload
from uuid import uuid4

from pydantic import BaseModel, JsonValue
from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError, WorkflowHandle, WorkflowUpdateFailedError
from temporalio.common import Priority, WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, FailureError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from holdfast import __version__
from holdfast.client.definition_files import find_subagents, given_agents
from holdfast.client.execution_summaries import ExecutionSummary, at_start, listed_runs
from holdfast.client.id_lookup import check_reference, described_run, find
from holdfast.client.input_answers import InputAnswers
from holdfast.client.run_options import RunOptions
from holdfast.client.start_state import InitialState
from holdfast.client.stop_requests import stop_run
from holdfast.client.validation import (
    check_budget,
    check_decision,
    check_definition,
    check_id,
    check_question,
    check_start,
    check_stop,
    check_tenant,
)
from holdfast.client.waiting_calls import WaitingCall, WaitingCalls, each_waiting_call, waiting_calls
from holdfast.client.watch import follow, watch
from holdfast.client.watch_events import Watched
from holdfast.client.worker_presence import cause_of_silence, is_served, last_seen
from holdfast.client.workflow_queries import UNREADABLE, not_readable, queried
from holdfast.client.workflow_updates import Unanswered, UpdateQueues, lost, refusal_text, updated
from holdfast.connection.event_page_cache import ClosedRuns
from holdfast.connection.history_poll import result_of, until_closed
from holdfast.connection.rpc_errors import answered, refusal
from holdfast.connection.search_attribute_check import complete
from holdfast.connection.search_attribute_setup import attributes
from holdfast.connection.settings import Settings
from holdfast.connection.temporal_client import connect
from holdfast.connection.workflow_reader import ASK_TIMEOUT
from holdfast.core.agent.agent import Agent, AnyAgent, answers_of
from holdfast.core.agent.answer_types import Answers, AnswerT, AnyAnswers, format_of
from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.policies import TextFormat
from holdfast.core.agent.run_result import RunResult
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.user_metadata import checked_metadata
from holdfast.core.base.errors import (
    Conflict,
    DecisionRefused,
    ExecutionExists,
    ExecutionFailed,
    HoldfastError,
    InvalidArguments,
    InvalidInput,
    ServerUnavailable,
    StorageFailed,
)
from holdfast.core.base.frozen import replace
from holdfast.core.conversation.attachments import with_attachments
from holdfast.core.conversation.stop_reasons import StopMode
from holdfast.core.conversation.verdicts import Verdict
from holdfast.core.loop.pending_messages import ENDED
from holdfast.core.wire import run_metadata
from holdfast.core.wire.contracts import (
    AGENT_EXECUTION,
    APPROVAL_SIGNAL,
    DEBUG_QUERY,
    EXECUTION_FAILED,
    STATE_QUERY,
    EventsPage,
    ExecutionInput,
    PageRequest,
    StatePage,
)
from holdfast.core.wire.paging import StateReader, moved_on
from holdfast.core.wire.result_contracts import ExecutionResult
from holdfast.core.wire.workflow_ids import named_type
from holdfast.runtime.files.message_files import GivenFile, stored_files
from holdfast.storage.data_converter import records_of

T = TypeVar("T")


class Runs(InputAnswers):
    """What a connection to a Temporal server can do with single runs. `Holdfast` adds agents, sessions and records."""

    def __init__(self, temporal: TemporalClient, settings: Settings) -> None:
        self.temporal = temporal
        self.settings = settings
        self.closed_runs = ClosedRuns[EventsPage]()
        self.update_queues = UpdateQueues()
        self.stop_queues = UpdateQueues()  # its own: a stop does not wait behind messages
        self._records = records_of(temporal.data_converter)
        self._searchable: bool | None = None

    @classmethod
    async def connect(cls, settings: Settings | None = None) -> Self:
        """Return a connection; without `settings` they come from the environment. Raises ServerUnavailable."""
        chosen = settings or Settings.from_environment()
        return cls(await connect(chosen), chosen)

    @property
    def address(self) -> str:
        """The server that this is connected to, HOST:PORT."""
        return self.temporal.service_client.config.target_host

    async def find_run(self, reference: str) -> str:
        """Return the id of the run that is meant; every method that takes an `execution_id` does this with it.

        Args:
            reference: a run's id, a UUID, which is returned without asking anybody; the beginning of one run's id; an
                agent's name, for its latest run; or `@last`, for the latest run of all that is no subagent's.

        Raises InvalidInput for what can mean none or several runs, or a session; ExecutionNotFound; ServerUnavailable.
        """
        return await find(self.temporal, reference, "run")

    async def start(  # noqa: PLR0913  # each is the caller's choice
        self,
        agent: AnyAgent,
        question: str = "",
        *,
        state: AgentState | None = None,
        budget: ExecutionBudget | None = None,
        execution_id: str | None = None,
        agent_id: str | None = None,
        subagents: Iterable[AgentDefinition | Agent[Any]] = (),
        metadata: Mapping[str, JsonValue] | None = None,
        tenant: str = "",
        attachments: Iterable[GivenFile] = (),
    ) -> str:
        """Start a run and return its execution id at once.

        Args:
            agent: an agent, its definition, its name in the agents folder, or the path of a definition file.
            question: what the person asks; 1 to 131,072 bytes of UTF-8. Only with a `state` it can be left out.
            state: what the run goes on from: conversation, model, prompt and answers' form; the rest is the
                definition's. One that is in progress goes on under its own id and budget: nothing is done twice.
            budget: limits that take the place of the definition's, one by one.
            execution_id: a UUID that makes starting repeatable; a new one by default.
            agent_id: a UUID; that of the state, or a new agent, by default.
            subagents: those that this agent, or one of them, may call or hand to; besides those of the agents folder.
            metadata: what the run is about, for all but the model; a JSON object of at most RUN_METADATA_BYTES_MAX,
                added to the agent's own. No secrets: histories hold it.
            tenant: on whose account it works, at most 64 bytes: tools and the credentials of MCP servers go by it, and
                tenants share busy workers fairly.
            attachments: files that come with the question, by path, by their bytes, or from `attach`; at most 16, which
                are stored first. A model that does not take them fails the run before it is asked.

        Raises InvalidInput, UnknownAgent, DefinitionInvalid at once; ExecutionExists, ServerUnavailable, StorageFailed.
        """
        resolved, extra = given_agents(agent, subagents, self.settings)
        definition = check_definition(resolved)
        agents = find_subagents(definition, extra, self.settings)
        if (initial := None if state is None else InitialState(state)) is not None:
            initial.check(question, execution_id, budget)
            initial, definition = initial.begun_with(definition, agents)
            execution_id, agent_id = initial.execution_id or execution_id, agent_id or initial.agent_id
        chosen_id = str(uuid4()) if execution_id is None else check_id(execution_id)
        files = await stored_files(attachments, self._records)
        searchable = await self.has_search_attributes()
        start = ExecutionInput(
            agent_id=str(uuid4()) if agent_id is None else check_id(agent_id, "agent id"),
            definition=definition,
            question=check_question(question) if question or initial is None or files else "",
            attachments=files,
            budget=definition.budget.overridden_by(check_budget(budget)),
            subagents=agents,
            metadata=checked_metadata(metadata),
            tenant=check_tenant(tenant) or (initial.tenant if initial else ""),
            searchable=searchable,
            continue_events=self.settings.continue_events,
        )
        start, segments = (start, ()) if initial is None else initial.workflow_arguments(start)
        asked = with_attachments(start.question, files) or (initial.last_question if initial else "")
        about = run_metadata.of_run(definition, asked, start.budget, __version__)
        try:
            await self._begin(start, [check_start(start), *segments], chosen_id, about)
        except WorkflowAlreadyStartedError:
            remedy = "follow it" if initial and initial.execution_id else "read it, or choose another id"
            raise ExecutionExists(f"run {chosen_id} already exists; {remedy}") from None
        return chosen_id

    async def _begin(
        self, start: ExecutionInput, arguments: list[Any], id_: str, about: run_metadata.WorkflowDescription
    ) -> None:
        starting = self.temporal.start_workflow(
            named_type(AGENT_EXECUTION, start.definition.name),
            args=arguments,
            id=id_,
            task_queue=self.settings.task_queue,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            search_attributes=at_start(start.definition.name, tenant=start.tenant) if start.searchable else None,
            static_summary=about.summary,
            static_details=about.details,
            memo=about.memo,
            priority=Priority(fairness_key=start.tenant or None),
            rpc_timeout=ASK_TIMEOUT,
        )
        await answered(starting)

    @overload
    async def run(
        self, agent: AnyAgent, question: str = "", *, answers: Answers[AnswerT], **options: Unpack[RunOptions]
    ) -> RunResult[AnswerT]: ...
    @overload
    async def run(
        self, agent: str | AgentDefinition | Agent[AnswerT], question: str = "", **options: Unpack[RunOptions]
    ) -> RunResult[AnswerT]: ...
    async def run(
        self, agent: AnyAgent, question: str = "", *, answers: AnyAnswers = None, **options: Unpack[RunOptions]
    ) -> RunResult[Any]:
        """Start a run, as `start` does, and return its end, with its answer as `output`: `completed` or `stopped`.

        `answers` is the type of the answer (`format_of`): an agent that answers in words is asked for it. Raises as
        `start` and `result` do.
        """
        answers = answers or answers_of(agent)
        definition, options["subagents"] = given_agents(agent, options.get("subagents", ()), self.settings)
        if answers is not None:
            form = format_of(answers)
            if isinstance(definition.response_format, TextFormat):
                definition = replace(definition, response_format=form)
        return RunResult(await self.result(await self.start(definition, question, **options)), answers)

    async def result(self, execution_id: str) -> AgentState:
        """Wait for the end of a run, however long, and return its final state.

        Raises ExecutionFailed (with the state where a worker could still be asked for it) when the run failed, was
        cancelled, terminated or timed out by the server; ExecutionNotFound; ServerUnavailable when the server does not
        answer, or when the run has ended, its state is not in its result, and neither the storage nor a worker gives it
        (the text says which).
        """
        execution_id = await self.find_run(execution_id)
        await until_closed(self.temporal, execution_id)
        try:
            return await self._ended_with(self._handle(execution_id, ExecutionResult))
        except WorkflowFailureError as error:
            raise await self._failed(execution_id, error) from None

    async def state(self, execution_id: str) -> AgentState:
        """Return the state as it is now. Raises ExecutionNotFound, ServerUnavailable.

        A run that has ended well is read from its result, or from what was kept of it in the storage; anything else,
        and what this process finds in neither, asks a worker.
        """
        execution_id = await self.find_run(execution_id)
        handle = self._handle(execution_id, ExecutionResult)
        if (await described_run(self.temporal, execution_id)).status is WorkflowExecutionStatus.COMPLETED:
            return await self._ended_with(handle)
        return await self._queried(execution_id)

    async def _ended_with(self, handle: WorkflowHandle[Any, ExecutionResult]) -> AgentState:
        """Return the state with which a run has ended, once it has."""
        try:
            result = await result_of(handle)
        except UNREADABLE as error:
            raise await not_readable(handle, error) from None
        if result.state is not None:
            return result.state
        if result.snapshot is not None:
            with suppress(StorageFailed):  # a client need not reach the workers' storage
                return await self._records.state(result.snapshot)
        try:
            return await self._queried(result.execution_id)
        except ServerUnavailable as error:
            ended = f"run {result.execution_id} has ended ({result.status}), but its state is not in its result"
            read = f"then read it with `holdfast show {result.execution_id}`"
            raise ServerUnavailable(f"{ended} and must come from a worker: {error}; {read}") from None

    async def _queried(self, execution_id: str) -> AgentState:
        reader = StateReader()
        await self._read(execution_id, reader)
        return reader.state

    async def debug(self, execution_id: str) -> dict[str, Any]:
        """Return the few facts one asks for first; asks a worker."""
        execution_id = await self.find_run(execution_id)
        handle, queue = self._handle(execution_id), self.settings.task_queue
        return cast("dict[str, Any]", await queried(self.temporal, handle, DEBUG_QUERY, None, dict, queue))

    async def decide(self, execution_id: str, call_id: str, verdict: Verdict) -> bool:
        """Decide about a tool call that waits for approval. Return False when the run has ended.

        Args:
            execution_id: the run.
            call_id: the call; `state.waiting_calls` has those that wait.
            verdict: approve, deny, or edit.

        When this returns True the decision is taken. Raises InvalidInput, and InvalidArguments for an edit that breaks
        the tool's schema (the call is still waiting); DecisionRefused where the call does not wait for it;
        ExecutionNotFound; ServerUnavailable, also when no worker takes it in time.
        """
        return await self._update(execution_id, APPROVAL_SIGNAL, check_decision(call_id, verdict), DecisionRefused)

    async def stop(
        self,
        execution_id: str,
        reason: str = "",
        *,
        mode: StopMode = "now",
        source: str = "client",
        context: Mapping[str, JsonValue] | None = None,
    ) -> bool:
        """Ask a run to stop; return when the server has taken note. False when the run had already ended.

        Args:
            execution_id: the run.
            reason: why, for whoever reads the state later; at most 1,000 characters.
            mode: `now` cancels what is in flight, `after_step` lets the step finish.
            source: who asks.
            context: what is to stand with it in the stop signal, as JSON of at most 2,000 bytes.

        A run that has been sent all the signals that the server takes (10,000) is cancelled instead, which carries the
        reason alone. Raises ExecutionNotFound, ServerUnavailable; StopRefused for `after_step` to such a run.
        """
        request = check_stop(reason, mode, source, context)
        execution_id = await self.find_run(execution_id)
        try:
            async with self.stop_queues.of(execution_id):
                await stop_run(self.temporal, execution_id, request)
        except RPCError as error:
            return self._has_ended(error, execution_id)
        return True

    async def _update(self, execution_id: str, update: str, payload: BaseModel, refused: type[Conflict]) -> bool:
        """Return when the run has taken what it is told; False when it has ended."""
        execution_id = await self.find_run(execution_id)
        handle: Any = self._handle(execution_id)  # the SDK's own overloads are partly unknown
        turns, queue = self.update_queues.of(execution_id), self.settings.task_queue

        async def ask(id_: str, limit: timedelta) -> None:
            async with turns:
                await handle.execute_update(update, payload, id=id_, rpc_timeout=limit)

        try:
            await updated(ask, str(uuid4()), served=partial(is_served, self.temporal, queue, execution_id))
        except WorkflowUpdateFailedError as error:
            if lost(error) or ENDED in str(error.cause):
                return False
            misfit = getattr(error.cause, "type", None) == InvalidArguments.__name__
            raise (InvalidArguments if misfit else refused)(f"run {execution_id}: {refusal_text(error)}") from None
        except RPCError as error:
            return self._has_ended(error, execution_id)
        except Unanswered:
            remedy = f"the {update} may have been applied; look at the run before repeating it"
            why = await cause_of_silence(self.temporal, queue, execution_id)
            raise ServerUnavailable(f"no answer for run {execution_id} in time: {why}; {remedy}") from None
        return True

    def _has_ended(self, error: RPCError, execution_id: str) -> Literal[False]:
        """Return False where the server says that the run has ended; raise what else it says."""
        if error.status is RPCStatusCode.NOT_FOUND and "already completed" in str(error):
            return False
        raise refusal(error, execution_id) from None

    async def follow(self, execution_id: str) -> AsyncGenerator[AgentState, None]:
        """Yield the state whenever it has changed, the final one last; a worker's absence is waited out.

        Where an operator resets the run, the states of what happens then come too.

        Raises ExecutionFailed where the server has ended the run (cancelled, terminated, timed out), after the state
        that it was left in where a worker tells that; ExecutionNotFound; ServerUnavailable after two minutes without a
        server, and where the run has ended well and, as for `state`, nothing tells how.
        """
        execution_id, latest = await self.find_run(execution_id), None
        async with aclosing(follow(self, execution_id, partial(self._changed, execution_id))) as states:
            async for latest in states:
                yield latest
        if latest is None or not latest.status.is_terminal:
            yield await self.result(execution_id)  # which raises, unless an operator has reset the run just now

    def watch(self, execution_id: str, *, start: int = 0, subagents: bool = True) -> AsyncGenerator[Watched, None]:
        """Yield what happens in a run, from its beginning and until its end: typed events, and text while it comes.

        Yields the events of `holdfast.core.wire.execution_events`, each once and in order; TextDelta and AttemptFailed
        (`holdfast.client.watch_events`) come between an InferenceRequestStarted and its InferenceResponseReceived. Any
        number may watch, late ones too; none of it writes into the run's history. What its consumer does not take
        makes the watch wait, not the run. A worker's absence is waited out, a server's for two minutes.

        Args:
            execution_id: the run.
            start: how many of the run's own events to pass over, for a watcher that goes on from there; subagents that
                began before are passed over, too.
            subagents: whether to tell of subagents' runs as well, each one's end before its SubagentCompleted.

        Raises InvalidInput at once; ExecutionFailed in the end, as `result` does; ExecutionNotFound; ServerUnavailable,
        also when the run has ended and no worker is there to tell its events.
        """
        if start < 0:
            raise InvalidInput(f"a watch cannot start at event {start}; 0 is the first")
        return self._watched(check_reference(execution_id, "run"), start, subagents=subagents)

    async def _watched(self, reference: str, start: int, *, subagents: bool) -> AsyncGenerator[Watched, None]:
        async with aclosing(watch(self, await self.find_run(reference), start=start, subagents=subagents)) as watched:
            async for each in watched:
                yield each

    async def waiting(self, limit: int = 20) -> WaitingCalls:
        """Return the tool calls that wait for a person, over all runs; those that wait longest first.

        Raises InvalidInput, ServerUnavailable; a run whose worker does not answer is only named (`unread`).
        """
        return await waiting_calls(self.temporal, limit)

    def approvals(self, limit: int = 100) -> AsyncGenerator[WaitingCall, None]:
        """Yield each tool call of any run that waits for a person: those that wait already, then others as they come.

            async for call in holdfast.approvals():
                await holdfast.decide(call.execution_id, call.call_id, Verdict(decision="approve", digest=call.digest))

        It never ends by itself; a server that is away is waited for two minutes. Any number of programs may look, and
        each sees every call.

        Args:
            limit: at most so many that wait at the same time are seen, 1 to 1,000.

        Raises InvalidInput, ServerUnavailable.
        """
        return each_waiting_call(self.temporal, limit)

    async def runs(self, limit: int = 20, query: str | None = None, *, waiting: bool = False) -> list[ExecutionSummary]:
        """Return the latest runs: those under way first, then the latest to end; asks no worker.

        Args:
            limit: at most so many, 1 to 1,000.
            query: a further condition in Temporal's list filter, such as `HoldfastAgent = 'clerk'`.
            waiting: only those under way of which calls wait for a person.

        Raises InvalidInput for a query that the server does not understand; ServerUnavailable.
        """
        return await listed_runs(self.temporal, limit, query, waiting=waiting)

    async def has_worker(self) -> bool:
        """Return whether a worker has asked for work on the settings' task queue within the last 75 s."""
        return await answered(last_seen(self.temporal, self.settings.task_queue)) is not None

    async def _failed(self, execution_id: str, error: WorkflowFailureError) -> ExecutionFailed:
        cause = error.cause
        reason = cause.message if isinstance(cause, FailureError) else str(cause)
        if not (isinstance(cause, ApplicationError) and cause.type == EXECUTION_FAILED):
            reason = f"{type(cause).__name__}: {reason}"
        try:
            state = (await self._queried(execution_id)).to_dict()
        except HoldfastError:
            state = None  # no worker to ask; the failure itself is known
        return ExecutionFailed(f"run {execution_id} failed: {reason}", state)

    async def _changed(self, execution_id: str, states: StateReader, run_id: str, *, over: bool) -> AgentState | None:
        """Return the state if it has changed since the last reading; that of a run that is over needs no worker."""
        try:
            return states.state if await self._read(execution_id, states, run_id) else None
        except ServerUnavailable:
            if not over:
                raise
        before, final = None if states.head is None else states.state, await self.state(execution_id)
        return final if moved_on(before, final) else None

    async def _read(self, execution_id: str, reader: StateReader, run_id: str = "") -> bool:
        """Read what `reader` lacks of a Temporal run's state, the latest by default; return whether it has changed."""
        before, handle = reader.head, self._handle(execution_id, run_id=run_id)
        request: PageRequest | None = reader.refreshed()
        while request is not None:
            page = await queried(self.temporal, handle, STATE_QUERY, request, StatePage, self.settings.task_queue)
            request = reader.take(page)
        return moved_on(before, reader.head)

    def _handle(
        self, execution_id: str, result_type: type | None = None, *, run_id: str = ""
    ) -> WorkflowHandle[Any, Any]:
        return self.temporal.get_workflow_handle(check_id(execution_id), run_id=run_id or None, result_type=result_type)

    async def has_search_attributes(self) -> bool:
        """Return whether this server knows our search attributes; a start that names unknown ones is refused."""
        if self._searchable is None:
            self._searchable = complete(await attributes(self.temporal))
        return self._searchable
