"""The state of one execution as a value, and the ids derived from its id."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from operator import not_
from typing import Annotated, Final, Literal
from uuid import UUID, uuid5

from pydantic import AfterValidator, AwareDatetime, Field, JsonValue

from holdfast.core.agent.budget import BudgetUse, ExecutionBudget, TreeUse
from holdfast.core.agent.definition import LLM
from holdfast.core.agent.hooks import Trigger
from holdfast.core.agent.policies import ResponseFormat, TextFormat
from holdfast.core.base.append_list import AppendList
from holdfast.core.base.bounds import SECONDS_MAX, TENANT_CHARS_MAX
from holdfast.core.base.call_digest import Digest
from holdfast.core.base.frozen import Frozen, is_empty, is_none, replace
from holdfast.core.base.json_form import JsonForm
from holdfast.core.base.json_values import JsonMap
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.handoffs import Handoff, Handover
from holdfast.core.conversation.messages import Message, MessageStore
from holdfast.core.conversation.steps import AgentStep, ErrorRecord, OpenCall, StepExecution
from holdfast.core.conversation.steps_back import STEPS_BACK_MAX, StepBack
from holdfast.core.conversation.stop_reasons import Continuation
from holdfast.core.conversation.todos import TODOS_MAX, Todo

INPUT_MARK: Final = "-input-"


class ExecutionStatus(StrEnum):
    """Where an execution stands (docs/spec.md, section 2)."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def is_terminal(self) -> bool:
        """True when nothing can happen any more."""
        return self in (ExecutionStatus.COMPLETED, ExecutionStatus.STOPPED, ExecutionStatus.FAILED)


def checked_id(value: str) -> str:
    """Return `value` in canonical UUID form; ValueError naming it otherwise."""
    try:
        parsed = UUID(value)
    except ValueError:
        raise ValueError(f"{value[:80]!r} is not a UUID") from None
    if str(parsed) != value.lower():
        raise ValueError(f"{value[:80]!r} is not a UUID in the form 8-4-4-4-12")
    return str(parsed)


Id = Annotated[str, AfterValidator(checked_id)]


def step_id(execution_id: str, number: int) -> str:
    """Return the id of step `number`: a function of the execution, so that a replayed or repeated step keeps it."""
    return str(uuid5(_space(execution_id), f"step/{number}"))


def call_name(number: int, index: int | None = None) -> str:
    """Return the name of the model call of step `number`, or of the tool call at place `index` of that step."""
    return f"step-{number}-model" if index is None else f"step-{number}-tool-{index}"


def input_name(call: str, round_number: int) -> str:
    """Return the name of the call that goes on with `call` after its server has asked for something; 0: it begins."""
    return f"{call}{INPUT_MARK}{round_number}" if round_number else call


def without_round(name: str) -> str:
    """Return the name of the call that one of that name goes on with: both have one idempotency key."""
    return name.partition(INPUT_MARK)[0]


def model_step(name: str) -> int | None:
    """Return the number of the step whose model call, or summary before it, has that name; none for any other."""
    match name.split("-"):
        case ["step", number, "model" | "summary"] if number.isdecimal():
            return int(number)
        case _:
            return None


def tool_call_place(name: str) -> tuple[int, int] | None:
    """Return the number of the step, and the place in it, of the tool call that has that name; none for any other."""
    match without_round(name).split("-"):
        case ["step", number, "tool", place] if number.isdecimal() and place.isdecimal():
            return int(number), int(place)
        case _:
            return None


def named_id(execution_id: str, name: str) -> str:
    """Return the id of the call of that `name`: its record's id and its idempotency key, equally stable."""
    return str(uuid5(_space(execution_id), name))


@lru_cache(maxsize=1_000)
def _space(execution_id: str) -> UUID:
    """Return the parsed id from which others are derived; parsing it each time would take as long as deriving."""
    return UUID(execution_id)


class AgentContext(Frozen):
    """What the model is given: the conversation and the prompt; and metadata that it never sees."""

    store: MessageStore = MessageStore()
    metadata: JsonMap = Field(default_factory=dict[str, JsonValue])
    system_prompt: str = ""
    response_format: ResponseFormat = TextFormat()


