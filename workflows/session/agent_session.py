"""The workflow `AgentSession`: a long-lived agent. `core.session.session_state` has its rules.

Each execution is a child workflow with a history of its own. The session holds no conversation, only the name of its
snapshot: however long it lives, each message costs the same, and continue-as-new carries over a few kilobytes.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Final, NoReturn

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from holdfast.core.base.bounds import REASON_CHARS_MAX
from holdfast.core.base.errors import HoldfastError, RecordNotFound
from holdfast.core.base.safe_text import clamped
from holdfast.core.base.stored_forms import SESSION
from holdfast.core.session import session_state
from holdfast.core.session.session_state import (
    NotifyExecution,
    SessionInput,
    SessionState,
    SessionTransition,
    StartExecution,
    TurnEnd,
)
from holdfast.core.wire.contracts import EVENTS_QUERY, EventsRequest, StopRequest
from holdfast.core.wire.session_contracts import (
    AGENT_SESSION,
    CHANGE_UPDATE,
    CLEAR_UPDATE,
    CLOSE_UPDATE,
    OPEN_UPDATE,
    RECEIPT_QUERY,
    RESUME_UPDATE,
    REWIND_UPDATE,
    SEND_UPDATE,
    SESSION_MISSING,
    SESSION_QUERY,
    SESSION_REFUSED,
    STOP_UPDATE,
    SUSPEND_UPDATE,
    Branch,
    Receipt,
    SessionChange,
    SessionMessage,
    SessionView,
)
from holdfast.core.wire.session_events import SessionEventsPage
from holdfast.core.wire.workflow_ids import own_id, session_workflow_id
from workflows import summaries
from workflows.continue_as_new import FAULTS, check_form, check_start, is_long, newer_build
from workflows.event_log import SessionEventLog
from workflows.execution.call_errors import call_error
from workflows.search_attributes import STATUS, STEPS, upsert
from workflows.session.child_execution import ChildExecution
from workflows.session.current_details import session_details
from workflows.session.store_calls import branched, find_session, keep_session
from workflows.shielding import in_any_case

UPDATES_PER_RUN: Final = 500
"""After so many updates an idle session continues as new: Temporal takes 2,000 updates in one run."""

UPDATES_MAX: Final = 1_000
"""After so many in a run that cannot end yet, only messages, stops and the close are accepted."""


@workflow.defn(name=AGENT_SESSION, failure_exception_types=FAULTS)
class AgentSession:
    """One agent's session; its workflow id holds the agent's id. Its result is its last view."""

    @workflow.init
    def __init__(self, start: SessionInput) -> None:
        check_start(start)
        # Updates are delivered before run() begins: everything that a handler touches is created here.
        self._session_state: SessionState | None = start.carried
        self._event_log = SessionEventLog(start.carried)
        self._failure: ApplicationError | None = None
        self._child: ChildExecution | None = None
        self._turn: asyncio.Task[None] | None = None
        self._rewinding = False
        self._searchable = start.settings.searchable
        self._listed_status: str | None = start.carried.status if start.carried else None
        """The status in the session's search attributes."""
        self._executions_before = start.carried.executions if start.carried else 0
        self._update_count = 0
        """How many updates this Temporal run has accepted."""

    @workflow.run
    async def run(self, start: SessionInput) -> SessionView:
        """Live until the session is closed, or has been idle for its time."""
        if self._session_state is None:
            await self._prepare(start)
        while True:
            if self._turn_fault is not None:
                raise self._turn_fault  # an unexpected error ends the session with its cause
            self._heed_cancel()
            if self._is_to_go_on_elsewhere():
                carried = self._event_log.handed_on(self._state)
                next_run = SessionInput(settings=carried.settings, carried=carried)
                workflow.continue_as_new(next_run, initial_versioning_behavior=newer_build())
            self._begin_next()
            self._show()
            if await self._something_happens():
                continue
            if await self._left():
                return self._state.view()

    def current_details(self) -> str:
        """Return the current details in the Web UI, as Markdown."""
        return "" if self._session_state is None else session_details(self._session_state)

    # --- what people ask for

    @workflow.update(name=OPEN_UPDATE, description="Open the session; answers with its view.")
    async def open(self, nothing: None = None) -> SessionView:  # noqa: ARG002  # see `SenderCheck`
        """Return the session's view, once it exists."""
        return (await self._ready()).view()

    @workflow.update(name=SEND_UPDATE, description="Say something to the agent; acknowledged means that it is kept.")
    async def send(self, message: SessionMessage) -> Receipt:
        """Accept a message; a repeated one changes nothing."""
        state = await self._ready()
        _refuse(session_state.problem_with_message(state, message))
        self._take(session_state.sent(state, message, workflow.now()))
        receipt = session_state.receipt(self._state, message.message_id)
        assert receipt is not None  # noqa: S101  # it was accepted just now
        return receipt

    @send.validator
    def _refuse_message(self, message: SessionMessage) -> None:
        if self._session_state is not None:
            _refuse(session_state.problem_with_message(self._session_state, message))

    @workflow.update(name=STOP_UPDATE, description="Stop the execution under way; waiting messages follow it.")
    async def stop(self, stop: StopRequest | None = None) -> SessionView:
        """Stop the execution under way, if any."""
        return self._take(session_state.stopped(await self._ready(), stop or StopRequest(), workflow.now()))

    @workflow.update(name=CHANGE_UPDATE, description="Change the agent; what runs changes at its next step.")
    async def change(self, change: SessionChange) -> SessionView:
        """Change the agent."""
        return self._take(session_state.changed(await self._ready(), change, workflow.now()))

    @workflow.update(name=CLEAR_UPDATE, description="Forget the conversation; records stay.")
    async def clear(self, nothing: None = None) -> SessionView:  # noqa: ARG002  # see `SenderCheck`
        """Clear the conversation, at the end of an execution under way."""
        return self._take((session_state.cleared(await self._ready(), workflow.now()), ()))

    @workflow.update(name=SUSPEND_UPDATE, description="Begin nothing until `resume`; one under way runs to its end.")
    async def suspend(self, nothing: None = None) -> SessionView:  # noqa: ARG002  # see `SenderCheck`
        """Let messages wait."""
        return self._take((session_state.suspended(await self._ready(), workflow.now()), ()))

    @workflow.update(name=RESUME_UPDATE, description="Continue with the waiting messages.")
    async def resume(self, nothing: None = None) -> SessionView:  # noqa: ARG002  # see `SenderCheck`
        """Give messages their turns again."""
        return self._take((session_state.resumed(await self._ready(), workflow.now()), ()))

    @workflow.update(name=CLOSE_UPDATE, description="Accept nothing more; what waits gets its turn, or is kept.")
    async def close(self, stop: StopRequest | None = None) -> SessionView:
        """Close the session: after waiting messages, or at once with a stop."""
        return self._take(session_state.closed(await self._ready(), stop, workflow.now()))

    @workflow.update(name=REWIND_UPDATE, description="Go back to the end of an execution, or to a step of it.")
    async def rewind(self, branch: Branch) -> SessionView:
        """Go on from another place of the conversation."""
        await self._ready()
        while self._rewinding:
            await workflow.wait_condition(lambda: not self._rewinding)
        # no await from here to the flag: a turn could begin, and its end would undo this
        _refuse(session_state.problem_with_rewinding(self._state))
        self._rewinding = True  # nothing begins meanwhile
        try:
            origin = await branched(branch, self._state.agent_id)
        except ActivityError as error:
            record = call_error(error, "records")
            kind = record.type if record.type == RecordNotFound.__name__ else SESSION_REFUSED
            raise ApplicationError(record.message, type=kind) from None
        finally:
            self._rewinding = False
        return self._take((session_state.branched(self._state, branch, origin, workflow.now()), ()))

    @open.validator  # noqa: A003  # the handler above is meant
    @clear.validator
    @suspend.validator
    @resume.validator
    def _refuse_more(self, nothing: None = None) -> None:  # noqa: ARG002  # as the updates have it
        """Reserve room for messages, the stop and the close: the server bounds the updates of a run."""
        if (count := self._update_count) >= UPDATES_MAX:
            text = f"{count} requests came since the session last came to rest; stop what runs, or wait for it"
            _refuse((SESSION_REFUSED, text))

    @change.validator
    def _refuse_change(self, change: SessionChange) -> None:  # noqa: ARG002  # as the update has it
        self._refuse_more()

    @rewind.validator
    def _refuse_rewind(self, branch: Branch) -> None:  # noqa: ARG002  # as the update has it
        self._refuse_more()

    @workflow.query(name=SESSION_QUERY, description="What the session is and does.")
    def session(self) -> SessionView | None:
        """Return the session's public view; none before it exists."""
        return self._session_state.view(whole=True) if self._session_state else None

    @workflow.query(name=RECEIPT_QUERY, description="What has become of a message, by its id.")
    def receipt(self, message_id: str) -> Receipt | None:
        """Return the receipt of a message."""
        return session_state.receipt(self._session_state, message_id) if self._session_state else None

    @workflow.query(name=EVENTS_QUERY, description="What has happened to the session, from a place on.")
    def events(self, request: EventsRequest | None = None) -> SessionEventsPage:
        """Return the session's events, as many as one answer holds."""
        return self._event_log.page(request or EventsRequest())

    # --- how it lives

    @property
    def _state(self) -> SessionState:
        if self._session_state is None:
            raise RuntimeError("the session is not there yet")
        return self._session_state

    async def _ready(self) -> SessionState:
        self._update_count += 1
        await workflow.wait_condition(lambda: self._session_state is not None or self._failure is not None)
        if self._failure is not None:
            raise self._failure
        return self._state

    async def _prepare(self, start: SessionInput) -> None:
        """Load the stored agent, or create a new one; if that fails, so do the session and all waiting updates."""
        workflow_id = workflow.info().workflow_id
        agent_id = own_id(workflow_id)
        if workflow_id != session_workflow_id(agent_id):  # one agent would have two sessions
            await self._fail(f"the session of agent {agent_id} is the workflow {session_workflow_id(agent_id)}")
        try:
            stored = await find_session(agent_id)
            if stored.kept is None:
                state = session_state.new_session(start, agent_id, workflow.now())
            else:
                check_form(SESSION, stored.kept)
                state = SessionState.model_validate_json(stored.kept)
                self._event_log.go_on(state)
            if stored.latest is not None:
                state = session_state.continued(state, stored.latest, workflow.now())
            elif start.forked_from is not None and stored.kept is None:
                state = session_state.branched(
                    state, start.forked_from, await branched(start.forked_from, agent_id), workflow.now()
                )
            self._searchable = state.settings.searchable
            if stored.kept is None:
                self._event_log.take(None, state)
            self._session_state = state
        except ActivityError as error:
            await self._fail(call_error(error, "records").message)
        except HoldfastError as error:
            await self._fail(error.message, SESSION_MISSING)

    async def _fail(self, text: str, kind: str = SESSION_REFUSED) -> NoReturn:
        self._failure = ApplicationError(clamped(text, REASON_CHARS_MAX), type=kind, non_retryable=True)
        await workflow.wait_condition(workflow.all_handlers_finished)
        raise self._failure

    def _take(self, transition: SessionTransition) -> SessionView:
        """Apply a transition, and carry out its commands."""
        state, commands = transition
        self._become(state)
        for command in commands:
            match command:
                case NotifyExecution() if self._child is not None:
                    self._child.send(command.payload)
                case StartExecution():
                    self._child = ChildExecution()
                    self._turn = asyncio.create_task(self._run(self._child, command))
                case _:
                    pass
        return self._state.view()

    def _become(self, state: SessionState) -> None:
        self._event_log.take(self._session_state, state)
        self._session_state = state

    @property
    def _may_begin(self) -> bool:
        return session_state.may_begin(self._state) and not self._rewinding

    def _begin_next(self) -> None:
        if self._may_begin:
            self._take(session_state.next_turn(self._state, str(workflow.uuid4()), workflow.now()))

    async def _run(self, child: ChildExecution, command: StartExecution) -> None:
        end = await child.run(command, self._state)
        if end.snapshot is None:
            end = await self._as_recorded(end)
        self._child = None
        self._become(session_state.ended(self._state, end))

    async def _as_recorded(self, end: TurnEnd) -> TurnEnd:
        """Return the end from the execution's record, if any: it may be terminated just after that."""
        try:
            latest = (await find_session(self._state.agent_id)).latest
        except ActivityError:
            return end
        turn = self._state.turn
        if turn is None or latest is None or latest.execution_id != end.execution_id:
            return end
        return session_state.end_as_recorded(turn, latest, end.at)

    @property
    def _turn_fault(self) -> BaseException | None:
        turn = self._turn
        return turn.exception() if turn is not None and turn.done() and not turn.cancelled() else None

    def _can_go_on(self) -> bool:
        return self._state.is_over or self._may_begin or self._is_to_go_on_elsewhere() or self._turn_fault is not None

    async def _something_happens(self) -> bool:
        """Wait until there is something to do; return False when the session should leave the server."""
        if self._state.is_over:
            return False
        before, idle = self._state, self._state.settings.idle_seconds
        try:
            await workflow.wait_condition(
                lambda: self._state is not before or self._can_go_on(),
                timeout=timedelta(seconds=idle) if idle is not None and before.turn is None else None,
                timeout_summary=None if idle is None else summaries.of_idle(idle),
            )
        except TimeoutError:
            return not self._is_idle()
        except asyncio.CancelledError:
            reason = workflow.cancellation_reason()
            if reason is None:
                raise  # the worker evicts this run
            return True
        return not self._state.is_over

    def _heed_cancel(self) -> None:
        """Close the session if it was cancelled; waiting messages are kept."""
        reason = workflow.cancellation_reason()
        if reason is not None and not self._state.at_once:
            stop = StopRequest(reason=clamped(reason, REASON_CHARS_MAX), source="cancelled")
            self._take(session_state.closed(self._state, stop, workflow.now()))

    def _is_idle(self) -> bool:
        return self._state.turn is None and not session_state.may_begin(self._state) and not self._rewinding

    async def _left(self) -> bool:
        """Store the session, and return whether nothing came meanwhile, so that it can leave the server."""
        state = self._state
        await in_any_case(workflow.wait_condition(workflow.all_handlers_finished))
        await in_any_case(keep_session(self._event_log.handed_on(state)))
        self._show()
        return self._state is state and workflow.all_handlers_finished()

    def _is_long(self) -> bool:
        return is_long(self._state.settings.continue_events)

    def _is_to_go_on_elsewhere(self) -> bool:
        """Return whether to continue as new: the run is long enough, or its build old, and nothing is under way."""
        if self._state.turn is not None or self._rewinding or self._state.is_over:
            return False
        enough = self._update_count >= UPDATES_PER_RUN
        if not enough and self._state.executions > self._executions_before:
            enough = self._is_long()
        return (enough or self._is_of_an_old_build()) and workflow.all_handlers_finished()

    def _is_of_an_old_build(self) -> bool:
        """Return whether another build is current, and this Temporal run has done something.

        Else it could go round between builds while some parts of the server know of a promotion and others do not yet.
        """
        done = self._update_count > 0 or self._state.executions > self._executions_before
        return done and newer_build() is not None

    def _show(self) -> None:
        """Update the search attributes when the status has changed."""
        if self._searchable and self._state.status != self._listed_status:
            self._listed_status = self._state.status
            upsert(STATUS.value_set(self._listed_status), STEPS.value_set(self._state.executions))


def _refuse(problem: tuple[str, str] | None) -> None:
    if problem is not None:
        kind, text = problem
        raise ApplicationError(text, type=kind, non_retryable=True)
