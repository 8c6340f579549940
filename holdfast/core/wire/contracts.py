"""The names and shapes that cross process borders: between client, workflow and activities. Behaviour lives elsewhere.

Whoever talks to a workflow or an activity does so by these names; nobody imports the other side's code.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, Self

from pydantic import AwareDatetime, Field, JsonValue

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import LLM, AgentDefinition
from holdfast.core.agent.execution_state import Id
from holdfast.core.agent.hooks import HookContext, HookRun, HookTraits
from holdfast.core.agent.policies import ApprovalRule
from holdfast.core.agent.retries import MODEL_PATIENCE_SECONDS
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.tool_selection import HookChoice, ToolChoice
from holdfast.core.agent.tools import ToolTraits
from holdfast.core.base.bounds import (
    CALL_ID_KEPT_CHARS_MAX,
    CARRIED_BYTES_MAX,
    CONTINUE_EVENTS,
    CONTINUE_EVENTS_MAX,
    ERROR_CHARS_MAX,
    REASON_CHARS_MAX,
    SOURCE_CHARS_MAX,
    TASK_CHARS_MAX,
)
from holdfast.core.base.call_digest import Digest
from holdfast.core.base.frozen import Frozen
from holdfast.core.base.json_form import SparseForm
from holdfast.core.base.json_values import ShallowMap
from holdfast.core.base.usage import NOTHING_USED, Prices, Usage
from holdfast.core.conversation.messages import Message
from holdfast.core.conversation.steps import InferenceResponse, StepExecution
from holdfast.core.conversation.stop_reasons import StopContext, StopMode
from holdfast.core.conversation.verdicts import Verdict
from holdfast.core.wire.execution_events import AnyObserved
from holdfast.core.wire.transcript_digest import TranscriptMark, TranscriptPrefix

AGENT_EXECUTION: Final = "AgentExecution"
STOP_SIGNAL: Final = "stop"
MESSAGE_SIGNAL: Final = "message"
APPROVAL_SIGNAL: Final = "approval"
SPENT_SIGNAL: Final = "spent"
"""A model call's activity tells by it what its failed attempts used, in case it is cancelled before the next one."""

MODEL_WAIT_SIGNAL: Final = "model_wait"
"""A model call's activity reports by it that it waits for the endpoint, ever less often (`retry_deadline`)."""

STATE_QUERY: Final = "state"
DEBUG_QUERY: Final = "debug"
TRANSCRIPT_QUERY: Final = "transcript"
BUFFER_QUERY: Final = "buffer"
EVENTS_QUERY: Final = "events"
BUDGET_QUERY: Final = "budget"
INFERENCE_ACTIVITY: Final = "inference"
SUMMARISE_ACTIVITY: Final = "summarise"
RUN_HOOKS_ACTIVITY: Final = "run_hooks"
RESOLVE_TOOLS_ACTIVITY: Final = "resolve_tools"
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
"""The `kind` of a tool's result that is more than a result: an object with `text` and `stop`."""

TOOLS_BUSY: Final = "ToolsBusy"
"""The type of the failure of a tool call that found no slot; its detail is how many attempts it has taken itself."""

DEFAULT_TASK_QUEUE: Final = "holdfast"


def waiting_queue(task_queue: str) -> str:
    """Return where tool calls wait that find all slots taken: the same workers serve it, with slots for it alone."""
    return f"{task_queue}-waiting-tools"


class StopRequest(Frozen):
    """The input of an execution's `stop` signal and a session's `stop` update.

    `source` says who asks, `context` what they add; both stand in the signal that comes of it.
    """

    reason: str = Field(default="", max_length=REASON_CHARS_MAX)
    mode: StopMode = "now"
    source: str = Field(default="", max_length=SOURCE_CHARS_MAX)
    context: StopContext = Field(default_factory=dict[str, JsonValue])


class ApprovalDecision(Frozen):
    """The `approval` signal's input: what a person says of the call of that id that waits."""

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
    """The beginning of what it was asked; empty where its run does not know (any more)."""


class PartRequest(Frozen):
    """Which sealed part to read: the one of that digest."""

    digest: Digest


class PartPage(Frozen):
    """The bytes of a sealed part: a JSON list."""

    data: str = Field(max_length=CARRIED_BYTES_MAX)


