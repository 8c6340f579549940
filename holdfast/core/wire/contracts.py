"""The contracts between client, workflows and activities: names and payload types. Behaviour lives elsewhere.

Callers of a workflow or an activity use these names; no side imports the other's code.
"""

from __future__ import annotations

import operator
from typing import Final, Literal

from pydantic import AwareDatetime, Field, JsonValue

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.context_view import RunFacts
from holdfast.core.agent.definition import LLM, AgentDefinition
from holdfast.core.agent.execution_state import Id
from holdfast.core.agent.hooks import HookContext, HookRun, HookTraits
from holdfast.core.agent.model import BackgroundAnswer
from holdfast.core.agent.state import AgentState
from holdfast.core.base.bounds import (
    CALL_ID_KEPT_CHARS_MAX,
    CARRIED_BYTES_MAX,
    CONTINUE_EVENTS,
    CONTINUE_EVENTS_MAX,
    ERROR_CHARS_MAX,
    REASON_CHARS_MAX,
    SOURCE_CHARS_MAX,
    TASK_CHARS_MAX,
    TENANT_CHARS_MAX,
)
from holdfast.core.base.call_digest import Digest
from holdfast.core.base.frozen import Frozen, is_none
from holdfast.core.base.json_form import SparseForm
from holdfast.core.base.json_values import JsonMap, ShallowMap
from holdfast.core.base.retries import MODEL_PATIENCE_SECONDS
from holdfast.core.base.usage import NOTHING_USED, Usage
from holdfast.core.conversation.attachments import Attachments
from holdfast.core.conversation.messages import Message
from holdfast.core.conversation.steps import InferenceResponse, StepExecution
from holdfast.core.conversation.stop_reasons import StopContext, StopMode
from holdfast.core.conversation.verdicts import Verdict
from holdfast.core.wire.execution_events import AnyObserved
from holdfast.core.wire.tool_catalog import ToolCatalog
from holdfast.core.wire.transcript_digest import TranscriptMark, TranscriptPrefix

AGENT_EXECUTION: Final = "AgentExecution"
STOP_SIGNAL: Final = "stop"
MESSAGE_SIGNAL: Final = "message"
APPROVAL_SIGNAL: Final = "approval"
SPENT_SIGNAL: Final = "spent"
"""Sent by a model call's activity with the usage of failed attempts, in case it is cancelled before the next one."""

MODEL_WAIT_SIGNAL: Final = "model_wait"
"""Sent by a model call's activity while it waits for the endpoint, ever less often (`retry_deadline`)."""

STATE_QUERY: Final = "state"
DEBUG_QUERY: Final = "debug"
TRANSCRIPT_QUERY: Final = "transcript"
BUFFER_QUERY: Final = "buffer"
EVENTS_QUERY: Final = "events"
BUDGET_QUERY: Final = "budget"
INFERENCE_ACTIVITY: Final = "inference"
SUMMARISE_ACTIVITY: Final = "summarise"
CANCEL_ANSWER_ACTIVITY: Final = "cancel_answer"
RUN_HOOKS_ACTIVITY: Final = "run_hooks"
RESOLVE_TOOLS_ACTIVITY: Final = "resolve_tools"
RESOLVE_MCP_ACTIVITY: Final = "resolve_mcp"
CALL_MCP_TOOL_ACTIVITY: Final = "call_mcp_tool"
TAKE_UP_ACTIVITY: Final = "take_up"
SNAPSHOT_QUERY: Final = "snapshot"
PART_QUERY: Final = "part"
RECORD_ACTIVITY: Final = "record_execution"
CHANGE_SIGNAL: Final = "change"
EXECUTION_FAILED: Final = "ExecutionFailed"
"""The type of the failure that a `failed` execution's workflow ends with."""

WORKER_SHUTDOWN: Final = "WorkerShutdown"
"""The type of the failure of a call that was under way when its worker shut down."""

REPLY_KIND: Final = "holdfast.reply"
"""The `kind` of a tool's result that says more than a text: an object with `text`, its `type` (`json`) and `stop`."""

TOOLS_BUSY: Final = "ToolsBusy"
"""The type of the failure of a tool call that found no slot; its detail is the number of attempts it used."""

DEFAULT_TASK_QUEUE: Final = "holdfast"


