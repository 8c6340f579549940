"""`Transition`: the mutable work space of one `AgentLoop.step`, from an event to a new state and commands.

The loop's functions change a transition instead of passing states on; it lives for one `AgentLoop.step` and never
escapes it, so the step stays a function of state and event.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import chain
from typing import Any, Final

from pydantic import JsonValue

from holdfast.core.agent.budget import LIMITS
from holdfast.core.agent.definition import LLM, FallbackRoute
from holdfast.core.agent.execution_state import ExecutionState
from holdfast.core.agent.hooks import HookContext, Trigger
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.token_bounds import messages_tokens
from holdfast.core.base.bounds import (
    REASON_CHARS_MAX,
    SOURCE_CHARS_MAX,
    STOP_SIGNALS_MAX,
    WARNING_CHARS_MAX,
    WARNINGS_MAX,
)
from holdfast.core.base.frozen import replace, trusted
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.amounts import PricePlace, joined_models, no_price
from holdfast.core.conversation.messages import Message, ToolCall
from holdfast.core.conversation.steps import AgentStep, ErrorRecord, ToolExecution
from holdfast.core.conversation.stop_reasons import StopReason, StopSignal
from holdfast.core.loop.commands import Command, Emit
from holdfast.core.loop.execution_rules import Rules
from holdfast.core.tools.call_context import BudgetLeft, CallContext
from holdfast.core.tools.workspace_profile import WorkspaceProfile, WorkspaceUse
from holdfast.core.wire.execution_events import Observed, StopSignalReceived

HOOK_MESSAGES_MAX: Final = 10
HOOK_STEPS_MAX: Final = 3
"""How many of the latest messages and completed steps a hook sees."""

ERROR_FORBADE: Final = "ErrorForbade"
"""The type of the error of a stop signal with the reason `error`, such as a hook's."""


