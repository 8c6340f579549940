"""A session as a value: an agent's messages, executions and settings (docs/spec.md, section 8). Runs nothing.

Every function returns a new `SessionState`, and with it what is to be done (`SessionCommand`). Times and ids arrive as
arguments. A message that was acknowledged is in the queue, in an execution, or in the conversation that a snapshot
holds; it never leaves one of them but for the next (`ended`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from pydantic import AwareDatetime, Field, JsonValue

from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus, Id
from holdfast.core.agent.user_metadata import checked_metadata
from holdfast.core.base.bounds import QUESTION_BYTES_MAX, QUEUE_MAX
from holdfast.core.base.call_digest import Digest
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.frozen import Frozen, canonical, replace
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.amounts import joined_models
from holdfast.core.conversation.messages import Message
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
"""The most they take together, in bytes of JSON: a session that goes on in a new run hands them on."""

MESSAGE_IDS_KEPT: Final = 1_000
"""So many of the latest message ids a session remembers: sent again within them, a message is the same one."""

MESSAGE_ID: Final = "message_id"
"""Under this name a message's metadata hold its id."""

INTERRUPTED: Final = "a message took its place"
"""Why an execution was stopped by a message that interrupts."""


class Turn(Frozen):
    """An execution under way: `said` are the messages it began with, `injected` those that were sent to it since."""

    execution_id: Id
    said: tuple[SessionMessage, ...]
    injected: tuple[SessionMessage, ...] = ()
    stop: StopMode | None = None
    """How it was told to end, if it was: it is not told the same again."""


class DeliveredMessage(Frozen):
    """A message that was given to an execution."""

    message_id: str
    execution_id: Id


class SessionState(Frozen):
    """All that a session knows. The conversation is not in it: `snapshot` names what holds it."""

    agent_id: Id
    definition: AgentDefinition
    subagents: tuple[AgentDefinition, ...] = ()
    settings: SessionSettings = SessionSettings()
    suspended: bool = False
    closing: bool = False
    """True from the moment on from which nothing is taken any more."""
    at_once: bool = False
    """True when what waits then is kept, but does not get its turn."""
    turn: Turn | None = None
    queue: tuple[SessionMessage, ...] = ()
    interrupting: int = Field(default=0, ge=0)
    """How many at the front of the queue have interrupted what runs."""
    unanswered: tuple[SessionMessage, ...] = ()
    """What was said to an execution that left no snapshot: it is said again before the next message."""
    known: tuple[DeliveredMessage, ...] = ()
    """The latest messages that were given to executions."""
    snapshot: Digest | None = None
    messages_before: int = Field(default=0, ge=0)
    clearing: bool = False
    """True when the conversation is to be forgotten at the end of what runs."""
    executions: int = Field(default=0, ge=0)
    place: Branch | None = None
    """Where the conversation of `snapshot` stands."""
    last_id: Id | None = None
    last_status: ExecutionStatus | None = None
    last_stop_reason: StopReason | None = None
    usage: Usage = Usage()
    cost: float = Field(default=0.0, ge=0)
    unpriced: tuple[str, ...] = ()
    """The models, of all executions, whose tokens have no known price; they are not in `cost`."""
    events_before: int = Field(default=0, ge=0)
    """How many events the session had before its Temporal run; its latest are with the one `events_run_id`."""
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
        """True when the session is closed and everything acknowledged has had its turn."""
        return self.closing and self.turn is None and (self.at_once or not self.queue)

    def view(self, *, whole: bool = False) -> SessionView:
        """Return what others may see of it; `whole`: with the agents that it can reach, whose texts can be long."""
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
    """What starts an `AgentSession`. Without a definition the agent must be there already, or have been kept.

    `carried` is what the run before this one hands on.
    """

    definition: AgentDefinition | None = None
    subagents: tuple[AgentDefinition, ...] = ()
    settings: SessionSettings = SessionSettings()
    forked_from: Branch | None = None
    carried: SessionState | None = None


class TurnEnd(Frozen):
    """How an execution ended. Without a `snapshot` (it was terminated) nothing that was said in it is kept."""

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
    """Send the execution under way a message, a stop, or what the agent has become."""

    told: Message | StopRequest | DefinitionChange


SessionCommand = StartExecution | NotifyExecution
SessionTransition = tuple[SessionState, tuple[SessionCommand, ...]]


def new_session(given: SessionInput, agent_id: str, at: datetime) -> SessionState:
    """Return a session in which nothing has been said. Raises InvalidInput without a definition."""
    if given.definition is None:
        raise InvalidInput(
            f"there is no agent {agent_id}; give its definition (`--agent`), or begin one with `holdfast chat`"
        )
    return SessionState(
        agent_id=agent_id,
        definition=given.definition,
        subagents=given.subagents,
        settings=given.settings,
        updated_at=at,
    )


def branched(state: SessionState, place: Branch, found: Branched, at: datetime) -> SessionState:
    """Return the session as it goes on from another place of a conversation."""
    return replace(state, snapshot=found.snapshot, messages_before=found.messages_before, place=place, updated_at=at)


