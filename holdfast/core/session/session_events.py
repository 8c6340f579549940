"""What listeners are told of a session: seven kinds of events, each made of what the session was and has become.

    SessionCreated  (SessionForked)  MessageAccepted  SessionChanged  SessionSuspended  SessionResumed  SessionClosed

They tell; they decide nothing. What happens within the session's executions are events of those (`observed`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import Annotated, Final, Literal, get_args

from pydantic import Field

from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.base.bounds import STORY_WORDS_CHARS_MAX
from holdfast.core.base.frozen import Frozen, replace
from holdfast.core.conversation.display_text import on_a_line
from holdfast.core.session.session_state import SessionState
from holdfast.core.wire.session_contracts import Branch, SessionMessage, WhileRunning

SESSION_EVENTS_MAX: Final = 2_500
"""The most events that one Temporal run of a session holds, the latest. It has fewer, as the server takes 2,000 updates
in it; what it would hold no more is counted, and whoever reads is told."""

SessionPart = Literal["definition", "system_prompt", "llm", "budget", "subagents", "while_running", "conversation"]
"""What of a session can change: parts of the agent, its other settings as `definition`, or where it goes on from."""


@dataclass(frozen=True, slots=True)
class SessionEvent:
    """The envelope of every event: whose session, the agent's name as it is then, and on whose account it works.

    `temporal_run_id` is the Temporal run of the session's workflow in which it happened.
    """

    agent_id: str
    temporal_run_id: str
    agent: str
    tenant: str
    at: datetime


@dataclass(frozen=True, slots=True)
class SessionCreated(SessionEvent):
    """An agent has a session now. A session that was idle and comes back is no new one."""

    kind: Literal["SessionCreated"] = field(default="SessionCreated", kw_only=True)


@dataclass(frozen=True, slots=True)
class SessionForked(SessionEvent):
    """The session goes on from a place of another agent's conversation, the `origin`; it was created just before."""

    kind: Literal["SessionForked"] = field(default="SessionForked", kw_only=True)
    origin: Branch


@dataclass(frozen=True, slots=True)
class MessageAccepted(SessionEvent):
    """A message was acknowledged: it has its turn, whatever dies. `chars` is its length, `excerpt` its beginning."""

    kind: Literal["MessageAccepted"] = field(default="MessageAccepted", kw_only=True)
    message_id: str
    while_running: WhileRunning
    chars: int
    excerpt: str


@dataclass(frozen=True, slots=True)
class SessionChanged(SessionEvent):
    """Some parts of the session are others now. `place` is where its conversation stands, none after a clear."""

    kind: Literal["SessionChanged"] = field(default="SessionChanged", kw_only=True)
    changed: tuple[SessionPart, ...]
    place: Branch | None


@dataclass(frozen=True, slots=True)
class SessionSuspended(SessionEvent):
    """Nothing begins any more; an execution under way, if there is one, goes on to its end."""

    kind: Literal["SessionSuspended"] = field(default="SessionSuspended", kw_only=True)
    running_id: str | None


@dataclass(frozen=True, slots=True)
class SessionResumed(SessionEvent):
    """The suspension is undone: what waits has its turn."""

    kind: Literal["SessionResumed"] = field(default="SessionResumed", kw_only=True)
    waiting: int


@dataclass(frozen=True, slots=True)
class SessionClosed(SessionEvent):
    """Nothing is taken any more. So many messages wait; `at_once` says that they are kept and have no turn."""

    kind: Literal["SessionClosed"] = field(default="SessionClosed", kw_only=True)
    at_once: bool
    waiting: int


AnySessionEvent = Annotated[
    SessionCreated
    | SessionForked
    | MessageAccepted
    | SessionChanged
    | SessionSuspended
    | SessionResumed
    | SessionClosed,
    Field(discriminator="kind"),
]
"""The closed union of them, as it is written and read as JSON: each says its `kind`."""

SESSION_KINDS: Final[Mapping[str, type[SessionEvent]]] = MappingProxyType(
    {each.__name__: each for each in get_args(get_args(AnySessionEvent)[0])}
)
"""Every kind of event by its name, in the order above."""


class SessionEventsPage(Frozen):
    """A session's events from place `start` on, as many as fit; `total` is how many there are so far.

    A Temporal run has those since it began, at place `before`, of which it holds the latest: `first` is the place of
    the first that it holds. Those before are with the Temporal run `previous_run_id`.
    """

    before: int
    first: int
    start: int
    events: tuple[AnySessionEvent, ...]
    total: int
    previous_run_id: str | None = None


def session_events(before: SessionState | None, after: SessionState, run_id: str) -> Iterator[AnySessionEvent]:
    """Give what is to be told of one transition in the Temporal run `run_id`; a new session has no `before`."""
    facts = (after.agent_id, run_id, after.definition.name, after.settings.tenant, after.updated_at)
    if before is None:
        yield SessionCreated(*facts)
        if after.place is not None and after.place.agent_id != after.agent_id:
            yield SessionForked(*facts, origin=after.place)
        return
    there = {each.message_id for each in _unkept(before)}
    for message in _unkept(after):
        if message.message_id not in there:
            yield _accepted(partial(MessageAccepted, *facts), message, after)
    if changed := tuple(_changed(before, after)):
        place = None if after.clearing else after.place
        yield SessionChanged(*facts, changed=changed, place=place)
    if after.suspended and not before.suspended:
        yield SessionSuspended(*facts, running_id=after.turn.execution_id if after.turn else None)
    if before.suspended and not after.suspended and not after.closing:
        yield SessionResumed(*facts, waiting=len(after.queue))
    if after.closing and not before.closing:
        yield SessionClosed(*facts, at_once=after.at_once, waiting=len(after.queue))


def _accepted(make: Callable[..., MessageAccepted], message: SessionMessage, state: SessionState) -> MessageAccepted:
    return make(
        message_id=message.message_id,
        while_running=message.while_running or state.settings.while_running,
        chars=len(message.text),
        excerpt=on_a_line(message.text, STORY_WORDS_CHARS_MAX),
    )


def _unkept(state: SessionState) -> Iterator[SessionMessage]:
    """Give every message that no snapshot holds; a message comes in by being accepted, and in no other way."""
    yield from state.queue
    yield from state.unanswered
    if state.turn is not None:
        yield from state.turn.said
        yield from state.turn.injected


def _changed(before: SessionState, after: SessionState) -> Iterator[SessionPart]:
    old, new = before.definition, after.definition
    if _but_parts(old) != _but_parts(new):
        yield "definition"
    if old.system_prompt != new.system_prompt:
        yield "system_prompt"
    if old.llm != new.llm:
        yield "llm"
    if old.budget != new.budget:
        yield "budget"
    if before.subagents != after.subagents:
        yield "subagents"
    if before.settings.while_running != after.settings.while_running:
        yield "while_running"
    if _conversation_changed(before, after):
        yield "conversation"


def _but_parts(definition: AgentDefinition) -> AgentDefinition:
    """Return the definition without the parts that a change can name alone."""
    blank = AgentDefinition(name=definition.name)
    return replace(definition, system_prompt=blank.system_prompt, llm=blank.llm, budget=blank.budget)


def _conversation_changed(before: SessionState, after: SessionState) -> bool:
    """Return whether the session was cleared, or went to another place; an execution's end is neither."""
    if before.turn is not None:
        return after.clearing and not before.clearing
    return (before.place, before.snapshot) != (after.place, after.snapshot)
