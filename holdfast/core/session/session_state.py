"""A session as a value: an agent's messages, executions and settings (docs/spec.md, section 8). Runs nothing.

Every function returns a new `SessionState`, some with commands (`SessionCommand`). Times and ids arrive as arguments.
An acknowledged message is in the queue, in an execution, or in the conversation that a snapshot holds; it leaves one
of them only for the next (`ended`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal

from pydantic import AwareDatetime, Field, JsonValue

from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus, Id
from holdfast.core.agent.user_metadata import checked_metadata
from holdfast.core.base.bounds import QUESTION_BYTES_MAX, QUEUE_MAX
from holdfast.core.base.call_digest import Digest
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.frozen import Frozen, canonical, replace
from holdfast.core.base.stored_forms import is_first
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.amounts import joined_models
from holdfast.core.conversation.messages import Message, user_message
from holdfast.core.conversation.stop_reasons import StopMode, StopReason
from holdfast.core.wire.contracts import DefinitionChange, SessionStart, StopRequest
from holdfast.core.wire.records import ExecutionRecord
from holdfast.core.wire.session_contracts import (
    SESSION_CLOSED,
    SESSION_REFUSED,
    Branch,
    Branched,
    Receipt,
    SessionChange,
    SessionMessage,
    SessionSettings,
    SessionStatus,
    SessionView,
    WhileRunning,
)

QUEUE_BYTES_MAX: Final = 1024 * 1024
"""The most that queued messages take together, in bytes of JSON: a session that continues as new carries them over."""

MESSAGE_IDS_KEPT: Final = 1_000
"""How many of the latest message ids a session remembers, to recognise a message that is sent again."""

MESSAGE_ID: Final = "message_id"
"""The key of a message's id in its metadata."""

INTERRUPTED: Final = "a message took its place"
"""The stop reason of an execution that a message interrupts."""


class Turn(Frozen):
    """An execution under way: `said` are the messages that it began with, `injected` those sent to it since."""

    execution_id: Id
    said: tuple[SessionMessage, ...]
    injected: tuple[SessionMessage, ...] = ()
    stop: StopMode | None = None
    """The mode of the stop that it was sent, if any: the same stop is not sent twice."""


class DeliveredMessage(Frozen):
    """A message that was delivered to an execution."""

    message_id: str
    execution_id: Id


class SessionState(Frozen):
    """The whole state of a session but for the conversation, which the snapshot named `snapshot` holds."""

    format: Literal[1] = 1
    agent_id: Id
    definition: AgentDefinition
    subagents: tuple[AgentDefinition, ...] = ()
    settings: SessionSettings = SessionSettings()
    suspended: bool = False
    closing: bool = False
    """True once no messages or changes are accepted any more."""
    at_once: bool = False
    """True when waiting messages are kept then, but get no turn."""
    turn: Turn | None = None
    queue: tuple[SessionMessage, ...] = ()
    interrupting: int = Field(default=0, ge=0)
    """How many messages at the front of the queue are interrupting ones."""
    unanswered: tuple[SessionMessage, ...] = ()
    """The messages of an execution that left no snapshot: they are sent again before the next message."""
    known: tuple[DeliveredMessage, ...] = ()
    """The latest messages that were delivered to executions."""
    snapshot: Digest | None = None
    messages_before: int = Field(default=0, ge=0)
    clearing: bool = False
    """True when the conversation is to be cleared at the end of the execution under way."""
    executions: int = Field(default=0, ge=0)
    place: Branch | None = None
    """The place of `snapshot` in the agent's history."""
    last_id: Id | None = None
    last_status: ExecutionStatus | None = None
    last_stop_reason: StopReason | None = None
    usage: Usage = Usage()
    cost: float = Field(default=0.0, ge=0)
    unpriced: tuple[str, ...] = ()
    """The models, of all executions, whose tokens have no known price; they are not in `cost`."""
    events_before: int = Field(default=0, ge=0)
    """How many events the session had before this Temporal run; the run `events_run_id` has the latest of them."""
    events_run_id: str | None = None
    updated_at: AwareDatetime

    @property
    def status(self) -> SessionStatus:
        """What the session does."""
        if self.turn is not None:
            return "running"
        if self.closing:
            return "closed"
        return "suspended" if self.suspended else "idle"

    @property
    def is_over(self) -> bool:
        """True when the session is closed and every acknowledged message has had its turn."""
        return self.closing and self.turn is None and (self.at_once or not self.queue)

    def view(self, *, whole: bool = False) -> SessionView:
        """Return the public view; `whole` adds the agents that the session can reach, whose texts can be long."""
        return SessionView(
            agent_id=self.agent_id,
            status=self.status,
            definition=self.definition,
            settings=self.settings,
            running_id=self.turn.execution_id if self.turn else None,
            last_id=self.last_id,
            last_status=self.last_status,
            last_stop_reason=self.last_stop_reason,
            executions=self.executions,
            waiting=tuple(each.message_id for each in self.queue),
            snapshot=self.snapshot,
            place=self.place,
            subagents=self.subagents if whole else (),
            usage=self.usage,
            cost=self.cost,
            unpriced=self.unpriced,
            updated_at=self.updated_at,
        )