class SessionStart(SparseForm):
    """What an execution that belongs to a session begins with, besides the snapshot that comes as a second argument.

    `messages` are what is said to it, the last of them the question; each has its `message_id` in its metadata.
    `messages_before` is how long the default section was before the agent's last execution: what stands before that
    looks to the model as it did then.
    """

    snapshot: Digest | None = None
    previous_id: Id | None = None
    """The agent's last execution."""
    messages_before: int = Field(default=0, ge=0)
    executions: int = Field(default=0, ge=0)
    """How many executions the agent has had, also where its conversation stands before some of them."""
    messages: tuple[Message, ...]


class DefinitionChange(Frozen):
    """The `change` signal's input: what the agent is from the next step on. `budget` none: that stays."""

    definition: AgentDefinition
    subagents: tuple[AgentDefinition, ...] = ()
    budget: ExecutionBudget | None = None


class ToolsRequest(Frozen):
    """Which tools and hooks an agent wants of its worker. `at` is when it asks, in workflow time."""

    agent: str
    tools: ToolChoice = ()
    tools_deny: tuple[str, ...] = ()
    hooks: HookChoice = ()
    capabilities: tuple[str, ...] = ()
    compiler: str | None = None
    approvals: tuple[ApprovalRule, ...] = ()
    model: str | None = None
    at: AwareDatetime

    @classmethod
    def of(cls, definition: AgentDefinition, at: datetime) -> Self:
        """Return what an agent of this definition asks for."""
        return cls(
            agent=definition.name,
            tools=definition.tools,
            tools_deny=definition.tools_deny,
            hooks=definition.hooks,
            capabilities=definition.capabilities,
            compiler=definition.context.compiler,
            approvals=definition.approvals,
            model=definition.llm.model,
            at=at,
        )


class ToolCatalog(Frozen):
    """The tools an agent gets, in the order the model is offered them, its hooks, and the request's `at`.

    `prompt` is what its capabilities add to its system prompt. `prices` is what the worker's price table says of its
    model, none where the table does not know it.

    The moment comes back with the answer because the answer is recorded: a run's first task does not see the same
    time again when it is replayed, and what it decides by the time must not change.
    """

    at: AwareDatetime
    tools: tuple[ToolTraits, ...]
    hooks: tuple[HookTraits, ...] = ()
    prompt: str = ""
    prices: Prices | None = None


class PickupTime(Frozen):
    """When a run was taken up by a worker, in workflow time; recorded, as a catalog's `at` is."""

    at: AwareDatetime


class Segment(SparseForm):
    """What a sealed segment holds: `count` things of a series, the steps' or a section's.

    `rank` is how often it was joined with others.
    """

    series: str | None
    count: int = Field(ge=1)
    rank: int = Field(default=0, ge=0)


class CarriedState(SparseForm):
    """A state as the arguments of a workflow hold it; its sealed segments come beside it."""

    head: AgentState
    segments: tuple[Segment, ...]
    steps: tuple[StepExecution, ...]
    """Those after the sealed ones."""
    messages: tuple[tuple[Message, ...], ...]
    """The same of each section."""


class CarriedRun(CarriedState):
    """What a run of an execution begins with when it goes on from another.

    `told` is how far the model has been told the conversation, `events_total` how many events were observed so far.
    """

    opening: TranscriptPrefix
    told: TranscriptMark | None
    catalog: ToolCatalog
    events_total: int
    previous_run_id: str
    taken: tuple[str, ...] = ()
    """The ids of a session's messages that the execution has been told."""
    answered: tuple[str, ...] = ()
    """The ids of the latest updates that were taken: one whose answer was lost may come again, in this run."""
    messages_before: int = Field(default=0, ge=0)
    """How many messages the default section had when the execution began."""


