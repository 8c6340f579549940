"""Execution events: the twenty-eight kinds that listeners receive, in the order they happen (docs/spec.md, section 6).

    AgentExecutionStarted  (McpToolsChanged)
      AgentStepStarted  InferenceRequestStarted  (ModelFellBack  InferenceRequestStarted)  InferenceResponseReceived
        (ApprovalRequested  ApprovalResolved)  ToolCallStarted  (InputRequested  InputResolved)
        (TodosChanged)  ToolCallCompleted | ToolCallBlocked
        (SubagentSpawned  SubagentCompleted)
      (AnswerJudged)  AgentStepCompleted  TokenUsageReported  (AgentWentBack)  ContinuationEvaluated  (AgentHandedOff)
    AgentExecutionStopped  (hooks of the end)  AgentExecutionCompleted | AgentExecutionFailed

    at any time: StopSignalReceived  MessageInjected  HookExecuted

An execution that resumes in the middle of a step emits AgentExecutionStarted (`resumed`) and goes on from there: that
step's AgentStepStarted is not repeated.

They inform and decide nothing. The events that drive the loop are in `core.loop.events`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Annotated, Final, Literal, get_args

from pydantic import Field, JsonValue

from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.hooks import Trigger
from holdfast.core.base.frozen import trusted
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.input_requests import InputAction, InputRequest
from holdfast.core.conversation.judgements import Judgement
from holdfast.core.conversation.messages import Message, ToolCall
from holdfast.core.conversation.steps import AgentStep, ErrorRecord, Fallback, InferenceResponse, ToolExecution
from holdfast.core.conversation.steps_back import StepBack
from holdfast.core.conversation.stop_reasons import StopReason, StopSignal
from holdfast.core.conversation.todos import Todo
from holdfast.core.conversation.verdicts import Approval, Decision


@dataclass(frozen=True, slots=True)
class Observed:
    """The envelope of every event. `step_number` is 0 before the first step."""

    agent_id: str
    execution_id: str
    parent_agent_id: str | None
    at: datetime
    step_number: int


@dataclass(frozen=True, slots=True)
class AgentExecutionStarted(Observed):
    """An execution began, or was taken up again (`resumed`)."""

    kind: Literal["AgentExecutionStarted"] = field(default="AgentExecutionStarted", kw_only=True)
    agent: str
    resumed: bool


@dataclass(frozen=True, slots=True)
class AgentStepStarted(Observed):
    """A step began."""

    kind: Literal["AgentStepStarted"] = field(default="AgentStepStarted", kw_only=True)


@dataclass(frozen=True, slots=True)
class InferenceRequestStarted(Observed):
    """The model is being asked; its answer may hold at most so many tokens, none leaves it to the provider."""

    kind: Literal["InferenceRequestStarted"] = field(default="InferenceRequestStarted", kw_only=True)
    max_output_tokens: int | None


@dataclass(frozen=True, slots=True)
class ModelFellBack(Observed):
    """A route could not answer; the step asks the next one of `llm.fallback`."""

    kind: Literal["ModelFellBack"] = field(default="ModelFellBack", kw_only=True)
    fallback: Fallback


@dataclass(frozen=True, slots=True)
class InferenceResponseReceived(Observed):
    """The model has answered."""

    kind: Literal["InferenceResponseReceived"] = field(default="InferenceResponseReceived", kw_only=True)
    response: InferenceResponse


@dataclass(frozen=True, slots=True)
class ToolCallStarted(Observed):
    """A tool call began to run."""

    kind: Literal["ToolCallStarted"] = field(default="ToolCallStarted", kw_only=True)
    call: ToolCall


@dataclass(frozen=True, slots=True)
class ToolCallCompleted(Observed):
    """A requested call has its answer: it succeeded, failed or was cancelled, even before it ran."""

    kind: Literal["ToolCallCompleted"] = field(default="ToolCallCompleted", kw_only=True)
    tool_execution: ToolExecution


@dataclass(frozen=True, slots=True)
class ToolCallBlocked(Observed):
    """A hook or a person kept a call from running."""

    kind: Literal["ToolCallBlocked"] = field(default="ToolCallBlocked", kw_only=True)
    tool_execution: ToolExecution


@dataclass(frozen=True, slots=True)
class AgentStepCompleted(Observed):
    """A step is complete; what it used includes its attempts that failed and its subagents."""

    kind: Literal["AgentStepCompleted"] = field(default="AgentStepCompleted", kw_only=True)
    step: AgentStep
    started_at: datetime
    completed_at: datetime
    duration_seconds: float
    usage: Usage


@dataclass(frozen=True, slots=True)
class TokenUsageReported(Observed):
    """What the step used, and the execution so far; costs in US dollars."""

    kind: Literal["TokenUsageReported"] = field(default="TokenUsageReported", kw_only=True)
    usage: Usage
    total: Usage
    cost: float
    total_cost: float
    unpriced: tuple[str, ...] = ()
    """The models whose tokens have no known price: they are not in `cost`."""
    total_unpriced: tuple[str, ...] = ()
    """The same of the execution so far: they are not in `total_cost`."""


@dataclass(frozen=True, slots=True)
class ContinuationEvaluated(Observed):
    """Whether the loop goes on after the step, and whether a hook's request overrode a stop."""

    kind: Literal["ContinuationEvaluated"] = field(default="ContinuationEvaluated", kw_only=True)
    should_stop: bool
    overridden: bool


