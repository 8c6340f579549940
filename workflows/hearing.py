"""What people, sessions and operators tell an execution: signals, and updates that refuse what would not be kept."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import BaseModel
from pydantic_core import to_json
from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from holdfast.core import limits
    from holdfast.core.contracts import (
        APPROVAL_SIGNAL,
        CHANGE_SIGNAL,
        MESSAGE_SIGNAL,
        STOP_SIGNAL,
        ApprovalDecision,
        DefinitionChange,
        StopRequest,
    )
    from holdfast.core.events import ApprovalGiven, Event, MessageArrived, StopRequested
    from holdfast.core.keeping import problem_with_message
    from holdfast.core.messages import Message
    from holdfast.core.session import MESSAGE_ID
    from holdfast.core.state import AgentState
    from holdfast.core.stopping import StopReason, StopSignal
    from holdfast.core.texts import clamped
    from workflows.waiting import refuse_decision

ToldT = TypeVar("ToldT", bound=BaseModel)


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


class Hearing:
    """The signals and updates of `AgentExecution`: what was heard waits in order for the loop."""

    _state: AgentState

    def __init__(self, taken: Sequence[str] = ()) -> None:
        self._inbox: deque[Event] = deque()
        self._messages: deque[MessageArrived] = deque()
        self._taken: list[str] = list(taken)
        self._change: DefinitionChange | None = None

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

    @workflow.signal(name=CHANGE_SIGNAL, description="Make the agent another one from its next step on.")
    def change(self, *given: Any) -> None:  # noqa: ANN401  # see `_told`
        """Take note of a change; of several the last one counts."""
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
        refuse_decision(decision, self._state, self._inbox)

    def _request_stop(self, request: StopRequest) -> None:
        at = workflow.now()
        source = request.source or "signal"
        signal = StopSignal(reason=StopReason.USER_REQUESTED, message=request.reason, source=source, at=at)
        self._inbox.append(StopRequested(signal=signal, mode=request.mode, at=at))

    def _say(self, message: Message) -> None:
        self._messages.append(MessageArrived(message=message, at=workflow.now()))

    def _decide(self, decision: ApprovalDecision) -> None:
        self._inbox.append(ApprovalGiven(decision.call_id, decision.verdict, workflow.now()))

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
