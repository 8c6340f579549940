"""What people, sessions and operators tell an execution: signals, and updates that refuse what would not be kept."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from pydantic import BaseModel
from pydantic_core import to_json
from temporalio import workflow
from temporalio.exceptions import ApplicationError

from holdfast.core.agent.state import AgentState
from holdfast.core.base import bounds
from holdfast.core.base.safe_text import clamped
from holdfast.core.conversation.messages import Message
from holdfast.core.conversation.stop_reasons import StopSignal
from holdfast.core.loop.events import ApprovalDecided, DecisionUnreadable, Event, MessageArrived, StopRequested
from holdfast.core.loop.execution_rules import Rules
from holdfast.core.loop.pending_messages import ROLES, problem_with_message
from holdfast.core.session.session_state import MESSAGE_ID
from holdfast.core.wire.contracts import (
    APPROVAL_SIGNAL,
    CHANGE_SIGNAL,
    MESSAGE_SIGNAL,
    STOP_SIGNAL,
    ApprovalDecision,
    DefinitionChange,
    StopRequest,
)
from workflows.execution.pending_approvals import decision_problem, refuse_arguments, refuse_decision, tool_problem
from workflows.execution.signal_flood import STEP_SIGNALS_MAX, MessageRoom, SignalCount, with_surplus

ToldT = TypeVar("ToldT", bound=BaseModel)

UPDATES_REMEMBERED_MAX: Final = 128
"""How many updates a run hands on as taken: no client waits with more at once."""

NO_DECISION: Final = (
    "an `approval` signal was not a decision: it needs a call_id and a verdict, and arguments must be a JSON object"
)


def _told(kind: type[ToldT], given: Sequence[object]) -> ToldT | None:
    """Return what a signal says, its first argument; none where that is nothing, or not of this kind.

    People send signals by hand, with any arguments and any number of them, and whatever a handler raised for that
    would fail the run: so handlers take everything and read it here.
    """
    try:
        return kind.model_validate_json(to_json(given[0])) if given else None
    except ValueError as error:
        workflow.logger.warning("a signal was not taken: %s", clamped(str(error), bounds.ERROR_CHARS_MAX))
        return None


class SignalHandlers:
    """The signals and updates of `AgentExecution`: what was heard waits in order for the loop."""

    _state: AgentState

    def _rules(self) -> Rules:
        raise NotImplementedError

    def __init__(self, taken: Sequence[str] = (), answered: Sequence[str] = ()) -> None:
        self._inbox: deque[Event] = deque()
        self._messages: deque[MessageArrived] = deque()
        self._taken: list[str] = list(taken)
        self._answered = deque(answered, UPDATES_REMEMBERED_MAX)
        """The ids of updates taken: the server knows those of a run, and a client may ask again in the next one."""
        self._change: DefinitionChange | None = None
        self._room = MessageRoom()
        self._surplus = 0
        """How many messages came by signal when there was no room for them."""
        self._taken_signals = SignalCount()

    @workflow.signal(name=STOP_SIGNAL, description="Stop the run: now (default) or after the step under way.")
    def stop(self, *given: Any) -> None:  # noqa: ANN401  # see `_told`
        """Take note of a stop; the loop acts on it in the same workflow task."""
        if self._has_enough("now", bounds.STOP_SIGNALS_MAX):
            return  # unread: it stops already
        request = _told(StopRequest, given) if given and given[0] is not None else StopRequest()
        if request is not None and not self._has_enough(request.mode, bounds.STOP_SIGNALS_MAX):
            self._request_stop(request)

    @workflow.signal(name=MESSAGE_SIGNAL, description="Say something: the model sees it with its next call.")
    def message(self, *given: Any) -> None:  # noqa: ANN401  # see `_told`
        """Take note of a message; a signal without one says nothing."""
        waiting = self._waiting_messages
        if self._room.is_full(waiting, self._messages):
            self._count_surplus()  # unread: a flood must cost next to nothing
        elif (message := _told(Message, given)) is not None:
            if message.role in ROLES and not self._room.has_room(message, waiting, self._messages):
                self._count_surplus()
            else:
                self._say(message)

    @workflow.signal(name=APPROVAL_SIGNAL, description="Decide about a call that waits for approval.")
    async def approval(self, *given: Any) -> None:  # noqa: ANN401  # see `_told`
        """Take note of a person's decision; of what is none, or an edit that does not fit its tool, a warning tells."""
        decision = _told(ApprovalDecision, given)
        meant = decision is not None and decision_problem(decision, self._state, self._inbox) is None
        if decision is not None and meant and decision.verdict.arguments is None:
            self._decide(decision)  # never lost in a flood of others
            return
        if self._has_enough(APPROVAL_SIGNAL, STEP_SIGNALS_MAX):
            return
        self._note_signal(APPROVAL_SIGNAL)
        if decision is not None:
            self._decide(decision, await tool_problem(decision, self._state) if meant else None)
        elif given:
            self._inbox.append(DecisionUnreadable(NO_DECISION, workflow.now()))

    @workflow.signal(name=CHANGE_SIGNAL, description="Make the agent another one from its next step on.")
    def change(self, *given: Any) -> None:  # noqa: ANN401  # see `_told`
        """Take note of a change; of several the last one counts."""
        if self._has_enough(CHANGE_SIGNAL, STEP_SIGNALS_MAX):
            return
        self._note_signal(CHANGE_SIGNAL)
        if (change := _told(DefinitionChange, given)) is not None:
            self._change = change

    @workflow.update(name=STOP_SIGNAL, description="Stop the run; answers with its status when it has ended.")
    async def stop_and_wait(self, request: StopRequest | None = None) -> str:
        """Stop the run as the signal does, and return how it has ended."""
        self._request_stop(request or StopRequest())
        await workflow.wait_condition(lambda: self._state.status.is_terminal)
        return self._state.status.value

    @workflow.update(name=MESSAGE_SIGNAL, description="Say something; refused where there is no room for it.")
    def message_taken(self, message: Message) -> None:
        """Take note of a message as the signal does, but only of one that will be kept."""
        if not self._is_repeated():
            self._say(message)
            self._note_answered()

    @message_taken.validator
    def _refuse_message(self, message: Message) -> None:
        if self._is_repeated():
            return
        waiting = (*self._waiting_messages, *(each.message for each in self._messages))
        if problem := problem_with_message(message, waiting, ended=self._state.status.is_terminal):
            raise ApplicationError(problem, type="MessageRefused", non_retryable=True)

    @workflow.update(name=APPROVAL_SIGNAL, description="Decide about a call; refused where it does not wait.")
    async def approval_taken(self, decision: ApprovalDecision) -> None:
        """Take note of a person's decision as the signal does, but only about a call that waits for one.

        What a tool says of edited arguments is learnt by an activity, which a validator cannot ask for.
        """
        if self._is_repeated():
            return
        if decision.verdict.arguments is not None:
            refuse_arguments(await tool_problem(decision, self._state))
            refuse_decision(decision, self._state, self._inbox, self._rules())  # another may have come meanwhile
        self._decide(decision)
        self._note_answered()

    @approval_taken.validator
    def _refuse_decision(self, decision: ApprovalDecision) -> None:
        if self._is_repeated():
            return
        refuse_decision(decision, self._state, self._inbox, self._rules())

    def _is_repeated(self) -> bool:
        """Return whether the update under way was taken by the run before this one."""
        asked = workflow.current_update_info()
        return asked is not None and asked.id in self._answered

    def _note_answered(self) -> None:
        asked = workflow.current_update_info()
        if asked is not None:
            self._answered.append(asked.id)

    @property
    def _waiting_messages(self) -> tuple[Message, ...]:
        execution = self._state.execution  # none before the first task has begun it
        return execution.waiting_messages if execution is not None else ()

    def _has_enough(self, kind: str, most: int) -> bool:
        return self._taken_signals.is_full(self._state.step_count, kind, most)

    def _note_signal(self, kind: str) -> None:
        self._taken_signals.count(self._state.step_count, kind)

    def _count_surplus(self) -> None:
        """Note that a message was not taken; the state says so at once, and how many as their number doubles."""
        self._surplus += 1
        if self._surplus & (self._surplus - 1) == 0:
            self._tell_surplus()

    def _tell_surplus(self) -> None:
        """Have the state say how many messages were not taken."""
        if self._surplus and self._state.execution is not None:
            self._state = with_surplus(self._state, self._surplus)

    def _request_stop(self, request: StopRequest) -> None:
        self._note_signal(request.mode)
        at = workflow.now()
        signal = StopSignal.requested(request.reason, request.source or "signal", at, request.context)
        self._inbox.append(StopRequested(signal=signal, mode=request.mode, at=at))

    def _say(self, message: Message) -> None:
        self._room.count(message, self._messages)
        self._messages.append(MessageArrived(message=message, at=workflow.now()))

    def _decide(self, decision: ApprovalDecision, problem: str | None = None) -> None:
        self._inbox.append(ApprovalDecided(decision.call_id, decision.verdict, workflow.now(), problem))

    def _note_taken(self, message: Message) -> None:
        """Remember a session's message that the loop has just been told, if it will be said."""
        said = message.metadata.get(MESSAGE_ID)
        waiting = self._state.running.waiting_messages
        if isinstance(said, str) and waiting and waiting[-1] is message:
            self._taken.append(said)

    def _said(self) -> tuple[str, ...]:
        """Return the ids of the session's messages that stand in the conversation now."""
        unsaid = {str(each.metadata.get(MESSAGE_ID)) for each in self._state.running.waiting_messages}
        return tuple(each for each in self._taken if each not in unsaid)
