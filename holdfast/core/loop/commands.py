"""Commands: what the core asks a driver to do. The driver reports back with events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import LLM, AgentDefinition
from holdfast.core.agent.hooks import HookContext, HookTraits
from holdfast.core.conversation.input_requests import InputResponse
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.conversation.steps import ToolExecution
from holdfast.core.tools.call_context import CallContext
from holdfast.core.wire.execution_events import Observed


@dataclass(frozen=True, slots=True)
class StartTimer:
    """Report `TimerFired` at this moment; takes the place of the timer before it."""

    fires_at: datetime


@dataclass(frozen=True, slots=True)
class CallModel:
    """Call the model with the conversation as it stands now. The answer may hold at most `max_output_tokens`.

    `room` is what the budget alone leaves for the answer. Failed attempts use it up (`usage.room_after`, with this
    `input_weight`): the rest bounds the next attempt, and without any there is none. `input_max` is the most tokens
    that the input can have; none where nothing depends on that.

    `llm` takes the place of the agent's for this call, after a fallback for instance. With `may_fall_back` another
    model answers when this one cannot: it is tried for a few seconds only (`retries.patience_of`). `offered` are the
    only tools that this call offers, none for all; `prompt` is a text behind the conversation, for this call alone.
    """

    step_number: int
    max_output_tokens: int | None
    room: int | None = None
    input_weight: float = 1.0
    input_max: int | None = None
    llm: LLM | None = None
    may_fall_back: bool = False
    offered: tuple[str, ...] | None = None
    prompt: str = ""


@dataclass(frozen=True, slots=True)
class SummariseBuffer:
    """Have the model summarise the store's buffer, before the model call of that step. Fields as for `CallModel`."""

    step_number: int
    max_output_tokens: int | None
    room: int | None = None
    input_weight: float = 1.0
    input_max: int | None = None


@dataclass(frozen=True, slots=True)
class Script:
    """How far a script has come: its calls that have `ended`, which are all so far, of at most `calls_max`."""

    ended: tuple[ToolExecution, ...]
    calls_max: int


@dataclass(frozen=True, slots=True)
class CallTool:
    """Run one tool call. `step_number` and `index` identify it across retries and restarts.

    `context` is for a tool that takes a `ToolContext`, and none for any other. A `round` above 0 goes on with a call
    whose server has asked for something, with the `responses` to that. With `script` the call runs one: report
    `ScriptAdvanced` with the calls that it makes next, or its end.
    """

    step_number: int
    index: int
    call: ToolCall
    context: CallContext | None = None
    round: int = 0
    responses: Mapping[str, InputResponse] = field(default_factory=dict[str, InputResponse])
    script: Script | None = None


@dataclass(frozen=True, slots=True)
class SpawnSubagent:
    """Run another agent for a call, within `budget`; agents may nest `depth_left` deep below it.

    `definition` is that of an agent which is called on the loop's own behalf; else `agent` names one of the subagents.
    """

    step_number: int
    index: int
    call_id: str
    agent: str
    task: str
    budget: ExecutionBudget
    depth_left: int
    definition: AgentDefinition | None = None


@dataclass(frozen=True, slots=True)
class HandOver:
    """Resolve the definition of another agent and report `DefinitionChanged` by its rules, or `HandoffRefused`."""

    agent: str


@dataclass(frozen=True, slots=True)
class RunHooks:
    """Run these hooks one after another, each seeing what the ones before it changed, up to the first that raises."""

    hooks: tuple[HookTraits, ...]
    context: HookContext
    name: str
    """The name of this hook call within its execution, the same after a restart."""
    changes_bytes_max: int
    """The most that their changes may take together, in bytes of JSON."""


@dataclass(frozen=True, slots=True)
class RequestApproval:
    """Let a person decide about a call; report `ApprovalExpired` at `expires_at` if nobody has.

    `call_count` is how many calls its step has.
    """

    step_number: int
    index: int
    call: ToolCall
    expires_at: datetime | None
    call_count: int


@dataclass(frozen=True, slots=True)
class RequestInput:
    """Let a person answer what a call's server asks for; report `InputExpired` at `expires_at` if nobody has."""

    step_number: int
    index: int
    call: ToolCall
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class CancelInFlight:
    """Cancel everything under way but the timer; late answers are ignored."""


@dataclass(frozen=True, slots=True)
class Emit:
    """Send an event to listeners; only when the rules are `observed`."""

    event: Observed


@dataclass(frozen=True, slots=True)
class Finish:
    """The execution has ended; its state is final."""


Command = (
    StartTimer
    | CallModel
    | SummariseBuffer
    | CallTool
    | SpawnSubagent
    | HandOver
    | RunHooks
    | RequestApproval
    | RequestInput
    | CancelInFlight
    | Emit
    | Finish
)