@dataclass(frozen=True, slots=True)
class TodosChanged(Observed):
    """The agent's list of what is to do is another one: all of it as it is now."""

    kind: Literal["TodosChanged"] = field(default="TodosChanged", kw_only=True)
    todos: tuple[Todo, ...]


@dataclass(frozen=True, slots=True)
class AnswerJudged(Observed):
    """The judgement of a final answer has ended, also where it brought no verdict."""

    kind: Literal["AnswerJudged"] = field(default="AnswerJudged", kw_only=True)
    judgement: Judgement


@dataclass(frozen=True, slots=True)
class AgentWentBack(Observed):
    """The agent left steps of its own out of its sight, with a note."""

    kind: Literal["AgentWentBack"] = field(default="AgentWentBack", kw_only=True)
    step_back: StepBack


@dataclass(frozen=True, slots=True)
class AgentHandedOff(Observed):
    """The conversation went from one agent to another, for the reason that the model gave, if any."""

    kind: Literal["AgentHandedOff"] = field(default="AgentHandedOff", kw_only=True)
    from_agent: str
    to_agent: str
    reason: str


@dataclass(frozen=True, slots=True)
class McpToolsChanged(Observed):
    """A server of the agent's has other tools than when the agent last listed them, by the names the model knows.

    `more` is how many further ones are not named.
    """

    kind: Literal["McpToolsChanged"] = field(default="McpToolsChanged", kw_only=True)
    server: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    more: int = 0


@dataclass(frozen=True, slots=True)
class StopSignalReceived(Observed):
    """A stop signal arrived."""

    kind: Literal["StopSignalReceived"] = field(default="StopSignalReceived", kw_only=True)
    signal: StopSignal


@dataclass(frozen=True, slots=True)
class AgentExecutionStopped(Observed):
    """The loop has ended, and why: at every end, also a natural one (`completed`) and a failure (`error`)."""

    kind: Literal["AgentExecutionStopped"] = field(default="AgentExecutionStopped", kw_only=True)
    reason: StopReason
    message: str


@dataclass(frozen=True, slots=True)
class AgentExecutionCompleted(Observed):
    """All of the execution is finished, `completed` or `stopped`, and its last hooks have run."""

    kind: Literal["AgentExecutionCompleted"] = field(default="AgentExecutionCompleted", kw_only=True)
    answer: str
    status: ExecutionStatus
    reason: StopReason
    message: str


@dataclass(frozen=True, slots=True)
class AgentExecutionFailed(Observed):
    """All of the execution is finished, and it has `failed`."""

    kind: Literal["AgentExecutionFailed"] = field(default="AgentExecutionFailed", kw_only=True)
    error: ErrorRecord


@dataclass(frozen=True, slots=True)
class SubagentSpawned(Observed):
    """A subagent is being started for a call, which has the place `index` in its step.

    Where agents run on Temporal, its execution id is `named_id(execution_id, call_name(step_number, index))`.
    """

    kind: Literal["SubagentSpawned"] = field(default="SubagentSpawned", kw_only=True)
    call_id: str
    index: int
    agent: str
    task: str