class Transition:
    """The new state in the making, at the moment `at`, and the commands so far."""

    __slots__ = (
        "_before",
        "at",
        "commands",
        "execution",
        "handover",
        "metadata",
        "rules",
        "store",
        "todos",
        "workspace",
    )

    def __init__(self, rules: Rules, before: AgentState, execution: ExecutionState, at: datetime) -> None:
        self.rules = rules
        self.at = at
        self.execution = execution
        self.store = before.context.store
        self.metadata = before.context.metadata
        self.handover = before.handover
        self.workspace = before.workspace
        self.todos = before.todos
        self.commands: list[Command] = []
        self._before = before

    @property
    def state(self) -> AgentState:
        """The state as it stands now: the original object when nothing has changed."""
        before = self._before
        context, changes = before.context, dict[str, Any]()
        if self.store is not context.store or self.metadata is not context.metadata:
            changes["context"] = replace(context, store=self.store, metadata=self.metadata)
        if self.handover is not before.handover:
            changes["handover"] = self.handover
        if self.workspace is not before.workspace:
            changes["workspace"] = self.workspace
        if self.todos is not before.todos:
            changes["todos"] = self.todos
        if self.execution is not before.execution:
            changes["execution"] = self.execution
        return before.changed(self.at, **changes) if changes else before

    @property
    def llm(self) -> LLM | None:
        """The model of the call under way, or of the next one: the agent's, or what hooks or a fallback made of it."""
        llm, step = self._before.llm, self.execution.current_step
        if llm is None or step is None or self.execution.summary_under_way:
            return llm  # a summary is the agent's own model's
        return llm.changed_by(step.model_call_changes).after(len(step.fallbacks))

    def model_of(self, step: AgentStep) -> str | None:
        """Return the name of the model that `step` has come to; none for the worker's own."""
        if step.fallbacks:
            return step.fallbacks[-1].to
        if step.model_call_changes is not None and step.model_call_changes.model is not None:
            return step.model_call_changes.model
        return self._before.llm.model if self._before.llm is not None else None

    @property
    def next_fallback(self) -> FallbackRoute | None:
        """The route that the step under way falls back to next; none where there is no further one."""
        llm, passed = self._before.llm, len(self.step.fallbacks)
        routes = llm.changed_by(self.step.model_call_changes).fallback if llm is not None else ()
        return routes[passed] if passed < len(routes) else None

    @property
    def step(self) -> AgentStep:
        """The step under way, for code that knows there is one; ValueError otherwise."""
        if self.execution.current_step is None:
            raise ValueError("no step is under way")
        return self.execution.current_step

    @property
    def step_number(self) -> int:
        """The number of the step under way, else of the last one; 0 before the first."""
        step = self.execution.current_step
        return step.number if step else len(self.execution.step_executions)

    def change(self, **fields: Any) -> None:  # noqa: ANN401  # fields of any type, as in `replace`
        """Change fields of the execution."""
        self.execution = replace(self.execution, **fields)

    def change_step(self, **fields: Any) -> None:  # noqa: ANN401  # the same
        """Change fields of the step under way."""
        self.change(current_step=replace(self.step, **fields))

    def do(self, *commands: Command) -> None:
        """Add commands for the driver."""
        self.commands.extend(commands)

    def emit(self, kind: type[Observed], **facts: Any) -> None:  # noqa: ANN401  # the kind's own fields
        """Send listeners an event, if there are any."""
        if self.rules.observed:
            state, step = self._before, self.step_number
            execution_id = self.execution.execution_id
            self.do(Emit(kind(state.agent_id, execution_id, state.parent_agent_id, self.at, step, **facts)))

    def add_messages(self, messages: Iterable[Message], **tags: Any) -> None:  # noqa: ANN401  # JSON
        """Add `messages` to the conversation, tagged with their execution and agent."""
        tags = {"execution_id": self.execution.execution_id, "agent_id": self._before.agent_id, **tags}
        added = tuple(messages)
        self.store = self.store.extended(*(message.tagged(**tags) for message in added))
        if self.counting:
            self.change(next_input_max=self.execution.next_input_max + self.tokens_of(added))

    @property
    def parent_agent_id(self) -> str | None:
        """The agent whose subagent this one is, if it is one."""
        return self._before.parent_agent_id

    @property
    def counting(self) -> bool:
        """Whether a limit depends on the size of the next model call's input."""
        return self.execution.budget.limits_tokens

    def tokens_of(self, messages: Iterable[Message]) -> int:
        """Return the most tokens that `messages` can have, as the model is shown them."""
        return messages_tokens(messages, self.rules.definition.context.tool_output_chars_max)

    def signal(self, signal: StopSignal) -> None:
        """Keep a stop signal; those from outside up to a bound, as more of them change nothing."""
        continuation = self.execution.continuation
        if signal.reason is StopReason.USER_REQUESTED and len(continuation.stop_signals) >= STOP_SIGNALS_MAX:
            return
        if signal.reason is StopReason.ERROR and self.execution.error is None:
            self.change(error=ErrorRecord(type=ERROR_FORBADE, message=signal.message, source=signal.source))
        self.change(continuation=continuation.with_signal(signal))
        self.emit(StopSignalReceived, signal=signal)

    def signal_once(self, reason: StopReason, message: str, source: str, **context: JsonValue) -> None:
        """Keep a signal unless the execution has one for the same reason already."""
        if not any(each.reason is reason for each in self.execution.continuation.stop_signals):
            self.signal_now(reason, message, source, context)

    def signal_now(self, reason: StopReason, message: str, source: str, context: Mapping[str, JsonValue]) -> None:
        """Keep a signal of this moment."""
        text, who = message[:REASON_CHARS_MAX], source[:SOURCE_CHARS_MAX]
        self.signal(StopSignal(reason=reason, message=text, source=who, at=self.at, context=dict(context)))

    def fail(self, error: ErrorRecord) -> None:
        """Keep `error` as the reason for the failure, and signal it."""
        if self.execution.error is None:
            self.change(error=error)
        hooks = {each.name for each in self.rules.hooks}
        who = "tool" if error.source in self.rules.tools else "hook" if error.source in hooks else "raised_by"
        facts = {"error": error.type, who: error.source}
        self.signal_once(StopReason.ERROR, f"{error.type}: {error.message}", error.source, **facts)

    def warn(self, text: str) -> None:
        """Keep a warning, once."""
        text, warnings = text[:WARNING_CHARS_MAX], self.execution.warnings
        if text not in warnings and len(warnings) < WARNINGS_MAX:
            self.change(warnings=(*warnings, text))

    @property
    def price_place(self) -> PricePlace:
        """Who has chosen the model of the call under way, or of the next one."""
        step = self.execution.current_step
        if step is None or self.execution.summary_under_way:
            return "llm"
        if step.fallbacks:
            return "fallback"
        return "llm" if step.model_call_changes is None or step.model_call_changes.model is None else "hook"

    def warn_unpriced(self, model: str, place: PricePlace = "llm") -> None:
        """Note that tokens of `model` have no known price, and warn once; the parent learns it from the result."""
        if model not in self.execution.unpriced:
            self.warn(no_price(model, place))
        self.note_unpriced(model)

    def note_unpriced(self, model: str) -> None:
        """Note that the costs of the execution and of the step under way leave out some tokens of `model`."""
        if model not in self.execution.unpriced:
            self.change(unpriced=joined_models(self.execution.unpriced, (model,)))
        step = self.execution.current_step
        if step is not None and model not in step.unpriced:
            self.change_step(unpriced=joined_models(step.unpriced, (model,)))

    def spend(self, usage: Usage, cost: float) -> None:
        """Count what was used, and what it cost in US dollars."""
        self.change(usage=self.execution.usage + usage, cost=self.execution.cost + cost)

    def should_stop(self, *, more_to_do: bool) -> bool:
        """Apply the stop table."""
        return self.execution.continuation.should_stop(more_to_do=more_to_do, rule=self.rules.override)

    def note_override(self) -> None:
        """Count the override when the step under way goes on only because a hook asked for it."""
        if self.execution.continuation.standing and not self.must_stop:
            self.change(continuation=self.execution.continuation.overriding_now())

    @property
    def must_stop(self) -> bool:
        """Whether the loop must stop before the step under way is complete."""
        return self.execution.continuation.forbids(self.rules.override)

    def call_context(self, call: ToolCall) -> CallContext:
        """Return what the tool of `call` may know, as of now."""
        execution = self.execution
        left = execution.budget.after(execution.use(self.at))
        return trusted(
            CallContext,
            agent=self.rules.definition.name,
            agent_id=self._before.agent_id,
            parent_agent_id=self._before.parent_agent_id,
            step=self.step.number,
            call_id=call.id,
            deadline=execution.time_limit_at,
            budget_left=trusted(BudgetLeft, **{limit.name: limit.of(left) for limit in LIMITS}),
            metadata=self.metadata,
            tenant=execution.tenant,
            workspace=self._workspace_use(call),
        )

    def _workspace_use(self, call: ToolCall) -> WorkspaceUse | None:
        """Return what a tool of the workspace is to know of it; none for any other tool."""
        traits = self.rules.tools.get(call.name)
        if traits is None or not traits.workspace:
            return None
        profile = self.rules.definition.workspace or WorkspaceProfile()
        return WorkspaceUse(
            id=self._before.agent_id if profile.scope == "session" else self.execution.execution_id,
            profile=profile,
            files=self.workspace or profile.files,
            left_by=self._files_left_by(),
        )

    def _files_left_by(self) -> str | None:
        """Return the id of this execution's latest call that has left the files that its workspace has, if one has."""
        if self.workspace is None:
            return None
        done = (each.step for each in reversed(self.execution.step_executions))
        ended = (call for step in chain((self.step,), done) for call in reversed(step.tool_executions))
        return next((call.id for call in ended if call.workspace == self.workspace), None)

    def context_for(
        self, trigger: Trigger, call: ToolCall | None = None, execution: ToolExecution | None = None
    ) -> HookContext:
        """Return the context of a hook at `trigger`; `call` and `execution` are those that it runs around."""
        state, step = self.state, self.execution.current_step
        messages = (*state.messages[-HOOK_MESSAGES_MAX:], *self.execution.waiting_messages)
        steps = tuple(self.execution.step_executions[-HOOK_STEPS_MAX:])
        steps_and_current = (*(each.step for each in steps), *((step,) if step else ()))
        asks_next = trigger is Trigger.BEFORE_INFERENCE
        return trusted(
            HookContext,
            trigger=trigger,
            agent=self.rules.definition.name,
            agent_id=state.agent_id,
            execution_id=self.execution.execution_id,
            step_number=self.step_number + (trigger is Trigger.BEFORE_STEP),
            at=self.at,
            metadata=self.metadata,
            messages=messages[-HOOK_MESSAGES_MAX:],
            usage=self.execution.usage,
            cost=self.execution.cost,
            unpriced=self.execution.unpriced,
            budget_remaining=state.budget_remaining,
            stop_signals=self.execution.continuation.stop_signals,
            response=step.response if step else None,
            call=call,
            tool_execution=execution,
            error=self.execution.error,
            parent_agent_id=state.parent_agent_id,
            tenant=self.execution.tenant,
            execution_count=state.execution_count,
            steps=steps,
            tool_executions=step.tool_executions if step else (),
            message_count=len(state.messages),
            sections={section.name: len(section.messages) for section in self.store.sections},
            deadline=self.execution.time_limit_at,
            errors=tuple(dict.fromkeys(error for each in steps_and_current for error in each.all_errors)),
            **({"llm": self.llm or LLM(), "tools": self.rules.shown_names} if asks_next else {}),
        )
