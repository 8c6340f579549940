"""The names and shapes that cross process borders: between client, workflow and activities. Behaviour lives elsewhere.

Whoever talks to a workflow or an activity does so by these names; nobody imports the other side's code.
"""

from __future__ import annotations

from typing import Final

from pydantic import AwareDatetime, Field

from holdfast.core.budget import ExecutionBudget
from holdfast.core.definition import AgentDefinition
from holdfast.core.events import StopMode
from holdfast.core.frozen import Frozen
from holdfast.core.limits import REASON_CHARS_MAX
from holdfast.core.messages import Message
from holdfast.core.state import AgentState, ExecutionStatus, Id
from holdfast.core.steps import StepExecution
from holdfast.core.stopping import StopReason
from holdfast.core.tools import ToolTraits
from holdfast.core.transcript import Mark, Opening
from holdfast.core.usage import Usage

AGENT_EXECUTION: Final = "AgentExecution"
STOP_SIGNAL: Final = "stop"
STATE_QUERY: Final = "state"
DEBUG_QUERY: Final = "debug"
TRANSCRIPT_QUERY: Final = "transcript"
INFERENCE_ACTIVITY: Final = "inference"
RESOLVE_TOOLS_ACTIVITY: Final = "resolve_tools"
EXECUTION_FAILED: Final = "ExecutionFailed"
"""The type of the failure that a `failed` execution's workflow ends with."""

WORKER_SHUTDOWN: Final = "WorkerShutdown"
"""The type of the failure of a call that was under way when its worker shut down."""

DEFAULT_TASK_QUEUE: Final = "holdfast"

SEARCH_ATTRIBUTES: Final = {
    "AgentName": "Keyword",
    "AgentStatus": "Keyword",
    "AgentStopReason": "Keyword",
    "AgentSteps": "Int",
    "AgentTokens": "Int",
}
"""What one can list and count runs by, with Temporal's type names."""


class ExecutionInput(Frozen):
    """What starts an `AgentExecution`; the workflow's id is the execution's id. `budget` is the effective one."""

    agent_id: Id
    definition: AgentDefinition
    question: str
    budget: ExecutionBudget
    searchable: bool = True
    """False where the server does not know our search attributes."""


class StopRequest(Frozen):
    """The `stop` signal's input. `source` says who asks."""

    reason: str = Field(default="", max_length=REASON_CHARS_MAX)
    mode: StopMode = "now"
    source: str = Field(default="", max_length=200)


class ExecutionResult(Frozen):
    """What a workflow returns. `state` is whole when it is small; else the `state` query gives it, page by page."""

    execution_id: Id
    status: ExecutionStatus
    stop_reason: StopReason | None
    step_count: int
    usage: Usage
    final_response: str
    state: AgentState | None = None


class ExecutionFailure(Frozen):
    """The details of the failure that a `failed` execution ends with."""

    execution_id: Id
    reason: StopReason
    message: str


class PageRequest(Frozen):
    """Which part of a growing state to read: from these places on, not beyond those totals (none: all there is)."""

    messages_from: int = Field(default=0, ge=0)
    steps_from: int = Field(default=0, ge=0)
    messages_total: int | None = Field(default=None, ge=0)
    steps_total: int | None = Field(default=None, ge=0)


class StatePage(Frozen):
    """A piece of a state: everything that does not grow, and a run of messages and steps."""

    head: AgentState
    messages: tuple[Message, ...]
    steps: tuple[StepExecution, ...]
    messages_total: int
    steps_total: int


class TranscriptRequest(Frozen):
    """Which part of the transcript to read: the messages at places `start` up to, not including, `stop`."""

    start: int = Field(ge=0)
    stop: int = Field(ge=0)


class TranscriptPage(Frozen):
    """The opening and a run of messages from `start` on; fewer than asked for when the page is full."""

    opening: Opening
    start: int
    messages: tuple[Message, ...]


class InferenceInput(Frozen):
    """One model call: the transcript is `base` continued by `delta`.

    Where that falls short of `target`, the activity reads the rest from the workflow. `opening` travels with the
    first call only.
    """

    opening: Opening | None
    base: Mark
    delta: tuple[Message, ...]
    target: Mark
    max_output_tokens: int | None = None


class ToolsRequest(Frozen):
    """Which tools an agent wants of its worker; none means all. `at` is when it asks, in the workflow's time."""

    agent: str
    tools: tuple[str, ...] | None
    tools_deny: tuple[str, ...] = ()
    at: AwareDatetime


class ToolCatalog(Frozen):
    """The tools an agent gets, in the order the model is offered them, and the request's `at`.

    The moment comes back with the answer because the answer is recorded: a run's first task does not see the same
    time again when it is replayed, and what it decides by the time must not change.
    """

    at: AwareDatetime

    tools: tuple[ToolTraits, ...]