@dataclass(frozen=True, slots=True)
class SubagentCompleted(Observed):
    """A subagent has ended, however it did.

    `cost`, in US dollars, is without the `unpriced` models.
    """

    kind: Literal["SubagentCompleted"] = field(default="SubagentCompleted", kw_only=True)
    call_id: str
    agent: str
    status: ExecutionStatus
    usage: Usage
    cost: float
    unpriced: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ApprovalRequested(Observed):
    """A call waits for a person; a decision that names its `digest` counts for this call alone."""

    kind: Literal["ApprovalRequested"] = field(default="ApprovalRequested", kw_only=True)
    call: ToolCall
    expires_at: datetime | None
    digest: str
    tool_digest: str | None = None
    """What an MCP server says of the tool (`McpTool.digest`); a decision that names it counts for no other version."""


@dataclass(frozen=True, slots=True)
class ApprovalResolved(Observed):
    """A person decided about a call, or it expired.

    `call` is the call as decided, `digest` its digest; if it was edited, `asked` are the arguments that the person was
    asked about.
    """

    kind: Literal["ApprovalResolved"] = field(default="ApprovalResolved", kw_only=True)
    call_id: str
    decision: Decision | Literal["expired"]
    by: str
    reason: str
    digest: str
    call: ToolCall
    asked: Mapping[str, JsonValue] | None

    @property
    def approval(self) -> Approval:
        """The decision as it is stored with the call."""
        facts = {"by": self.by, "reason": self.reason, "digest": self.digest, "asked": self.asked}
        return trusted(Approval, decision=self.decision, at=self.at, **facts)


@dataclass(frozen=True, slots=True)
class InputRequested(Observed):
    """The server of a running call asks a person for something; an answer that names its `digest` counts for it alone.

    `round` counts how often it has asked in this call.
    """

    kind: Literal["InputRequested"] = field(default="InputRequested", kw_only=True)
    call: ToolCall
    server: str
    request: InputRequest
    round: int
    expires_at: datetime
    digest: str


@dataclass(frozen=True, slots=True)
class InputResolved(Observed):
    """A person answered what the server asked for, or it expired; the values are the server's alone."""

    kind: Literal["InputResolved"] = field(default="InputResolved", kw_only=True)
    call_id: str
    server: str
    request: InputRequest
    action: InputAction | Literal["expired"]
    by: str
    digest: str


@dataclass(frozen=True, slots=True)
class MessageInjected(Observed):
    """A message came in while the execution runs."""

    kind: Literal["MessageInjected"] = field(default="MessageInjected", kw_only=True)
    message: Message


@dataclass(frozen=True, slots=True)
class HookExecuted(Observed):
    """A hook ran; `error` is what it raised, `answer` the text that it put in place of the model's."""

    kind: Literal["HookExecuted"] = field(default="HookExecuted", kw_only=True)
    hook: str
    trigger: Trigger
    error: ErrorRecord | None
    answer: str | None = None


AnyObserved = Annotated[
    AgentExecutionStarted
    | AgentStepStarted
    | InferenceRequestStarted
    | InferenceResponseReceived
    | ToolCallStarted
    | ToolCallCompleted
    | ToolCallBlocked
    | AgentStepCompleted
    | TokenUsageReported
    | ContinuationEvaluated
    | TodosChanged
    | AnswerJudged
    | ModelFellBack
    | AgentWentBack
    | AgentHandedOff
    | McpToolsChanged
    | StopSignalReceived
    | AgentExecutionStopped
    | AgentExecutionCompleted
    | AgentExecutionFailed
    | SubagentSpawned
    | SubagentCompleted
    | ApprovalRequested
    | ApprovalResolved
    | InputRequested
    | InputResolved
    | MessageInjected
    | HookExecuted,
    Field(discriminator="kind"),
]
"""The closed union of them, as it is written and read as JSON: each says its `kind`."""

KINDS: Final[Mapping[str, type[Observed]]] = MappingProxyType(
    {each.__name__: each for each in get_args(get_args(AnyObserved)[0])}
)
"""Every kind of event by its name, in the order above."""

Listener = Callable[[Observed], object]
"""Called with each event; its exceptions are caught, and an awaitable result is awaited."""