def waiting_queue(task_queue: str) -> str:
    """Return the task queue of tool calls that found no slot: the same workers serve it, with slots of its own."""
    return f"{task_queue}-waiting-tools"


RATE_LIMITED: Final = "-rate-limited-"
"""Stands between the workers' task queue and a route's name."""


def limited_queue(task_queue: str, route: str) -> str:
    """Return the task queue of calls to a route with rate limits, which the workers of `task_queue` serve besides."""
    return f"{task_queue}{RATE_LIMITED}{route}"


def route_of_queue(task_queue: str) -> str | None:
    """Return the route whose calls wait in that queue; none for any other queue."""
    return task_queue.partition(RATE_LIMITED)[2] or None


class StopRequest(Frozen):
    """The input of an execution's `stop` signal and a session's `stop` update.

    `source` names the requester, `context` adds facts; both go into the stop signal.
    """

    reason: str = Field(default="", max_length=REASON_CHARS_MAX)
    mode: StopMode = "now"
    source: str = Field(default="", max_length=SOURCE_CHARS_MAX)
    context: StopContext = Field(default_factory=dict[str, JsonValue])


class ApprovalDecision(Frozen):
    """The `approval` signal's input: a person's verdict on the waiting call of that id."""

    call_id: str = Field(max_length=CALL_ID_KEPT_CHARS_MAX)
    verdict: Verdict


class PageRequest(Frozen):
    """Which part of a growing state to read: from these places on, not beyond those totals (none: all there is)."""

    messages_from: int = Field(default=0, ge=0)
    steps_from: int = Field(default=0, ge=0)
    messages_total: int | None = Field(default=None, ge=0)
    steps_total: int | None = Field(default=None, ge=0)


HEAD_ALONE: Final = PageRequest(messages_total=0, steps_total=0)
"""Asks for a state without its messages and steps."""


class StatePage(Frozen):
    """A piece of a state: everything that does not grow, and a run of messages and steps.

    `messages` are of all sections, one after another; `sections` says how many each of them has.
    """

    head: AgentState
    messages: tuple[Message, ...]
    steps: tuple[StepExecution, ...]
    sections: tuple[int, ...]
    messages_total: int
    steps_total: int


class Recorded(Frozen):
    """What the `record` activity returns: the digest of the snapshot that an execution left."""

    snapshot: Digest


class RecordRequest(Frozen):
    """The `record` activity's input; the rest it reads from its workflow: the `snapshot`, and parts that are new."""

    agent: str
    task: str = Field(default="", max_length=TASK_CHARS_MAX)
    """The beginning of its question; empty where its run does not have it (any more)."""

    ended_at: AwareDatetime | None = None
    """The time of the state that is to be stored: an execution in a worker's cache may have ended another way."""


class PartRequest(Frozen):
    """Which sealed part to read: the one of that digest."""

    digest: Digest


class PartPage(Frozen):
    """The bytes of a sealed part: a JSON list."""

    data: str = Field(max_length=CARRIED_BYTES_MAX)


class SessionStart(SparseForm):
    """The start of a session's execution, besides the snapshot that comes as a second argument.

    `messages` are its new messages, the last of them the question; each has its `message_id` in its metadata.
    `messages_before` is how long the default section was before the agent's last execution: the model sees messages
    before that as it did then.
    """

    snapshot: Digest | None = None
    previous_id: Id | None = None
    """The agent's last execution."""
    messages_before: int = Field(default=0, ge=0)
    executions: int = Field(default=0, ge=0)
    """How many executions the agent has had, even if its conversation has gone back before some of them."""
    messages: tuple[Message, ...]


class DefinitionChange(Frozen):
    """The `change` signal's input: the agent's definition from the next step on. `budget` none leaves the budget."""

    definition: AgentDefinition
    subagents: tuple[AgentDefinition, ...] = ()
    budget: ExecutionBudget | None = None


class PickupTime(Frozen):
    """When a worker took the Temporal run up, in workflow time; recorded like a catalog's `at`."""

    at: AwareDatetime


class Segment(SparseForm):
    """A sealed segment: `count` items of a series, the steps' or a section's.

    `rank` is how often it was joined with others.
    """

    series: str | None
    count: int = Field(ge=1)
    rank: int = Field(default=0, ge=0)