def continued(state: SessionState, latest: ExecutionRecord, at: datetime) -> SessionState:
    """Return a session that begins where one was terminated: with what the agent's latest record holds."""
    found = Branched(snapshot=latest.snapshot)
    return replace(
        branched(state, Branch(agent_id=state.agent_id, execution_id=latest.execution_id), found, at),
        executions=latest.number,
        last_id=latest.execution_id,
        last_status=latest.status,
        last_stop_reason=latest.stop_reason,
    )


def problem_with_message(state: SessionState, message: SessionMessage) -> tuple[str, str] | None:
    """Return why the message is not taken, if so: the refusal's type and what it tells."""
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
        text = f"execution {state.turn.execution_id} is under way and the policy is `reject`; send it later"
        return SESSION_REFUSED, text
    return _problem_with_room(state, message)


def _problem_with_room(state: SessionState, message: SessionMessage) -> tuple[str, str] | None:
    turn = state.turn
    # what an execution was told counts too: all of it comes back when that leaves nothing
    kept = (*state.queue, *state.unanswered, *((*turn.said, *turn.injected) if turn else ()))
    used = sum(len(canonical(each)) for each in (*kept, message))
    if len(kept) < QUEUE_MAX and used <= QUEUE_BYTES_MAX:
        return None
    text = f"{len(kept)} messages ({used:,} bytes with this one) wait, at most {QUEUE_MAX} and {QUEUE_BYTES_MAX:,} can"
    if turn is None and not state.queue:
        return SESSION_REFUSED, f"{text}; their executions left nothing: resume the session to repeat them, or clear it"
    return SESSION_REFUSED, f"{text}; send it later"


def sent(state: SessionState, message: SessionMessage, at: datetime) -> SessionTransition:
    """Take a message that `problem_with_message` has let pass; one that is known already changes nothing.

    What is to be injected waits as well where an earlier such message does, left over by an execution that ended: they
    are said in the order they came in.
    """
    if receipt(state, message.message_id) is not None:
        return state, ()
    turn = state.turn
    if turn is None:
        return replace(state, queue=(*state.queue, message), updated_at=at), ()
    match _policy(state, message):
        case "inject" if not any(_policy(state, each) == "inject" for each in state.queue):
            turn = replace(turn, injected=(*turn.injected, message))
            known = _known(state, (message,), turn.execution_id)
            return replace(state, turn=turn, known=known, updated_at=at), (NotifyExecution(told=spoken(message)),)
        case "interrupt":
            front = (*state.queue[: state.interrupting], message, *state.queue[state.interrupting :])
            state = replace(state, queue=front, interrupting=state.interrupting + 1, updated_at=at)
            return stopped(state, StopRequest(reason=INTERRUPTED, source="session"), at)
        case _:
            return replace(state, queue=(*state.queue, message), updated_at=at), ()


def stopped(state: SessionState, stop: StopRequest, at: datetime) -> SessionTransition:
    """End the execution under way; what waits goes on after it. Told once, and once more where `now` is sooner."""
    turn = state.turn
    if turn is None or turn.stop in ("now", stop.mode):
        return state, ()
    return replace(state, turn=replace(turn, stop=stop.mode), updated_at=at), (NotifyExecution(told=stop),)


def changed(state: SessionState, change: SessionChange, at: datetime) -> SessionTransition:
    """Make the agent what is asked for; an execution under way is told."""
    definition = change.definition or state.definition
    parts = {"system_prompt": change.system_prompt, "llm": change.llm, "budget": change.budget}
    given = {name: value for name, value in parts.items() if value is not None}
    definition = replace(definition, **given) if given else definition
    subagents = state.subagents if change.subagents is None else change.subagents
    settings = state.settings
    if change.while_running is not None:
        settings = replace(settings, while_running=change.while_running)
    before = (state.definition, state.subagents)
    state = replace(state, definition=definition, subagents=subagents, settings=settings, updated_at=at)
    if state.turn is None or (definition, subagents) == before:
        return state, ()
    budget = definition.budget if change.budget is not None or change.definition is not None else None
    told = DefinitionChange(definition=definition, subagents=subagents, budget=budget)
    return state, (NotifyExecution(told=told),)


def cleared(state: SessionState, at: datetime) -> SessionState:
    """Forget the conversation: now, or at the end of what runs. What waits stays, and so do records."""
    if state.turn is not None:
        return replace(state, clearing=True, updated_at=at)
    return _forgotten(replace(state, updated_at=at))


def problem_with_rewinding(state: SessionState) -> tuple[str, str] | None:
    """Return why the session cannot go back now, if so."""
    if state.closing:
        return SESSION_CLOSED, f"the session of agent {state.agent_id} is closed; fork it instead"
    if state.turn is not None:
        return SESSION_REFUSED, f"execution {state.turn.execution_id} is under way; stop it first"
    return None


def suspended(state: SessionState, at: datetime) -> SessionState:
    """Begin nothing until `resumed`; what runs goes on to its end."""
    return replace(state, suspended=True, updated_at=at)


