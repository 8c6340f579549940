"""The signals and updates of an execution; updates refuse what the loop would not accept."""

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
from holdfast.core.loop.events import (
    ApprovalDecided,
    DecisionUnreadable,
    Event,
    InputAnswered,
    MessageArrived,
    StopRequested,
)
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
from holdfast.core.wire.mcp_contracts import ANSWER_SIGNAL, CallAnswer
from workflows.execution.input_answers import answer_problem, refuse_answer
from workflows.execution.pending_approvals import decision_problem, refuse_arguments, refuse_decision, tool_problem
from workflows.execution.request_delta import ModelTranscript
from workflows.execution.signal_flood import STEP_SIGNALS_MAX, MessageRoom, SignalCount, with_surplus

SignalT = TypeVar("SignalT", bound=BaseModel)

UPDATES_REMEMBERED_MAX: Final = 128
"""How many handled updates are carried over: no client waits for more at once."""

NO_DECISION: Final = (
    "an `approval` signal was not a decision: it needs a call_id and a verdict, and arguments must be a JSON object"
)

NO_ANSWER: Final = "an `answer` signal was no answer: it needs a call_id and an answer with an action and the content"


def _parsed(kind: type[SignalT], args: Sequence[object]) -> SignalT | None:
    """Return a signal's first argument, parsed; none if it is missing or invalid.

    People send signals by hand, with any number of any arguments, and an exception in a handler would fail the run: so
    handlers accept everything and parse it here.
    """
    try:
        return kind.model_validate_json(to_json(args[0])) if args else None
    except ValueError as error:
        workflow.logger.warning("a signal was not accepted: %s", clamped(str(error), bounds.ERROR_CHARS_MAX))
        return None