class SessionInput(Frozen):
    """The input of an `AgentSession`. Without a definition the agent must exist already, here or in the store.

    `carried` is the state that the previous Temporal run carries over.
    """

    format: Literal[1] = Field(default=1, exclude_if=is_first)
    definition: AgentDefinition | None = None
    subagents: tuple[AgentDefinition, ...] = ()
    settings: SessionSettings = SessionSettings()
    forked_from: Branch | None = None
    carried: SessionState | None = None


class TurnEnd(Frozen):
    """How an execution ended. Without a `snapshot` (it was terminated) nothing of its conversation is kept."""

    execution_id: Id
    status: ExecutionStatus
    stop_reason: StopReason | None
    snapshot: Digest | None
    messages_before: int = 0
    taken: tuple[str, ...] = ()
    usage: Usage = Usage()
    cost: float = 0.0
    unpriced: tuple[str, ...] = ()
    at: AwareDatetime


@dataclass(frozen=True, slots=True)
class StartExecution:
    """Begin an execution of the agent as it is now."""

    execution_id: str
    definition: AgentDefinition
    subagents: tuple[AgentDefinition, ...]
    start: SessionStart
    metadata: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])


@dataclass(frozen=True, slots=True)
class NotifyExecution:
    """Send the execution under way a message, a stop, or a new definition."""

    payload: Message | StopRequest | DefinitionChange


SessionCommand = StartExecution | NotifyExecution
SessionTransition = tuple[SessionState, tuple[SessionCommand, ...]]


def new_session(start: SessionInput, agent_id: str, at: datetime) -> SessionState:
    """Return a session without messages. Raises InvalidInput without a definition."""
    if start.definition is None:
        raise InvalidInput(
            f"there is no agent {agent_id}; give its definition (`--agent`), or begin one with `holdfast chat`"
        )
    return SessionState(
        agent_id=agent_id,
        definition=start.definition,
        subagents=start.subagents,
        settings=start.settings,
        updated_at=at,
    )


def branched(state: SessionState, place: Branch, origin: Branched, at: datetime) -> SessionState:
    """Return the session continued from another place of a conversation."""
    return replace(state, snapshot=origin.snapshot, messages_before=origin.messages_before, place=place, updated_at=at)


def continued(state: SessionState, latest: ExecutionRecord, at: datetime) -> SessionState:
    """Return a session that replaces a terminated one: it starts from the agent's latest record."""
    origin = Branched(snapshot=latest.snapshot)
    return replace(
        branched(state, Branch(agent_id=state.agent_id, execution_id=latest.execution_id), origin, at),
        executions=latest.number,
        last_id=latest.execution_id,
        last_status=latest.status,
        last_stop_reason=latest.stop_reason,
    )


def problem_with_message(state: SessionState, message: SessionMessage) -> tuple[str, str] | None:
    """Return why the message is refused, if so: the type of the refusal and its text."""
    if receipt(state, message.message_id) is not None:
        return None  # it has been taken already
    if state.closing:
        return SESSION_CLOSED, f"the session of agent {state.agent_id} is closed; start another agent, or fork this one"
    if not message.text.strip():
        return SESSION_REFUSED, "the message is empty; say what the agent is to do"
    try:
        checked_metadata(message.metadata)
    except InvalidInput as error:
        return SESSION_REFUSED, error.message
    if (size := len(message.text.encode("utf-8", "surrogatepass"))) > QUESTION_BYTES_MAX:
        return (
            SESSION_REFUSED,
            f"the message has {size:,} bytes, at most {QUESTION_BYTES_MAX:,} are allowed; shorten it",
        )
    if state.turn is not None and _policy(state, message) == "reject":
        text = f"run {state.turn.execution_id} is under way and the policy is `reject`; send it later"
        return SESSION_REFUSED, text
    return _problem_with_room(state, message)