class CarriedState(SparseForm):
    """A state as a workflow argument; its sealed segments are further arguments."""

    head: AgentState
    segments: tuple[Segment, ...]
    steps: tuple[StepExecution, ...]
    """Those after the sealed ones."""
    messages: tuple[tuple[Message, ...], ...]
    """The same of each section."""


class CarriedRun(CarriedState):
    """The input of a Temporal run that continues an execution.

    `told` marks how much of the conversation the model has been sent, `events_total` counts the events so far.
    """

    opening: TranscriptPrefix
    told: TranscriptMark | None
    catalog: ToolCatalog
    events_total: int
    previous_run_id: str
    taken: tuple[str, ...] = ()
    """The ids of the session's messages that were delivered to the execution."""
    answered: tuple[str, ...] = ()
    """The ids of the latest updates: one whose reply was lost may come again, in this run."""
    messages_before: int = Field(default=0, ge=0)
    """How many messages the default section had when the execution began."""


class ExecutionInput(SparseForm):
    """The input of an `AgentExecution`; the workflow's id is the execution's id. `budget` is the effective one.

    A Temporal run that continues another, or a `state`, has sealed segments as further arguments; the `question` of the
    former is empty, that of the latter can be.
    `attachments` are files that come with the question; the record store has them.
    `subagents` are all agents that the definition, or one of those, may call or hand over to. `origin` is the digest
    of the definition that a conversation began with, where `definition` is another: after a handoff, or with the prompt
    and the model of a state. `depth_left` is how deep agents may nest below this one. `metadata` are the run's own,
    and `tenant` is on whose account it works: its subagents get both, too.
    """

    format: Literal[1] = 1
    """Not written while it is the first: see `holdfast.core.base.stored_forms`."""
    agent_id: Id
    definition: AgentDefinition
    question: str
    attachments: Attachments = ()
    budget: ExecutionBudget
    subagents: tuple[AgentDefinition, ...] = ()
    origin: Digest | None = None
    metadata: ShallowMap = Field(default_factory=dict[str, JsonValue])
    tenant: str = Field(default="", max_length=TENANT_CHARS_MAX)
    parent_agent_id: Id | None = None
    depth_left: int | None = None
    searchable: bool = True
    """False where the server does not know our search attributes."""
    continue_events: int = Field(default=CONTINUE_EVENTS, ge=1, le=CONTINUE_EVENTS_MAX)
    """After how many history events the execution continues as new; 1: after every step."""
    session: SessionStart | None = None
    """The session's part of the input; none for an execution without a session."""
    carried: CarriedRun | None = None
    """The state carried over from the previous Temporal run; none for the first."""
    state: CarriedState | None = None
    """The state that the first Temporal run continues: an agent, or an execution under way. None for a new agent."""


class EventsRequest(Frozen):
    """Which execution events to read: from place `start` on, counted from the execution's beginning.

    `recorded` is the number, in the Temporal run's history, of the event with which its last recorded workflow task
    began. Events of later tasks are left out: a worker can be ahead of the history, and what it then tells may come at
    another moment, or in another order. None leaves nothing out.
    """

    start: int = Field(default=0, ge=0)
    recorded: int | None = Field(default=None, ge=0)


class EventsPage(Frozen):
    """Execution events from place `start` on, as many as fit; `total` is how many there are so far.

    A Temporal run has only the events since its start: `first` is the place of its first. The Temporal run
    `previous_run_id` has those before.
    """

    first: int
    start: int
    events: tuple[AnyObserved, ...]
    total: int
    previous_run_id: str | None = None


class TranscriptRequest(Frozen):
    """Which part of the transcript to read: the messages at places `start` up to, not including, `stop`."""

    start: int = Field(ge=0)
    stop: int = Field(ge=0)


class TranscriptPage(Frozen):
    """The opening and a run of messages from `start` on; fewer than asked for when the page is full."""

    opening: TranscriptPrefix
    start: int
    messages: tuple[Message, ...]