class SignalHandlers:
    """The signals and updates of `AgentExecution`: they queue events for the loop."""

    _state: AgentState
    _transcript: ModelTranscript

    def _rules(self) -> Rules:
        raise NotImplementedError

    def __init__(self, message_ids: Sequence[str] = (), update_ids: Sequence[str] = ()) -> None:
        self._inbox: deque[Event] = deque()
        self._messages: deque[MessageArrived] = deque()
        self._message_ids: list[str] = list(message_ids)
        self._update_ids = deque(update_ids, UPDATES_REMEMBERED_MAX)
        """The ids of handled updates: the server knows those of one Temporal run, a client may retry in the next."""
        self._change: DefinitionChange | None = None
        self._room = MessageRoom()
        self._surplus = 0
        """How many messages by signal found no room."""
        self._signal_counts = SignalCount()

    @workflow.signal(name=STOP_SIGNAL, description="Stop the run: now (default) or after the step under way.")
    def stop(self, *args: Any) -> None:  # noqa: ANN401  # see `_parsed`
        """Queue a stop; the loop acts on it in the same workflow task."""
        if self._has_enough("now", bounds.STOP_SIGNALS_MAX):
            return  # unread: the run stops already
        request = _parsed(StopRequest, args) if args and args[0] is not None else StopRequest()
        if request is not None and not self._has_enough(request.mode, bounds.STOP_SIGNALS_MAX):
            self._request_stop(request)

    @workflow.signal(name=MESSAGE_SIGNAL, description="Say something: the model sees it with its next call.")
    def message(self, *args: Any) -> None:  # noqa: ANN401  # see `_parsed`
        """Queue a message; a signal without one is ignored."""
        waiting = self._waiting_messages
        if self._room.is_full(waiting, self._messages):
            self._count_surplus()  # unread: a flood must cost next to nothing
        elif (message := _parsed(Message, args)) is not None:
            if message.role in ROLES and not self._room.has_room(message, waiting, self._messages):
                self._count_surplus()
            else:
                self._queue_message(message)

    @workflow.signal(name=APPROVAL_SIGNAL, description="Decide about a call that waits for approval.")
    async def approval(self, *args: Any) -> None:  # noqa: ANN401  # see `_parsed`
        """Queue a person's decision; an invalid one, or an edit that does not fit its tool, becomes a warning."""
        decision = _parsed(ApprovalDecision, args)
        meant = decision is not None and decision_problem(decision, self._state, self._inbox) is None
        if decision is not None and meant and decision.verdict.arguments is None:
            self._decide(decision)  # never lost in a flood of others
            return
        if self._has_enough(APPROVAL_SIGNAL, STEP_SIGNALS_MAX):
            return
        self._note_signal(APPROVAL_SIGNAL)
        if decision is not None:
            self._decide(
                decision, await tool_problem(decision, self._state, self._transcript.opening.mcp) if meant else None
            )
        elif args:
            self._inbox.append(DecisionUnreadable(NO_DECISION, workflow.now()))

    @workflow.signal(name=ANSWER_SIGNAL, description="Answer what a call's server asks for.")
    def answer(self, *args: Any) -> None:  # noqa: ANN401  # see `_parsed`
        """Queue a person's answer; an invalid one, or one that does not fit the form, becomes a warning."""
        answer = _parsed(CallAnswer, args)
        problem = NO_ANSWER if answer is None else answer_problem(answer, self._state, self._inbox)
        if answer is not None and problem is None:
            self._inbox.append(InputAnswered(answer.call_id, answer.answer, workflow.now()))
        elif args and not self._has_enough(ANSWER_SIGNAL, STEP_SIGNALS_MAX):
            self._note_signal(ANSWER_SIGNAL)
            self._inbox.append(DecisionUnreadable(problem or NO_ANSWER, workflow.now()))

    @workflow.signal(name=CHANGE_SIGNAL, description="Make the agent another one from its next step on.")
    def change(self, *args: Any) -> None:  # noqa: ANN401  # see `_parsed`
        """Store a change of the definition; of several the last one counts."""
        if self._has_enough(CHANGE_SIGNAL, STEP_SIGNALS_MAX):
            return
        self._note_signal(CHANGE_SIGNAL)
        if (change := _parsed(DefinitionChange, args)) is not None:
            self._change = change

    @workflow.update(name=STOP_SIGNAL, description="Stop the run; answers with its status when it has ended.")
    async def stop_and_wait(self, request: StopRequest | None = None) -> str:
        """Stop the run as the signal does, and return its final status."""
        self._request_stop(request or StopRequest())
        await workflow.wait_condition(lambda: self._state.status.is_terminal)
        return self._state.status.value

    @workflow.update(name=MESSAGE_SIGNAL, description="Say something; refused where there is no room for it.")
    def message_update(self, message: Message) -> None:
        """Queue a message as the signal does; its validator refuses one that would not be kept."""
        if not self._is_repeated():
            self._queue_message(message)
            self._note_answered()

    @message_update.validator
    def _refuse_message(self, message: Message) -> None:
        if self._is_repeated():
            return
        waiting = (*self._waiting_messages, *(each.message for each in self._messages))
        if problem := problem_with_message(message, waiting, ended=self._state.status.is_terminal):
            raise ApplicationError(problem, type="MessageRefused", non_retryable=True)

    @workflow.update(name=APPROVAL_SIGNAL, description="Decide about a call; refused where it does not wait.")
    async def approval_update(self, decision: ApprovalDecision) -> None:
        """Queue a person's decision as the signal does, but only for a waiting call.

        An activity checks edited arguments, which a validator cannot start.
        """
        if self._is_repeated():
            return
        if decision.verdict.arguments is not None:
            refuse_arguments(await tool_problem(decision, self._state, self._transcript.opening.mcp))
            refuse_decision(decision, self._state, self._inbox, self._rules())  # another may have come meanwhile
        self._decide(decision)
        self._note_answered()

    @approval_update.validator
    def _refuse_decision(self, decision: ApprovalDecision) -> None:
        if self._is_repeated():
            return
        refuse_decision(decision, self._state, self._inbox, self._rules())

    @workflow.update(name=ANSWER_SIGNAL, description="Answer what a call's server asks for; refused where none waits.")
    def answer_update(self, answer: CallAnswer) -> None:
        """Queue a person's answer; its validator refuses one that does not fit the form."""
        if not self._is_repeated():
            self._inbox.append(InputAnswered(answer.call_id, answer.answer, workflow.now()))
            self._note_answered()

    @answer_update.validator
    def _refuse_answer(self, answer: CallAnswer) -> None:
        if not self._is_repeated():
            refuse_answer(answer, self._state, self._inbox)

    def _is_repeated(self) -> bool:
        """Return whether an earlier Temporal run handled this update."""
        update = workflow.current_update_info()
        return update is not None and update.id in self._update_ids

    def _note_answered(self) -> None:
        update = workflow.current_update_info()
        if update is not None:
            self._update_ids.append(update.id)

    @property
    def _waiting_messages(self) -> tuple[Message, ...]:
        execution = self._state.execution  # none before the first task has begun it
        return execution.waiting_messages if execution is not None else ()

    def _has_enough(self, kind: str, most: int) -> bool:
        return self._signal_counts.is_full(self._state.step_count, kind, most)

    def _note_signal(self, kind: str) -> None:
        self._signal_counts.count(self._state.step_count, kind)

    def _count_surplus(self) -> None:
        """Count a refused message; the state's warning is updated whenever the count has doubled."""
        self._surplus += 1
        if self._surplus & (self._surplus - 1) == 0:
            self._show_surplus()

    def _show_surplus(self) -> None:
        """Update the state's warning about refused messages."""
        if self._surplus and self._state.execution is not None:
            self._state = with_surplus(self._state, self._surplus)

    def _request_stop(self, request: StopRequest) -> None:
        self._note_signal(request.mode)
        at = workflow.now()
        signal = StopSignal.requested(request.reason, request.source or "signal", at, request.context)
        self._inbox.append(StopRequested(signal=signal, mode=request.mode, at=at))

    def _queue_message(self, message: Message) -> None:
        self._room.count(message, self._messages)
        self._messages.append(MessageArrived(message=message, at=workflow.now()))

    def _decide(self, decision: ApprovalDecision, problem: str | None = None) -> None:
        self._inbox.append(ApprovalDecided(decision.call_id, decision.verdict, workflow.now(), problem))

    def _note_delivered(self, message: Message) -> None:
        """Remember the id of a session's message that the loop has just queued."""
        message_id = message.metadata.get(MESSAGE_ID)
        waiting = self._state.running.waiting_messages
        if isinstance(message_id, str) and waiting and waiting[-1] is message:
            self._message_ids.append(message_id)

    def _delivered_ids(self) -> tuple[str, ...]:
        """Return the ids of the session's messages that are in the conversation now."""
        waiting_ids = {str(each.metadata.get(MESSAGE_ID)) for each in self._state.running.waiting_messages}
        return tuple(each for each in self._message_ids if each not in waiting_ids)