def _problem_with_room(state: SessionState, message: SessionMessage) -> tuple[str, str] | None:
    turn = state.turn
    # messages of the execution count too: all of them come back when it leaves no snapshot
    queued = (*state.queue, *state.unanswered, *((*turn.said, *turn.injected) if turn else ()))
    used = sum(len(canonical(each)) for each in (*queued, message))
    if len(queued) < QUEUE_MAX and used <= QUEUE_BYTES_MAX:
        return None
    count = len(queued)
    text = f"{count} messages ({used:,} bytes with this one) wait, at most {QUEUE_MAX} and {QUEUE_BYTES_MAX:,} can"
    if turn is None and not state.queue:
        return SESSION_REFUSED, f"{text}; their executions left nothing: resume the session to repeat them, or clear it"
    return SESSION_REFUSED, f"{text}; send it later"


def sent(state: SessionState, message: SessionMessage, at: datetime) -> SessionTransition:
    """Accept a message that `problem_with_message` has passed; a repeated one changes nothing.

    A message to inject waits behind an earlier such message that an ended execution left over: they are delivered in
    the order in which they came.
    """
    if receipt(state, message.message_id) is not None:
        return state, ()
    turn = state.turn
    if turn is None:
        return replace(state, queue=(*state.queue, message), updated_at=at), ()
    match _policy(state, message):
        case "inject" if not any(_policy(state, each) == "inject" for each in state.queue):
            turn = replace(turn, injected=(*turn.injected, message))
            delivered = _noted(state, (message,), turn.execution_id)
            state = replace(state, turn=turn, known=delivered, updated_at=at)
            return state, (NotifyExecution(payload=spoken(message)),)
        case "interrupt":
            front = (*state.queue[: state.interrupting], message, *state.queue[state.interrupting :])
            state = replace(state, queue=front, interrupting=state.interrupting + 1, updated_at=at)
            return stopped(state, StopRequest(reason=INTERRUPTED, source="session"), at)
        case _:
            return replace(state, queue=(*state.queue, message), updated_at=at), ()


def stopped(state: SessionState, stop: StopRequest, at: datetime) -> SessionTransition:
    """Stop the execution under way; waiting messages follow. Sent once, and again only to change the mode to `now`."""
    turn = state.turn
    if turn is None or turn.stop in ("now", stop.mode):
        return state, ()
    return replace(state, turn=replace(turn, stop=stop.mode), updated_at=at), (NotifyExecution(payload=stop),)


def changed(state: SessionState, change: SessionChange, at: datetime) -> SessionTransition:
    """Change the agent; an execution under way is notified."""
    definition = change.definition or state.definition
    parts = {"system_prompt": change.system_prompt, "llm": change.llm, "budget": change.budget}
    parts_set = {name: value for name, value in parts.items() if value is not None}
    definition = replace(definition, **parts_set) if parts_set else definition
    subagents = state.subagents if change.subagents is None else change.subagents
    settings = state.settings
    if change.while_running is not None:
        settings = replace(settings, while_running=change.while_running)
    before = (state.definition, state.subagents)
    state = replace(state, definition=definition, subagents=subagents, settings=settings, updated_at=at)
    if state.turn is None or (definition, subagents) == before:
        return state, ()
    budget = definition.budget if change.budget is not None or change.definition is not None else None
    definition_change = DefinitionChange(definition=definition, subagents=subagents, budget=budget)
    return state, (NotifyExecution(payload=definition_change),)


def cleared(state: SessionState, at: datetime) -> SessionState:
    """Clear the conversation: now, or at the end of the execution under way. Waiting messages and records stay."""
    if state.turn is not None:
        return replace(state, clearing=True, updated_at=at)
    return _forgotten(replace(state, updated_at=at))


def problem_with_rewinding(state: SessionState) -> tuple[str, str] | None:
    """Return why the session cannot go back now, if so."""
    if state.closing:
        return SESSION_CLOSED, f"the session of agent {state.agent_id} is closed; fork it instead"
    if state.turn is not None:
        return SESSION_REFUSED, f"run {state.turn.execution_id} is under way; stop it first"
    return None


def suspended(state: SessionState, at: datetime) -> SessionState:
    """Begin nothing until `resumed`; an execution under way runs to its end."""
    return replace(state, suspended=True, updated_at=at)


def resumed(state: SessionState, at: datetime) -> SessionState:
    """Continue with waiting messages. Those of executions that left no snapshot wait again, each for its own turn."""
    return replace(_repeating(state), suspended=False, updated_at=at)


def closed(state: SessionState, stop: StopRequest | None, at: datetime) -> SessionTransition:
    """Accept nothing more. With a `stop` the execution ends now and the queue is kept; else both finish first."""
    state = replace(state, closing=True, at_once=state.at_once or stop is not None, suspended=False, updated_at=at)
    return stopped(state, stop, at) if stop is not None else (_repeating(state), ())


def _repeating(state: SessionState) -> SessionState:
    """Queue the messages of executions that left no snapshot again, each for its own turn."""
    front, rest = state.queue[: state.interrupting], state.queue[state.interrupting :]
    return replace(state, queue=(*front, *state.unanswered, *rest), unanswered=())