def resumed(state: SessionState, at: datetime) -> SessionState:
    """Go on with what waits. What was said to executions that left nothing waits anew, each for a turn of its own."""
    return replace(_repeating(state), suspended=False, updated_at=at)


def closed(state: SessionState, stop: StopRequest | None, at: datetime) -> SessionTransition:
    """Take nothing any more. With a `stop` what runs ends now and what waits is kept; without, both get their turn."""
    state = replace(state, closing=True, at_once=state.at_once or stop is not None, suspended=False, updated_at=at)
    return stopped(state, stop, at) if stop is not None else (_repeating(state), ())


def _repeating(state: SessionState) -> SessionState:
    """Have what was said to executions that left nothing wait anew, each message for a turn of its own."""
    front, rest = state.queue[: state.interrupting], state.queue[state.interrupting :]
    return replace(state, queue=(*front, *state.unanswered, *rest), unanswered=())


def may_begin(state: SessionState) -> bool:
    """Return whether the next message can have its turn."""
    return state.turn is None and bool(state.queue) and not state.suspended and not state.at_once


def next_turn(state: SessionState, execution_id: str, at: datetime) -> SessionTransition:
    """Begin an execution with the next message, if one waits and nothing speaks against it."""
    if not may_begin(state):
        return state, ()
    said = (*state.unanswered, state.queue[0])
    start = SessionStart(
        snapshot=state.snapshot,
        previous_id=state.place.execution_id if state.place else None,
        messages_before=state.messages_before,
        executions=state.executions,
        messages=tuple(spoken(each) for each in said),
    )
    state = replace(
        state,
        turn=Turn(execution_id=execution_id, said=said),
        queue=state.queue[1:],
        interrupting=max(0, state.interrupting - 1),
        unanswered=(),
        known=_known(state, said, execution_id),
        executions=state.executions + 1,
        updated_at=at,
    )
    metadata: Mapping[str, JsonValue] = {name: value for each in said for name, value in each.metadata.items()}
    return state, (StartExecution(execution_id, state.definition, state.subagents, start, metadata),)


def ended(state: SessionState, end: TurnEnd) -> SessionState:
    """Take in how the execution under way has ended.

    Of what was injected, what it did not take waits again, before all but what interrupts. Where it left no snapshot,
    all that was said in it is said again with the next message: it was acknowledged, and no conversation has it.
    """
    turn = state.turn
    if turn is None or turn.execution_id != end.execution_id:
        return state
    taken = set(end.taken)
    left = tuple(each for each in turn.injected if each.message_id not in taken)
    state = replace(
        state,
        turn=None,
        queue=(*state.queue[: state.interrupting], *left, *state.queue[state.interrupting :]),
        last_id=end.execution_id,
        last_status=end.status,
        last_stop_reason=end.stop_reason,
        usage=state.usage + end.usage,
        cost=state.cost + end.cost,
        unpriced=joined_models(state.unpriced, end.unpriced),
        updated_at=end.at,
    )
    if end.snapshot is None:
        said = tuple(each for each in turn.injected if each.message_id in taken)
        state = replace(state, unanswered=(*turn.said, *said))
    else:
        place = Branch(agent_id=state.agent_id, execution_id=end.execution_id)
        state = replace(state, snapshot=end.snapshot, messages_before=end.messages_before, place=place)
    return _forgotten(state) if state.clearing else state


def end_as_recorded(turn: Turn, record: ExecutionRecord, at: datetime) -> TurnEnd:
    """Return the end of an execution that was terminated after it had been kept.

    Of what was injected nobody knows whether it was said: it waits again.
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
    """Return what is known of a message; none when it never came, or so long ago that it is forgotten."""
    running_id = state.turn.execution_id if state.turn else None
    for ahead, each in enumerate(state.queue):
        if each.message_id == message_id:
            return Receipt(message_id=message_id, state="waiting", running_id=running_id, ahead=ahead)
    for known in reversed(state.known):
        if known.message_id == message_id:
            under_way = known.execution_id == running_id
            return Receipt(
                message_id=message_id,
                state="running" if under_way else "answered",
                execution_id=known.execution_id,
                running_id=running_id,
            )
    return None


def spoken(message: SessionMessage) -> Message:
    """Return the message as it stands in the conversation, its metadata and its id among what the model never sees."""
    return Message(role="user", content=message.text, metadata={**message.metadata, MESSAGE_ID: message.message_id})


def _policy(state: SessionState, message: SessionMessage) -> WhileRunning:
    return message.while_running or state.settings.while_running


def _forgotten(state: SessionState) -> SessionState:
    return replace(state, snapshot=None, place=None, messages_before=0, unanswered=(), clearing=False)


def _known(state: SessionState, messages: Sequence[SessionMessage], execution_id: str) -> tuple[DeliveredMessage, ...]:
    ids = {each.message_id for each in messages}
    kept = tuple(each for each in state.known if each.message_id not in ids)
    added = (DeliveredMessage(message_id=each.message_id, execution_id=execution_id) for each in messages)
    return (*kept, *added)[-MESSAGE_IDS_KEPT:]
