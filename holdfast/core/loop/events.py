"""Events: what happens to an execution, as facts in the past tense. They bring times and ids; the core makes none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from pydantic import JsonValue

from holdfast.core.agent.budget import ExecutionBudget, TreeUse
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.hooks import HookRun, Trigger
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.attachments import Attachment
from holdfast.core.conversation.input_requests import InputAnswer, InputRequest
from holdfast.core.conversation.messages import Message
from holdfast.core.conversation.steps import ErrorRecord, InferenceResponse, ResultType
from holdfast.core.conversation.stop_reasons import StopMode, StopSignal
from holdfast.core.conversation.verdicts import Verdict
from holdfast.core.tools.mcp_changes import PinnedCatalog
from holdfast.core.wire.script_contracts import ScriptCall


@dataclass(frozen=True, slots=True)
class ExecutionStarted:
    """A request came in. `budget` is the effective one.

    A state whose execution is in progress resumes it: id and budget stay, `messages` are added.
    `metadata` are added to the agent's; a value of none removes an entry. `tenant` is on whose account it works.
    """

    execution_id: str
    messages: tuple[Message, ...]
    budget: ExecutionBudget
    at: datetime
    metadata: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    mcp: PinnedCatalog | None = None
    """The tools of its MCP servers, and what changed of them since the agent's last execution."""
    tenant: str = ""


@dataclass(frozen=True, slots=True)
class ModelAnswered:
    """The model call of the step under way came back.

    `failed_usage` is the usage of the failed attempts before it.
    """

    response: InferenceResponse
    at: datetime
    failed_usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class ModelFailed:
    """The model call failed for good, after its retries. `lost` is as for `ModelCancelled`."""

    error: ErrorRecord
    at: datetime
    failed_usage: Usage = field(default_factory=Usage)
    lost: bool = False


@dataclass(frozen=True, slots=True)
class ModelCancelled:
    """The model call under way (or the summary) was cancelled, as `CancelInFlight` asked for.

    `partial` is the partial answer, without tool calls; none when nothing is known of it. When `lost` is true the last
    attempt was sent and its usage is unknown: it counts as the most that it can have used.
    """

    partial: InferenceResponse | None
    at: datetime
    failed_usage: Usage = field(default_factory=Usage)
    lost: bool = False


@dataclass(frozen=True, slots=True)
class BufferSummarised:
    """The messages in the buffer have been summarised. `failed_usage` as for `ModelAnswered`."""

    text: str
    usage: Usage
    at: datetime
    failed_usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class SummaryFailed:
    """The buffer could not be summarised; it stays as it is, and the model goes on seeing it.

    `lost` is as for `ModelCancelled`.
    """

    error: ErrorRecord
    at: datetime
    failed_usage: Usage = field(default_factory=Usage)
    lost: bool = False


@dataclass(frozen=True, slots=True)
class ToolReturned:
    """A tool call ended well; `call_id` is the call's id within the step.

    `stop` is the reason for which the tool asks to stop, `stop_context` its facts. `result_type` is `json` where the
    result is the JSON of a value, `structured` that JSON where the result is in other words. `metadata` are added to
    the agent's; a value of none removes an entry. Any worker in any language can have written them: they are checked
    here. `attachments` are the files that the store has of it. `mcp_process` is the
    id of the process of an MCP server that answered, where that remembers something. `workspace` is the digest of the
    files that the call has left in the run's workspace.
    """

    call_id: str
    result: str
    started_at: datetime
    at: datetime
    stop: str | None = None
    stop_context: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    result_type: ResultType = "text"
    metadata: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    structured: str | None = None
    attachments: tuple[Attachment, ...] = ()
    mcp_process: str = ""
    workspace: str | None = None


@dataclass(frozen=True, slots=True)
class ToolFailed:
    """A tool call ended in an error, after its retries."""

    call_id: str
    error: ErrorRecord
    started_at: datetime
    at: datetime


@dataclass(frozen=True, slots=True)
class ScriptAdvanced:
    """The script of a running call makes these calls, at least one, and waits for all of them."""

    call_id: str
    calls: tuple[ScriptCall, ...]
    at: datetime


@dataclass(frozen=True, slots=True)
class SubagentReturned:
    """A subagent ended. `answer` is its final response, or its latest text."""

    call_id: str
    status: ExecutionStatus
    answer: str
    why: str
    used: TreeUse
    started_at: datetime
    at: datetime


def subagent_cancelled(call_id: str, at: datetime) -> SubagentReturned:
    """Return the event of a cancelled subagent of which nothing is known."""
    return SubagentReturned(call_id, ExecutionStatus.STOPPED, "", "", TreeUse(), started_at=at, at=at)


