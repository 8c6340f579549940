"""A session under test, short to write: fixed ids, a clock that stands, refusals as errors."""

from __future__ import annotations

from uuid import UUID

from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.messages import Message
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.session.session_state import (
    MESSAGE_ID,
    NotifyExecution,
    SessionCommand,
    SessionInput,
    SessionState,
    StartExecution,
    TurnEnd,
    ended,
    new_session,
    next_turn,
    problem_with_message,
    sent,
)
from holdfast.core.wire.contracts import DefinitionChange, StopRequest
from holdfast.core.wire.session_contracts import SessionMessage, SessionSettings, WhileRunning
from tests.core.building import AGENT_ID, DEFINITION, START

OUTCOMES = {
    ExecutionStatus.COMPLETED: StopReason.COMPLETED,
    ExecutionStatus.STOPPED: StopReason.USER_REQUESTED,
    ExecutionStatus.FAILED: StopReason.ERROR,
}


class RefusedError(Exception):
    """A message was not accepted: the refusal's type and what it tells."""


def session(while_running: WhileRunning = "queue") -> SessionState:
    settings = SessionSettings(while_running=while_running)
    return new_session(SessionInput(definition=DEFINITION, settings=settings), AGENT_ID, START)


def said(message_id: str, text: str = "hello", policy: WhileRunning | None = None) -> SessionMessage:
    return SessionMessage(message_id=message_id, text=text, while_running=policy)


def tell(state: SessionState, *messages: SessionMessage | str) -> tuple[SessionState, tuple[SessionCommand, ...]]:
    """Send one message after another; what came of the last of them. Raises Refused."""
    commands: tuple[SessionCommand, ...] = ()
    for each in messages:
        message = each if isinstance(each, SessionMessage) else said(each)
        if problem := problem_with_message(state, message):
            raise RefusedError(*problem)
        state, commands = sent(state, message, START)
    return state, commands


def told(state: SessionState, *messages: SessionMessage | str) -> SessionState:
    return tell(state, *messages)[0]


def execution_id(number: int) -> str:
    return str(UUID(int=1_000 + number))


def digest(number: int) -> str:
    return f"{number:064x}"


def begin(state: SessionState) -> tuple[SessionState, StartExecution]:
    """Begin the next execution, which must be possible."""
    state, (command,) = next_turn(state, execution_id(state.executions + 1), START)
    assert isinstance(command, StartExecution)
    return state, command


def running(while_running: WhileRunning = "queue", *messages: SessionMessage | str) -> SessionState:
    """Return a session whose first execution is under way with the message `first`."""
    return told(begin(told(session(while_running), "first"))[0], *messages)


def finish(
    state: SessionState,
    status: ExecutionStatus = ExecutionStatus.COMPLETED,
    *,
    taken: tuple[str, ...] = (),
    kept: bool = True,
) -> SessionState:
    """End the execution under way; without `kept` it leaves no snapshot."""
    assert state.turn is not None
    end = TurnEnd(
        execution_id=state.turn.execution_id,
        status=status,
        stop_reason=OUTCOMES[status],
        snapshot=digest(state.executions) if kept else None,
        messages_before=2 * (state.executions - 1),
        taken=(*(each.message_id for each in state.turn.said), *taken) if kept else taken,
        usage=Usage(input_tokens=10, output_tokens=1),
        cost=0.5,
        at=START,
    )
    return ended(state, end)


def waiting(state: SessionState) -> list[str]:
    return [each.message_id for each in state.queue]


def spoken_to(command: StartExecution) -> list[str]:
    """Return the ids of what an execution begins with."""
    return [message_id(each) for each in command.start.messages]


def message_id(message: Message) -> str:
    value = message.metadata[MESSAGE_ID]
    assert isinstance(value, str)
    return value


def only_told(commands: tuple[SessionCommand, ...]) -> Message | StopRequest | DefinitionChange:
    """Return what the execution under way is told, which must be one thing."""
    (command,) = commands
    assert isinstance(command, NotifyExecution)
    return command.payload
