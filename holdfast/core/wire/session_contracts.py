"""The contracts of sessions between client, workflows and activities: names and payload types.

A session is the workflow `AgentSession`; its id is the agent's id. Updates only acknowledge: to get an answer, query
the receipt and follow the execution that it names.
"""

from __future__ import annotations

from typing import Final, Literal

from pydantic import AwareDatetime, Field, JsonValue

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import LLM, AgentDefinition, Text
from holdfast.core.agent.execution_state import ExecutionStatus, Id
from holdfast.core.base.bounds import (
    CONTINUE_EVENTS,
    CONTINUE_EVENTS_MAX,
    MESSAGE_ID_CHARS_MAX,
    SECONDS_MAX,
    TENANT_CHARS_MAX,
)
from holdfast.core.base.call_digest import Digest
from holdfast.core.base.frozen import Frozen
from holdfast.core.base.json_values import ShallowMap
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.attachments import Attachments, has_none
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.wire.records import ExecutionRecord

SESSION_CHARS_MAX: Final = 4 * 1024 * 1024
"""The largest state that a session stores when it leaves the server: a queue of QUEUE_BYTES_MAX, definitions, ids."""

AGENT_SESSION: Final = "AgentSession"
OPEN_UPDATE: Final = "open"
SEND_UPDATE: Final = "send"
STOP_UPDATE: Final = "stop"
CHANGE_UPDATE: Final = "change"
CLEAR_UPDATE: Final = "clear"
SUSPEND_UPDATE: Final = "suspend"
RESUME_UPDATE: Final = "resume"
CLOSE_UPDATE: Final = "close"
REWIND_UPDATE: Final = "rewind"
SESSION_QUERY: Final = "session"
RECEIPT_QUERY: Final = "receipt"
FIND_SESSION_ACTIVITY: Final = "find_session"
KEEP_SESSION_ACTIVITY: Final = "keep_session"
BRANCH_ACTIVITY: Final = "branch_conversation"

SESSION_CLOSED: Final = "SessionClosed"
"""The type of the refusal of an update to a closed session."""

SESSION_MISSING: Final = "SessionMissing"
"""The type of the refusal of an agent that does not exist and has no definition in the request."""

SESSION_REFUSED: Final = "SessionRefused"
"""The type of any other refusal of an update: it cannot be done now, and the text says why."""

WhileRunning = Literal["queue", "inject", "interrupt", "reject"]
"""What happens with a message that arrives while an execution runs.

`queue`: an execution of its own, after those before it. `inject`: the model sees it with its next call. `interrupt`:
the execution is stopped, and one begins with the message. `reject`: it is refused.
"""

SessionStatus = Literal["idle", "running", "suspended", "closed"]
"""`suspended`: nothing begins; an execution under way goes on to its end. `closed`: nothing is taken any more."""


class Branch(Frozen):
    """A place to continue from: the end of an execution of the agent `agent_id`, or after `steps` of it."""

    agent_id: Id
    execution_id: Id
    steps: int | None = Field(default=None, ge=0)


class Branched(Frozen):
    """The snapshot of that place, and how many messages the default section had before its last execution."""

    snapshot: Digest
    messages_before: int = Field(default=0, ge=0)


class SessionSettings(Frozen):
    """How a session behaves. `tenant` is its fairness key; after `idle_seconds` without work it leaves the server.

    An idle session that has left loses nothing: the next message brings it back. `searchable` and `continue_events` are
    those of `ExecutionInput`.
    """

    while_running: WhileRunning = "queue"
    tenant: str = Field(default="", max_length=TENANT_CHARS_MAX)
    idle_seconds: float | None = Field(default=None, gt=0, le=SECONDS_MAX)
    searchable: bool = True
    continue_events: int = Field(default=CONTINUE_EVENTS, ge=1, le=CONTINUE_EVENTS_MAX)


class SessionMessage(Frozen):
    """The `send` update's input: a message. The same `message_id` twice is one message.

    `while_running` overrides the session's own policy for this message.
    """

    message_id: str = Field(min_length=1, max_length=MESSAGE_ID_CHARS_MAX)
    text: str
    while_running: WhileRunning | None = None
    metadata: ShallowMap = Field(default_factory=dict[str, JsonValue])
    """The metadata of the execution that begins with it, as `ExecutionInput.metadata`."""
    attachments: Attachments = Field(default=(), exclude_if=has_none)
    """Files that come with it; the record store has them."""


class Receipt(Frozen):
    """The state of a message: `waiting` for its turn, `running` in an execution, or `answered` when that has ended.

    `execution_id` is the execution that it belongs to, none while it waits; for one that was injected it can change.
    `running_id` is the execution that is under way now, which a waiting message waits for.
    """

    message_id: str
    state: Literal["waiting", "running", "answered"]
    execution_id: Id | None = None
    running_id: Id | None = None
    ahead: int = Field(default=0, ge=0)
    """How many messages wait before this one."""


class SessionChange(Frozen):
    """The `change` update's input; what is none stays. It takes effect at the next step of what runs.

    `definition` replaces the agent's, `subagents` those it can reach; the other three then replace parts of it.
    """

    definition: AgentDefinition | None = None
    subagents: tuple[AgentDefinition, ...] | None = None
    system_prompt: Text | None = None
    llm: LLM | None = None
    budget: ExecutionBudget | None = None
    while_running: WhileRunning | None = None


class SessionView(Frozen):
    """The public view of a session: the `session` query's answer. `cost` is in US dollars, for all executions."""

    agent_id: Id
    status: SessionStatus
    definition: AgentDefinition
    settings: SessionSettings
    running_id: Id | None = None
    last_id: Id | None = None
    last_status: ExecutionStatus | None = None
    last_stop_reason: StopReason | None = None
    executions: int = 0
    waiting: tuple[str, ...] = ()
    """The ids of the messages that wait for a turn, in order."""
    place: Branch | None = None
    """The place of the conversation: the end of an execution, or within one after a rewind."""
    subagents: tuple[AgentDefinition, ...] = ()
    """The agents that it can reach; only in the query's answer."""
    snapshot: Digest | None = None
    usage: Usage = Usage()
    cost: float = 0.0
    unpriced: tuple[str, ...] = ()
    """The models whose tokens have no known price; they are not in `cost`."""
    updated_at: AwareDatetime


class FindSession(Frozen):
    """A new session's request for the stored state of its agent."""

    agent_id: Id


class FoundSession(Frozen):
    """The stored state of an agent: its session as JSON, if that has left the server.

    `latest` is its latest record, where that is newer: then the session was terminated.
    """

    kept: str | None = Field(default=None, max_length=SESSION_CHARS_MAX)
    latest: ExecutionRecord | None = None


class SaveSession(Frozen):
    """The state of a session that leaves the server, as JSON, with its `updated_at`.

    An older one never replaces a newer one.
    """

    agent_id: Id
    state: str = Field(max_length=SESSION_CHARS_MAX)


class BranchRequest(Frozen):
    """A request for the place that a session continues from; its agent may be another one."""

    branch: Branch
    agent_id: Id