class ExecutionInput(SparseForm):
    """What starts an `AgentExecution`; the workflow's id is the execution's id. `budget` is the effective one.

    A run that goes on from another, or from a `state`, has the sealed segments as further arguments; the `question` of
    the former is empty, that of the latter can be.
    `subagents` are all agents that the definition, or one of those, may call. `depth_left` is how deep agents may nest
    below this one. `metadata` are what the run is given about itself; its subagents get them, too.
    """

    agent_id: Id
    definition: AgentDefinition
    question: str
    budget: ExecutionBudget
    subagents: tuple[AgentDefinition, ...] = ()
    metadata: ShallowMap = Field(default_factory=dict[str, JsonValue])
    parent_agent_id: Id | None = None
    depth_left: int | None = None
    searchable: bool = True
    """False where the server does not know our search attributes."""
    continue_events: int = Field(default=CONTINUE_EVENTS, ge=1, le=CONTINUE_EVENTS_MAX)
    """How many events of history a run may have before the execution goes on in a new one; 1: after every step."""
    session: SessionStart | None = None
    """What a session has it begin with; none for an execution that stands alone."""
    carried: CarriedRun | None = None
    """What the run before this one hands on; none for an execution's first run."""
    state: CarriedState | None = None
    """What an execution's first run goes on from: an agent, or an execution under way. None for a new agent."""


class EventsRequest(Frozen):
    """Which of an execution's observed events to read: from place `start` on, counted from its beginning."""

    start: int = Field(default=0, ge=0)


class EventsPage(Frozen):
    """Observed events from place `start` on, as many as fit; `total` is how many there are so far.

    A run that continues an earlier one keeps the events since then alone: `first` is the place of the first it has.
    Those before are with the run `previous_run_id`.
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
    first call only. Numbers are those of `commands.CallModel` and the definition, `metadata` a compiler's agent's.
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
    continues: Id | None = None
    """Of a session's execution, on its first call: the one before, whose transcript this one's begins with."""


class InferenceAnswer(SparseForm):
    """What a model call comes to: the answer, and what attempts that failed before it used.

    Not `complete`: the call was cancelled, and `response` is what had come of it, without tool calls.
    `seconds` are those that its last attempt took, by the worker's clock.
    """

    response: InferenceResponse
    complete: bool = True
    failed_usage: Usage = NOTHING_USED
    seconds: float = Field(default=0.0, ge=0)


class CallProgress(Frozen):
    """The heartbeat details of a model call: how far its answer has come. They are in no history.

    `chars` counts the characters of text so far, `tail` is the last of them, at most PROGRESS_CHARS_MAX. `usage` is the
    endpoint's latest word on this attempt, `failed_usage` the sum of what earlier attempts used. `attempt` counts from
    1: until an attempt tells of itself, the server shows what the one before told. The first began at `begun_at` of the
    server's clock; `failures` failed by themselves. `if_lost` is what this one counts if nothing more is heard of it.
    """

    attempt: int = Field(default=1, ge=0)
    chars: int = Field(default=0, ge=0)
    tail: str = ""
    usage: Usage | None = None
    failed_usage: Usage = NOTHING_USED
    if_lost: Usage = NOTHING_USED
    begun_at: AwareDatetime | None = None
    failures: int = Field(default=0, ge=0)


class ModelWait(Frozen):
    """The `model_wait` signal's input: a model call, by its activity's id, whose endpoint is waited for.

    `attempt` is the latest that failed (from 1), `message` says why; the first began at `since`, the next one begins at
    `next_at`, both by the server's clock.
    """

    call: str
    attempt: int = Field(ge=1)
    message: str = Field(max_length=ERROR_CHARS_MAX)
    since: AwareDatetime
    next_at: AwareDatetime


class FailedAttemptsUsage(Frozen):
    """The `spent` signal's input: what all failed attempts of a model call, by its activity's id, have used so far."""

    call: str
    usage: Usage


class SummaryInput(SparseForm):
    """One summary: what to summarise, the activity reads from the workflow. `llm` is the agent's.

    `patience_seconds` is the definition's; the other fields are those of `commands.SummariseBuffer`.
    """

    llm: LLM
    max_output_tokens: int | None = None
    room: int | None = None
    input_weight: float = 1.0
    patience_seconds: float = MODEL_PATIENCE_SECONDS
    input_max: int | None = None


class BufferPage(Frozen):
    """What a model is asked in order to summarise the buffer."""

    messages: tuple[Message, ...]


class SummaryText(Frozen):
    """A summary and what it used."""

    text: str
    usage: Usage


class HooksRequest(Frozen):
    """The hooks of one place to be run, and what they may know. A local activity's input: it is in no history."""

    hooks: tuple[HookTraits, ...]
    context: HookContext
    changes_bytes_max: int


class HooksRan(Frozen):
    """What came of them, in order."""

    runs: tuple[HookRun, ...]
