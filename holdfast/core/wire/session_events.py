"""Session events: seven kinds, each derived from the session before and after a transition.

    SessionCreated  (SessionForked)  MessageAccepted  SessionChanged  SessionSuspended  SessionResumed  SessionClosed

They inform and decide nothing. The session's executions have events of their own (`execution_events`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Annotated, Final, Literal, get_args

from pydantic import Field

from holdfast.core.base.frozen import Frozen
from holdfast.core.wire.session_contracts import Branch, WhileRunning

SESSION_EVENTS_MAX: Final = 2_500
"""The most events that one Temporal run of a session holds, the latest. It has fewer in practice, as the server takes
2,000 updates in it; dropped events are counted, and readers see the count."""

SessionPart = Literal["definition", "system_prompt", "llm", "budget", "subagents", "while_running", "conversation"]
"""The parts of a session that can change; `definition` stands for all other fields of the agent."""


@dataclass(frozen=True, slots=True)
class SessionEvent:
    """The envelope of every event: the session's agent, its name at that time, and the tenant.

    `temporal_run_id` is the Temporal run of the session's workflow in which it happened.
    """

    agent_id: str
    temporal_run_id: str
    agent: str
    tenant: str
    at: datetime


@dataclass(frozen=True, slots=True)
class SessionCreated(SessionEvent):
    """An agent has a session now. A session that comes back from the store is not a new one."""

    kind: Literal["SessionCreated"] = field(default="SessionCreated", kw_only=True)


@dataclass(frozen=True, slots=True)
class SessionForked(SessionEvent):
    """The session continues from a place of another agent's conversation, the `origin`; it was created just before."""

    kind: Literal["SessionForked"] = field(default="SessionForked", kw_only=True)
    origin: Branch


@dataclass(frozen=True, slots=True)
class MessageAccepted(SessionEvent):
    """A message was acknowledged: it will get its turn. `chars` is its length, `excerpt` its beginning."""

    kind: Literal["MessageAccepted"] = field(default="MessageAccepted", kw_only=True)
    message_id: str
    while_running: WhileRunning
    chars: int
    excerpt: str


@dataclass(frozen=True, slots=True)
class SessionChanged(SessionEvent):
    """Some parts of the session changed. `place` is the place of its conversation, none after a clear."""

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
    """The suspension has ended: waiting messages get their turns."""

    kind: Literal["SessionResumed"] = field(default="SessionResumed", kw_only=True)
    waiting: int


@dataclass(frozen=True, slots=True)
class SessionClosed(SessionEvent):
    """Nothing more is accepted. `waiting` counts the queue; with `at_once` it is kept without turns."""

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