@dataclass(frozen=True, slots=True)
class HooksReturned:
    """The hooks of one place have run, one after another up to the first that raised."""

    trigger: Trigger
    call_id: str | None
    runs: tuple[HookRun, ...]
    at: datetime


@dataclass(frozen=True, slots=True)
class ApprovalDecided:
    """A person decided about a call that waits.

    `problem` is the driver's objection to edited arguments, by the tool's schema: the call still waits.
    """

    call_id: str
    verdict: Verdict
    at: datetime
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class DecisionUnreadable:
    """A signal held no decision, or no answer that fits: nothing changes but a warning."""

    problem: str
    at: datetime


@dataclass(frozen=True, slots=True)
class ApprovalExpired:
    """Nobody decided about a call in time."""

    call_id: str
    at: datetime


@dataclass(frozen=True, slots=True)
class InputNeeded:
    """The server of a running call asks a person for something first; without `requests` the call goes on at once.

    Nobody has more than `seconds_max` to answer. The driver has the state that the server wants back.
    """

    call_id: str
    server: str
    requests: tuple[InputRequest, ...]
    seconds_max: float
    started_at: datetime
    at: datetime


@dataclass(frozen=True, slots=True)
class InputAnswered:
    """A person answered what a call waits for."""

    call_id: str
    answer: InputAnswer
    at: datetime


@dataclass(frozen=True, slots=True)
class InputExpired:
    """Nobody answered what a call waits for in time."""

    call_id: str
    at: datetime


WaitEvent = ApprovalDecided | ApprovalExpired | InputNeeded | InputAnswered | InputExpired
"""What concerns a call that waits for a person, or begins to."""


@dataclass(frozen=True, slots=True)
class MessageArrived:
    """A message came in while the execution runs; the model sees it with its next call."""

    message: Message
    at: datetime


@dataclass(frozen=True, slots=True)
class StopRequested:
    """Someone outside wants the execution to stop."""

    signal: StopSignal
    mode: StopMode
    at: datetime


@dataclass(frozen=True, slots=True)
class TimerFired:
    """The time limit struck."""

    at: datetime


@dataclass(frozen=True, slots=True)
class RunContinued:
    """A new Temporal run continues the execution between two steps: nothing was under way."""

    at: datetime


@dataclass(frozen=True, slots=True)
class StepDue:
    """The next step may begin, where the loop rests between two steps (`Rules.step_by_step`)."""

    at: datetime


@dataclass(frozen=True, slots=True)
class DefinitionChanged:
    """The agent has a new definition: between two steps, nothing under way, applied by rules of that definition.

    `definition` is as the driver resolved it: with the prompt of its capabilities, and the prices of its model. The
    next commands follow the new rules. `budget` replaces the execution's, none leaves it; limits count from the
    execution's start. At any other time the event changes nothing.

    `handoff` is true for the end of a `HandOver`; else somebody changed the agent, and handoffs before that are over.
    """

    definition: AgentDefinition
    at: datetime
    budget: ExecutionBudget | None = None
    handoff: bool = False
    mcp: PinnedCatalog | None = None


@dataclass(frozen=True, slots=True)
class HandoffRefused:
    """The conversation could not be handed over, for the reason in `error`: the agent goes on itself."""

    error: ErrorRecord
    at: datetime


@dataclass(frozen=True, slots=True)
class ChangeRefused:
    """A change of the definition failed, for the reason in `error`: the agent stays as it is, with a warning."""

    error: ErrorRecord
    at: datetime


@dataclass(frozen=True, slots=True)
class DriverFailed:
    """The driver cannot go on (a limit of the engine, a fault of its own).

    `lost` is whether a model call that is under way may have begun: it then counts as all that it was allowed.
    """

    error: ErrorRecord
    at: datetime
    lost: bool = True


Event = (
    ExecutionStarted
    | ModelAnswered
    | ModelFailed
    | ModelCancelled
    | BufferSummarised
    | SummaryFailed
    | ToolReturned
    | ToolFailed
    | ScriptAdvanced
    | SubagentReturned
    | HooksReturned
    | ApprovalDecided
    | ApprovalExpired
    | InputNeeded
    | InputAnswered
    | InputExpired
    | DecisionUnreadable
    | MessageArrived
    | StopRequested
    | TimerFired
    | RunContinued
    | StepDue
    | DefinitionChanged
    | HandoffRefused
    | ChangeRefused
    | DriverFailed
)