class ExecutionState(JsonForm):
    """The state of one execution: its archived steps, what it has used, and what is under way.

    Under way is the step with its open calls, and at most one of: the hooks of one place, a summary. `cost` is in US
    dollars. `paused_seconds` do not count toward `max_seconds`; since `paused_at` the execution waits for a person.
    """

    execution_id: Id
    status: ExecutionStatus
    started_at: AwareDatetime
    completed_at: AwareDatetime | None = None
    budget: ExecutionBudget = ExecutionBudget()
    tenant: str = Field(default="", max_length=TENANT_CHARS_MAX, exclude_if=not_)
    """On whose account it works; empty where nobody said. Left out then: recorded snapshots keep their digests."""
    step_executions: AppendList[StepExecution] = Field(default_factory=AppendList[StepExecution])
    usage: Usage = Usage()
    cost: float = Field(default=0.0, ge=0)
    subagent_steps: int = Field(default=0, ge=0)
    """How many steps its subagents took, and those below them; they count toward `max_steps` (a tree has one limit)."""
    subagents_started: int = Field(default=0, ge=0)
    handoffs: tuple[Handoff, ...] = ()
    """The handoffs of the conversation, in order."""
    handing_over: Handoff | None = None
    """The handoff that the step under way asked for: it takes place once the step is complete."""
    steps_back: tuple[StepBack, ...] = Field(default=(), max_length=STEPS_BACK_MAX, exclude_if=is_empty)
    """The agent's returns to earlier steps of its own, in order; the steps that they left out stay in the record."""
    going_back: StepBack | None = Field(default=None, exclude_if=is_none)
    """The return that the step under way asked for: it takes place once the step is complete."""
    next_input_max: int = Field(default=0, ge=0)
    """The most tokens that the next model call can send (`token_bounds`); counted where tokens or cost are limited."""
    mcp_processes: JsonMap = Field(default_factory=dict[str, JsonValue], exclude_if=not_)
    """Of each MCP server that remembers and runs beside a worker, the id of the process that answered last."""
    workspace_base: Digest | None = Field(default=None, exclude_if=is_none)
    """The snapshot of the workspace's files that it began with; none for no files."""
    todos_base: tuple[Todo, ...] = Field(default=(), max_length=TODOS_MAX, exclude_if=is_empty)
    """The agent's list of what is to do as it began."""
    continuation: Continuation = Continuation()
    current_step_started_at: AwareDatetime | None = None
    current_step: AgentStep | None = None
    open_calls: tuple[OpenCall, ...] = ()
    hooks_under_way: Trigger | None = None
    guarding: bool = False
    """True while the input guard runs: the answer of the first model call does not count yet."""
    summary_under_way: bool = False
    cancelling: bool = False
    """True while the ends of a cancelled model call or of cancelled subagents are awaited."""
    compactions: int = Field(default=0, ge=0)
    """How often older messages were moved away to be summarised."""
    shortened_step: int = Field(default=0, ge=0, exclude_if=not_)
    """The latest step for which that was done because its model call was too long; 0 for none."""
    unpriced: tuple[str, ...] = ()
    """The models, its own or its subagents', that tokens were used of without a known price: they are not in `cost`."""
    waiting_messages: tuple[Message, ...] = ()
    """Messages for the next model call, from hooks or from outside."""
    answer_due: bool = False
    """True while one of them must be answered before the loop may end: one from outside, or a re-ask."""
    reasks: int = Field(default=0, ge=0)
    """How many re-asks followed answers in the wrong format."""
    paused_at: AwareDatetime | None = None
    paused_seconds: float = Field(default=0.0, ge=0, le=SECONDS_MAX)
    warnings: tuple[str, ...] = ()
    error: ErrorRecord | None = None
    """The error that prevented continuation, if one did."""

    @property
    def cost_known(self) -> float | None:
        """What it has cost so far in US dollars; none where a price is missing."""
        return None if self.unpriced else self.cost

    @property
    def time_limit_at(self) -> datetime | None:
        """When the time limit strikes, as far as that is known; a pause holds `max_seconds` but no deadline."""
        if self.paused_at is not None:
            return self.budget.deadline
        return self.budget.ends_at(self.started_at, paused_seconds=self.paused_seconds)

    @property
    def steps_used(self) -> int:
        """How many steps it and its subagents took: what `max_steps` limits."""
        return len(self.step_executions) + self.subagent_steps

    def use(self, moment: datetime) -> BudgetUse:
        """Return what it has used of each limit at `moment`."""
        return self.use_of_calls()._replace(seconds=self.seconds_used(moment))

    @property
    def used(self) -> TreeUse:
        """What it has used, as its parent counts it."""
        return TreeUse(steps=self.steps_used, usage=self.usage, cost=self.cost, unpriced=self.unpriced)

    def with_subagent(self, used: TreeUse) -> ExecutionState:
        """Return the state with a subagent's use added; the caller warns of its unpriced models one by one."""
        steps = self.subagent_steps + used.steps
        return replace(self, usage=self.usage + used.usage, cost=self.cost + used.cost, subagent_steps=steps)

    def use_of_calls(self, steps_over: int = 0) -> BudgetUse:
        """Return what it has used but for the time; `steps_over` are over and not archived yet."""
        steps = len(self.step_executions) + self.subagent_steps + steps_over
        tokens = self.usage.total_tokens
        return BudgetUse(steps=steps, tokens=tokens, cost=self.cost, unpriced=self.unpriced)

    def seconds_used(self, moment: datetime) -> float:
        """Return how many seconds count toward `max_seconds` at `moment`; those of a pause do not."""
        until = self.completed_at or self.paused_at or moment
        return max(0.0, (until - self.started_at).total_seconds() - self.paused_seconds)


class SavedState(Frozen):
    """The fields of an agent's state, as they are saved; `AgentState` adds what one can do with them."""

    format: Literal[1] = 1
    """The version of the serialized form, checked on reading."""
    agent_id: Id
    parent_agent_id: Id | None = None
    created_at: AwareDatetime
    updated_at: AwareDatetime
    execution_count: int = Field(default=0, ge=0)
    llm: LLM | None = None
    context: AgentContext = AgentContext()
    handover: Handover | None = None
    """Which agent has the conversation since a handoff; none where nothing was handed over."""
    mcp_catalog: Digest | None = Field(default=None, exclude_if=is_none)
    """The catalog of MCP tools that its latest execution with any has pinned."""
    workspace: Digest | None = Field(default=None, exclude_if=is_none)
    """The latest snapshot of its workspace's files; none before a call has left some."""
    todos: tuple[Todo, ...] = Field(default=(), max_length=TODOS_MAX, exclude_if=is_empty)
    """Its own list of what is to do, as it wrote it last (docs/capabilities.md)."""
    execution: ExecutionState | None = None