def may_begin(state: SessionState) -> bool:
    """Return whether the next message can have its turn."""
    return state.turn is None and bool(state.queue) and not state.suspended and not state.at_once


def next_turn(state: SessionState, execution_id: str, at: datetime) -> SessionTransition:
    """Begin an execution with the next message, if one waits and may begin."""
    if not may_begin(state):
        return state, ()
    messages = (*state.unanswered, state.queue[0])
    start = SessionStart(
        snapshot=state.snapshot,
        previous_id=state.place.execution_id if state.place else None,
        messages_before=state.messages_before,
        executions=state.executions,
        messages=tuple(spoken(each) for each in messages),
    )
    state = replace(
        state,
        turn=Turn(execution_id=execution_id, said=messages),
        queue=state.queue[1:],
        interrupting=max(0, state.interrupting - 1),
        unanswered=(),
        known=_noted(state, messages, execution_id),
        executions=state.executions + 1,
        updated_at=at,
    )
    metadata: Mapping[str, JsonValue] = {name: value for each in messages for name, value in each.metadata.items()}
    return state, (StartExecution(execution_id, state.definition, state.subagents, start, metadata),)


def ended(state: SessionState, end: TurnEnd) -> SessionState:
    """Apply the end of the execution under way.

    Injected messages that it did not take wait again, before all but interrupting ones. If it left no snapshot, all of
    its messages are sent again with the next one: they were acknowledged, and no conversation has them.
    """
    turn = state.turn
    if turn is None or turn.execution_id != end.execution_id:
        return state
    taken_ids = set(end.taken)
    untaken = tuple(each for each in turn.injected if each.message_id not in taken_ids)
    state = replace(
        state,
        turn=None,
        queue=(*state.queue[: state.interrupting], *untaken, *state.queue[state.interrupting :]),
        last_id=end.execution_id,
        last_status=end.status,
        last_stop_reason=end.stop_reason,
        usage=state.usage + end.usage,
        cost=state.cost + end.cost,
        unpriced=joined_models(state.unpriced, end.unpriced),
        updated_at=end.at,
    )
    if end.snapshot is None:
        taken_messages = tuple(each for each in turn.injected if each.message_id in taken_ids)
        state = replace(state, unanswered=(*turn.said, *taken_messages))
    else:
        place = Branch(agent_id=state.agent_id, execution_id=end.execution_id)
        state = replace(state, snapshot=end.snapshot, messages_before=end.messages_before, place=place)
    return _forgotten(state) if state.clearing else state


def end_as_recorded(turn: Turn, record: ExecutionRecord, at: datetime) -> TurnEnd:
    """Return the end of an execution that was terminated after its record was written.

    Whether injected messages were delivered is unknown: they wait again.
    """
    return TurnEnd(
        execution_id=turn.execution_id,
        status=record.status,
        stop_reason=record.stop_reason,
        snapshot=record.snapshot,
        taken=tuple(each.message_id for each in turn.said),
        usage=record.usage,
        cost=record.cost,
        unpriced=record.unpriced,
        at=at,
    )


def receipt(state: SessionState, message_id: str) -> Receipt | None:
    """Return the receipt of a message; none when it never came, or too long ago."""
    running_id = state.turn.execution_id if state.turn else None
    for ahead, each in enumerate(state.queue):
        if each.message_id == message_id:
            return Receipt(message_id=message_id, state="waiting", running_id=running_id, ahead=ahead)
    for delivery in reversed(state.known):
        if delivery.message_id == message_id:
            under_way = delivery.execution_id == running_id
            return Receipt(
                message_id=message_id,
                state="running" if under_way else "answered",
                execution_id=delivery.execution_id,
                running_id=running_id,
            )
    return None


def spoken(message: SessionMessage) -> Message:
    """Return the conversation's form of a message, with its metadata and its id, which the model never sees."""
    said = user_message(message.text, message.attachments)
    return replace(said, metadata={**message.metadata, MESSAGE_ID: message.message_id})


def _policy(state: SessionState, message: SessionMessage) -> WhileRunning:
    return message.while_running or state.settings.while_running


def _forgotten(state: SessionState) -> SessionState:
    return replace(state, snapshot=None, place=None, messages_before=0, unanswered=(), clearing=False)


def _noted(state: SessionState, messages: Sequence[SessionMessage], execution_id: str) -> tuple[DeliveredMessage, ...]:
    ids = {each.message_id for each in messages}
    others = tuple(each for each in state.known if each.message_id not in ids)
    added = (DeliveredMessage(message_id=each.message_id, execution_id=execution_id) for each in messages)
    return (*others, *added)[-MESSAGE_IDS_KEPT:]