class InferenceInput(SparseForm):
    """One model call: the transcript is `base` continued by `delta`.

    Where that falls short of `target`, the activity reads the rest from the workflow. `opening` travels with the
    first call only. Numbers are those of `commands.CallModel` and the definition; `metadata` and `run` are for a
    compiler.
    """

    opening: TranscriptPrefix | None = None
    base: TranscriptMark
    delta: tuple[Message, ...]
    target: TranscriptMark
    max_output_tokens: int | None = None
    room: int | None = None
    input_weight: float = 1.0
    patience_seconds: float = MODEL_PATIENCE_SECONDS
    input_max: int | None = None
    metadata: ShallowMap | None = None
    run: RunFacts | None = None
    continues: Id | None = None
    """The previous execution of the session, whose transcript this one begins with; on the first call only."""
    llm: JsonMap | None = None
    """The fields of `LLM` in which this call differs from the definition (`LLM.difference`); none for none."""
    may_fall_back: bool = False
    offered: tuple[str, ...] | None = None
    """The only tools that this call offers; none for all of them."""
    prompt: str = ""
    """A text behind the conversation, for this call alone: the transcript does not have it."""


class InferenceAnswer(SparseForm):
    """The result of a model call: the answer, and the usage of the failed attempts before it.

    When not `complete`, the call was cancelled, and `response` is the partial answer, without tool calls.
    `seconds` is how long its last attempt took, by the worker's clock.
    """

    response: InferenceResponse
    complete: bool = True
    failed_usage: Usage = NOTHING_USED
    seconds: float = Field(default=0.0, ge=0)


class CallProgress(Frozen):
    """The heartbeat details of a model call: the progress of its answer. They are in no history.

    `chars` counts the characters of text so far, `tail` is the last of them, at most PROGRESS_CHARS_MAX. `usage` is the
    endpoint's latest figure for this attempt, `failed_usage` the sum of earlier attempts. `attempt` counts from 1;
    until it heartbeats, the server shows the details of the one before. The first began at `begun_at` by the server's
    clock; `failures` failed by themselves. `if_lost` is what this one counts if its worker is lost.
    """

    attempt: int = Field(default=1, ge=0)
    chars: int = Field(default=0, ge=0)
    tail: str = ""
    usage: Usage | None = None
    failed_usage: Usage = NOTHING_USED
    if_lost: Usage = NOTHING_USED
    begun_at: AwareDatetime | None = None
    failures: int = Field(default=0, ge=0)
    background: BackgroundAnswer | None = Field(default=None, exclude_if=is_none)
    """The answer under way at the provider: the next attempt resumes it, and only where it cannot, `if_lost` counts."""
    wait: str = Field(default="", exclude_if=operator.not_)
    """What the call waits for in its worker before it is made; empty where it does not."""


class ModelWait(Frozen):
    """The `model_wait` signal's input: a model call, by its activity's id, that waits for its endpoint.

    `attempt` is the latest that failed (from 1), `message` its error; the first began at `since`, the next one begins
    at `next_at`, both by the server's clock.
    """

    call: str
    attempt: int = Field(ge=1)
    message: str = Field(max_length=ERROR_CHARS_MAX)
    since: AwareDatetime
    next_at: AwareDatetime


class FailedAttemptsUsage(Frozen):
    """The `spent` signal's input: the usage so far of all failed attempts of a model call, by its activity's id.

    `background` is the answer that they have left under way at the provider; the usage has all that it can have.
    """

    call: str
    usage: Usage
    background: BackgroundAnswer | None = Field(default=None, exclude_if=is_none)


class SummaryInput(SparseForm):
    """The input of a summary call; the activity reads the buffer from the workflow. `llm` is the agent's.

    `patience_seconds` is the definition's; the other fields are those of `commands.SummariseBuffer`.
    """

    llm: LLM
    max_output_tokens: int | None = None
    room: int | None = None
    input_weight: float = 1.0
    patience_seconds: float = MODEL_PATIENCE_SECONDS
    input_max: int | None = None


class BufferPage(Frozen):
    """The messages of the request for a summary of the buffer."""

    messages: tuple[Message, ...]


class SummaryText(Frozen):
    """A summary and what it used."""

    text: str
    usage: Usage


class HooksRequest(Frozen):
    """The hooks to run at one trigger, and their context. The input of a local activity: it is in no history."""

    hooks: tuple[HookTraits, ...]
    context: HookContext
    changes_bytes_max: int


class HooksRan(Frozen):
    """The outcomes of the hooks, in order."""

    runs: tuple[HookRun, ...]
