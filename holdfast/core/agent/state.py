"""`AgentState`: all that is known about an agent, one immutable value with two lifetimes (docs/spec.md, section 1).

The session part survives every execution; `execution` belongs to one request. Every `with_*` returns a new value.
Only `core.loop` decides what happens next; this module says what is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self
from uuid import UUID

from pydantic import JsonValue

from holdfast.core.agent import state_json
from holdfast.core.agent.budget import BudgetUse, ExecutionBudget
from holdfast.core.agent.context_view import Compiler, RunFacts, messages_for_model, store_before_step
from holdfast.core.agent.definition import LLM
from holdfast.core.agent.execution_state import ExecutionState, ExecutionStatus, SavedState
from holdfast.core.agent.hooks import ENDING, merged
from holdfast.core.agent.policies import ContextPolicy, ResponseFormat
from holdfast.core.base.append_list import AppendList
from holdfast.core.base.frozen import replace
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.attachments import Attachment
from holdfast.core.conversation.messages import Message, MessageStore
from holdfast.core.conversation.steps import (
    AgentStep,
    AgentStepType,
    CallStage,
    Duration,
    ErrorRecord,
    OpenCall,
    StepExecution,
    ToolExecution,
)
from holdfast.core.conversation.stop_reasons import OverrideRule, StopReason, StopSignal

ERRORS_SHOWN_MAX: Final = 20
"""How many of the latest errors `debug` shows."""

UNBORN_ID: Final = str(UUID(int=0))
"""The id of an agent that has never run."""


class AgentState(SavedState):
    """An agent as a value; while an execution runs, durations and the remaining time are as of `updated_at`."""

    @classmethod
    def empty(cls) -> AgentState:
        """Return an agent that has never run; the first run gives it its id and its time."""
        at = datetime(1970, 1, 1, tzinfo=UTC)
        return cls(agent_id=UNBORN_ID, created_at=at, updated_at=at)

    def changed(self, at: datetime | None, **changes: Any) -> AgentState:  # noqa: ANN401  # fields of any type
        """Return the state with `changes` made at that moment; `updated_at` never moves backwards.

        Without a moment the change comes just after the one before: there is no clock here.
        """
        at = self.updated_at + timedelta(microseconds=1) if at is None else max(self.updated_at, at)
        return replace(self, updated_at=at, **changes)

    def at(self, moment: datetime) -> AgentState:
        """Return the state as it is at `moment`: while an execution runs, its time goes on though nothing happens."""
        return self.changed(moment) if self.status is ExecutionStatus.IN_PROGRESS else self

    def with_messages(self, *messages: Message, at: datetime | None = None) -> AgentState:
        """Return the state with `messages` added."""
        return self.with_store(self.store.extended(*messages), at=at)

    def with_user_message(self, text: str, *, at: datetime | None = None) -> AgentState:
        """Return the state with a user message added."""
        return self.with_messages(Message(role="user", content=text), at=at)

    def with_metadata(
        self, entries: Mapping[str, JsonValue] | None = None, /, *, at: datetime | None = None, **more: JsonValue
    ) -> AgentState:
        """Return the state with `entries` and `more` added to its metadata; a value of none removes one."""
        notes = merged(self.context.metadata, {**(entries or {}), **more})
        return self.changed(at, context=replace(self.context, metadata=notes))

    def with_system_prompt(self, prompt: str, *, at: datetime | None = None) -> AgentState:
        """Return the state with another system prompt."""
        return self.changed(at, context=replace(self.context, system_prompt=prompt))

    def with_response_format(self, response_format: ResponseFormat, *, at: datetime | None = None) -> AgentState:
        """Return the state with another response format."""
        return self.changed(at, context=replace(self.context, response_format=response_format))

    def with_llm(self, llm: LLM, *, at: datetime | None = None) -> AgentState:
        """Return the state with another model."""
        return self.changed(at, llm=llm)

    def with_store(self, store: MessageStore, *, at: datetime | None = None) -> AgentState:
        """Return the state with another conversation."""
        return self.changed(at, context=replace(self.context, store=store))

    def with_execution(self, moment: datetime, **changes: Any) -> AgentState:  # noqa: ANN401  # fields of any type
        """Return the state with the given fields of the execution changed at `moment`."""
        return self.changed(moment, execution=replace(self.running, **changes))

    def for_next_execution(self, at: datetime | None = None) -> AgentState:
        """Return the session alone: everything but the execution."""
        return self.changed(at, execution=None)

    @property
    def running(self) -> ExecutionState:
        """The execution, for code that knows there is one; ValueError otherwise."""
        if self.execution is None:
            raise ValueError("the agent has no execution")
        return self.execution

    @property
    def status(self) -> ExecutionStatus:
        """The execution's status; `pending` when there is none."""
        return self.execution.status if self.execution else ExecutionStatus.PENDING

    @property
    def active_agent(self) -> str:
        """The name of the agent that has the conversation: the one that it was handed to last; empty if unknown."""
        return self.handover.agent if self.handover else str(self.metadata.get("agent", ""))

    @property
    def messages(self) -> AppendList[Message]:
        """The raw default section."""
        return self.context.store.messages

    @property
    def store(self) -> MessageStore:
        """All sections."""
        return self.context.store

    @property
    def metadata(self) -> Mapping[str, JsonValue]:
        """Data about the agent that the model never sees."""
        return self.context.metadata

    @property
    def step_executions(self) -> Sequence[StepExecution]:
        """The archived steps in order, with their times."""
        return self.execution.step_executions if self.execution else ()

    @property
    def steps(self) -> tuple[AgentStep, ...]:
        """The archived steps in order."""
        return tuple(done.step for done in self.step_executions)

    @property
    def step_count(self) -> int:
        """How many steps are archived."""
        return len(self.step_executions)

    def input_messages(
        self, step: AgentStep, context: ContextPolicy | None = None, compiler: Compiler | None = None
    ) -> tuple[Message, ...]:
        """Return what the model was sent in `step`, its system prompt apart: trimmed, and without earlier traces.

        `context` is the definition's policy and `compiler` the one that it names. Only a length is stored, no copies:
        messages summarised since are gone, as is the summary of then; a compiler gets the metadata of this state.
        """
        number, agent = step.number, str(self.metadata.get("agent", ""))
        before = [done.step for done in self.step_executions if done.step.number < number][-1:]
        run = run_facts(self, agent, number, before[0] if before else None)
        summarised = self.execution is None or self.execution.compactions != step.compactions
        store = store_before_step(self.store, step.id) if summarised else self.store.shortened(step.input_length)
        execution_id = self.execution.execution_id if self.execution else ""
        data, prompt, policy = self.metadata, self.context.system_prompt, context or ContextPolicy()
        return messages_for_model(store, policy, compiler, execution_id, metadata=data, system_prompt=prompt, run=run)

    @property
    def steps_used(self) -> int:
        """How many steps the execution and its subagents took: what `max_steps` limits."""
        return self.execution.steps_used if self.execution else 0

    @property
    def waiting_calls(self) -> tuple[OpenCall, ...]:
        """The tool calls that wait for a person's decision."""
        calls = self.execution.open_calls if self.execution else ()
        return tuple(each for each in calls if each.stage is CallStage.APPROVAL)

    @property
    def input_calls(self) -> tuple[OpenCall, ...]:
        """The tool calls whose server waits for a person's answer (`OpenCall.input_request`)."""
        calls = self.execution.open_calls if self.execution else ()
        return tuple(each for each in calls if each.stage is CallStage.INPUT)

    @property
    def last_step(self) -> AgentStep | None:
        """The latest archived step."""
        return self.step_executions[-1].step if self.step_executions else None

    @property
    def current_step_or_last(self) -> AgentStep | None:
        """The step under way, else the latest archived one."""
        return (self.execution.current_step if self.execution else None) or self.last_step

    @property
    def last_step_type(self) -> AgentStepType | None:
        """The latest step's type."""
        return self.last_step.step_type if self.last_step else None

    @property
    def last_step_usage(self) -> Usage:
        """What the latest step used."""
        return self.last_step.usage if self.last_step else Usage()

    @property
    def last_step_duration(self) -> Duration | None:
        """How long the latest step took."""
        return self.step_executions[-1].duration if self.step_executions else None

    @property
    def last_step_errors(self) -> tuple[ErrorRecord, ...]:
        """The latest step's errors."""
        return self.last_step.all_errors if self.last_step else ()

    @property
    def last_step_tool_executions(self) -> tuple[ToolExecution, ...]:
        """The latest step's tool executions."""
        return self.last_step.tool_executions if self.last_step else ()

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        """The files that the tools of its execution have attached, in order."""
        steps = (
            *self.steps,
            *((self.execution.current_step,) if self.execution and self.execution.current_step else ()),
        )
        return tuple(each for step in steps for call in step.tool_executions for each in call.attachments)

    @property
    def last_tool_execution(self) -> ToolExecution | None:
        """The latest tool execution of any step."""
        executions = (step.tool_executions[-1] for step in reversed(self.steps) if step.tool_executions)
        return next(executions, None)

    @property
    def usage(self) -> Usage:
        """What the execution has used so far."""
        return self.execution.usage if self.execution else Usage()

    @property
    def cost(self) -> float:
        """What that cost in US dollars, as far as prices are known."""
        return self.execution.cost if self.execution else 0.0

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a person should know about the execution besides its errors."""
        return self.execution.warnings if self.execution else ()

    @property
    def errors(self) -> tuple[ErrorRecord, ...]:
        """Every step's errors in order, then the one that ended the execution, none twice."""
        raised = [error for step in self.steps for error in step.all_errors]
        if self.execution and self.execution.error:
            raised.append(self.execution.error)
        return tuple(dict.fromkeys(raised))

    @property
    def has_errors(self) -> bool:
        """True when anything went wrong, recovered or not."""
        return bool(self.errors)

    @property
    def execution_duration(self) -> Duration | None:
        """From start to end, or to `updated_at` while it runs; waiting for a person counts."""
        if self.execution is None:
            return None
        return Duration.between(self.execution.started_at, self.execution.completed_at or self.updated_at)

    @property
    def stop_signal(self) -> StopSignal | None:
        """The deciding stop signal."""
        return self.execution.continuation.highest if self.execution else None

    @property
    def stop_reason(self) -> StopReason | None:
        """Why it stopped; `completed` on a natural end, none while it runs."""
        if self.stop_signal is not None:
            return self.stop_signal.reason
        return StopReason.COMPLETED if self.status is ExecutionStatus.COMPLETED else None

    @property
    def last_stop_reason(self) -> StopReason | None:
        """The same as `stop_reason`."""
        return self.stop_reason

    @property
    def should_stop(self) -> bool:
        """Whether the loop is to stop, by the rules of overriding by default; false while it goes on.

        Once a step has its answer, the table in `stop_reasons` decides; before that and between steps, a signal does.
        """
        execution = self.execution
        if execution is None:
            return False
        if execution.status.is_terminal or execution.cancelling or execution.hooks_under_way in ENDING:
            return True
        step = execution.current_step
        if step is None or step.inference_response is None:
            return execution.continuation.forbids(OverrideRule())
        more_to_do = bool(step.requested_tool_calls) or execution.answer_due
        return execution.continuation.should_stop(more_to_do=more_to_do)

    @property
    def final_response(self) -> str:
        """The last step's text when that step is a final response, else empty."""
        step = self.last_step
        if step is None or step.step_type is not AgentStepType.FINAL_RESPONSE or step.response is None:
            return ""
        text = step.response.text
        return text if text.strip() else ""

    @property
    def has_final_response(self) -> bool:
        """True when the agent has answered."""
        return bool(self.final_response)

    @property
    def current_response(self) -> str:
        """The final response, else the latest text of this execution's model, also in the step under way.

        Never one of an earlier execution: an answer belongs to its own. Never one that was held back from its hooks.
        """
        if self.final_response:
            return self.final_response
        under_way = self.execution.current_step if self.execution else None
        latest = (under_way, *(done.step for done in reversed(self.step_executions)))
        texts = (step.text_so_far for step in latest if step is not None)
        return next((text for text in texts if text.strip()), "")

    @property
    def budget(self) -> ExecutionBudget:
        """The limits in force."""
        return self.execution.budget if self.execution else ExecutionBudget()

    @property
    def budget_use(self) -> BudgetUse:
        """What is used of them; time as of `updated_at`."""
        return self.execution.use(self.updated_at) if self.execution else BudgetUse()

    @property
    def budget_remaining(self) -> ExecutionBudget:
        """What is left of them; time as of `updated_at`."""
        return self.budget.after(self.budget_use)

    def debug(self) -> dict[str, JsonValue]:
        """Return the most important facts, JSON-ready."""
        execution, errors = self.execution, self.errors
        return {
            "status": self.status,
            "execution_count": self.execution_count,
            "has_execution": execution is not None,
            "execution_id": execution.execution_id if execution else None,
            "steps": self.step_count,
            "continuation": execution.continuation.describe() if execution else "no execution",
            "has_errors": bool(errors),
            "errors": [f"{error.type}: {error.message}" for error in errors[-ERRORS_SHOWN_MAX:]],
            "errors_total": len(errors),
            "usage": self.usage.model_dump(),
            "cost": self.cost,
            "unpriced": list(execution.unpriced) if execution else [],
            "waiting": [each.call.name for each in (*self.waiting_calls, *self.input_calls)],
            "warnings": list(self.warnings),
        }

    def to_json(self, *, session_only: bool = False) -> bytes:
        """Return the state as JSON in UTF-8, on one line, losing nothing; `session_only` leaves the execution out.

        Raises StateInvalid where it holds what JSON cannot carry, or takes more than STATE_BYTES_MAX.
        """
        return state_json.to_json(self, session_only=session_only)

    @classmethod
    def from_json(cls, data: bytes | str) -> Self:
        """Return the state that `to_json` wrote; StateInvalid names the place of what is wrong in anything else."""
        return state_json.from_json(cls, data)

    def to_dict(self, *, session_only: bool = False) -> dict[str, Any]:
        """Return what `to_json` writes as JSON-ready data: dicts, lists, texts, numbers, true, false and none."""
        return state_json.to_dict(self, session_only=session_only)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the state that `to_dict` wrote, by the same rules as `from_json`."""
        return state_json.from_dict(cls, data)


def facts_of(state: AgentState, agent: str) -> RunFacts:
    """Return what a compiler of that agent is told of the run, for the model call of the step under way."""
    execution = state.running
    done, step = execution.step_executions, execution.current_step
    return run_facts(state, agent, step.number if step else len(done) + 1, done[-1].step if done else None)


def run_facts(state: AgentState, agent: str, step_number: int, before: AgentStep | None) -> RunFacts:
    """Return the same for the step of that number, which followed `before`."""
    return RunFacts(
        agent=agent,
        agent_id=state.agent_id,
        parent_agent_id=state.parent_agent_id,
        execution_count=state.execution_count,
        step_number=step_number,
        error_count=len(before.all_errors) if before else 0,
    )
