"""A run of the loop for tests, short to write: fixed ids, a clock that ticks, the rules checked after each event."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Self, TypeVar
from uuid import UUID

from pydantic import JsonValue

from holdfast.core.agent.budget import ExecutionBudget, TreeUse
from holdfast.core.agent.definition import LLM, AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.hooks import Changes, HookContext, HookRun, HookTraits, Trigger
from holdfast.core.agent.initial_state import new_agent
from holdfast.core.agent.state import AgentState
from holdfast.core.base.frozen import replace
from holdfast.core.base.usage import NOTHING_USED, Usage
from holdfast.core.conversation.messages import ToolCall, user_message
from holdfast.core.conversation.steps import ErrorRecord, InferenceResponse, ToolExecution
from holdfast.core.conversation.stop_reasons import StopMode, StopReason, StopSignal
from holdfast.core.conversation.verdicts import Decision, Verdict
from holdfast.core.loop.agent_loop import AgentLoop
from holdfast.core.loop.commands import (
    CallModel,
    CallTool,
    CancelInFlight,
    Command,
    Emit,
    RequestApproval,
    RunHooks,
)
from holdfast.core.loop.commands import SpawnSubagent as Spawn
from holdfast.core.loop.events import (
    ApprovalDecided,
    ApprovalExpired,
    BufferSummarised,
    ChangeRefused,
    DefinitionChanged,
    DriverFailed,
    Event,
    ExecutionStarted,
    HandoffRefused,
    HooksReturned,
    MessageArrived,
    ModelAnswered,
    ModelCancelled,
    ModelFailed,
    StepDue,
    StopRequested,
    SubagentReturned,
    SummaryFailed,
    TimerFired,
    ToolFailed,
    ToolReturned,
    subagent_cancelled,
)
from holdfast.core.tools.mcp_changes import PinnedCatalog
from holdfast.core.tools.tool_traits import ToolTraits
from holdfast.core.wire.execution_events import Observed
from tests.core.invariants import assert_legal

CommandT = TypeVar("CommandT")

START = datetime(2025, 1, 1, 12, tzinfo=UTC)
AGENT_ID = str(UUID(int=1))
DEFINITION = AgentDefinition(name="tester", system_prompt="Be brief.")
USAGE = Usage(input_tokens=100, output_tokens=20)
BOOM = ErrorRecord(type="Boom", message="it broke", source="test")


def moment(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def call(id_: str, name: str = "add", malformed: str | None = None) -> ToolCall:
    return ToolCall(id=id_, name=name, arguments={} if malformed else {"a": 1}, malformed=malformed)


def spawn(id_: str, agent: str = "helper", task: str = "look it up") -> ToolCall:
    return ToolCall(id=id_, name="spawn", arguments={"agent": agent, "task": task})


def handoff(id_: str, agent: str = "helper", **more: JsonValue) -> ToolCall:
    return ToolCall(id=id_, name="handoff", arguments={"agent": agent, **more})


def signal(reason: StopReason, message: str = "", seconds: float = 0) -> StopSignal:
    return StopSignal(reason=reason, message=message, source="test", at=moment(seconds))


def hook_at(
    trigger: Trigger | str, name: str | None = None, *, priority: int = 0, tools: tuple[str, ...] | None = None
) -> HookTraits:
    return HookTraits(name=name or f"at_{trigger}", trigger=Trigger(trigger), priority=priority, tools=tools)


class Run:
    """One agent under test. Every verb is one event; `state` and `commands` are what came of the latest.

    `rules` are fields of the definition. `events` are all that listeners were told.
    """

    def __init__(  # noqa: PLR0913  # what tests are about
        self,
        budget: ExecutionBudget | None = None,
        *,
        tools: Iterable[str | ToolTraits] = ("add", "echo"),
        llm: LLM | None = None,
        hooks: Iterable[HookTraits] = (),
        subagents: Iterable[AgentDefinition] = (),
        handoffs: Iterable[AgentDefinition] = (),
        assistants: Iterable[AgentDefinition] = (),
        depth_left: int | None = None,
        observed: bool = False,
        step_by_step: bool = False,
        **rules: Any,  # noqa: ANN401  # fields of any type
    ) -> None:
        children, successors = {each.name: each for each in subagents}, {each.name: each for each in handoffs}
        given = {} if llm is None else {"llm": llm}
        definition = AgentDefinition(
            name="tester",
            system_prompt="Be brief.",
            subagents=tuple(children),
            handoffs=tuple(successors),
            **given,
            **rules,
        )
        traits = [ToolTraits(name=each) if isinstance(each, str) else each for each in tools]
        self.loop = AgentLoop(
            definition,
            tools={each.name: each for each in traits},
            hooks=tuple(hooks),
            subagents=children,
            handoffs=successors,
            assistants={each.name: each for each in assistants},
            depth_left=depth_left,
            observed=observed,
            step_by_step=step_by_step,
        )
        self.budget = budget or ExecutionBudget()
        self.state: AgentState = new_agent(definition, agent_id=AGENT_ID, at=START)
        self.commands: tuple[Command, ...] = ()
        self.hooks_asked: list[RunHooks] = []
        self.events: list[Observed] = []
        self.seconds = 0.0
        self.grace = False
        self._executions = 1

    def feed(self, event: Event) -> None:
        """Let `event` happen; what it cancels ends at once and with nothing known, unless `grace`."""
        self._fed(event)
        kept = self.commands
        if CancelInFlight() in kept and not self.grace:
            while self.state.running.cancelling:
                open_calls = self.state.running.open_calls
                ended: Event = ModelCancelled(None, event.at)
                if open_calls:
                    ended = subagent_cancelled(open_calls[0].call.id, event.at)
                self._fed(ended)
                self.commands = kept = (*kept, *self.commands)

    def _fed(self, event: Event) -> None:
        before = self.state
        dump = before.to_dict()
        self.state, self.commands = self.loop.step(before, event)
        assert_legal(self.loop, before, dump, event, self.state, self.commands)
        assert self.loop.step(before, event) == (self.state, self.commands), "equal inputs gave unequal outputs"
        for command in self.commands:
            if isinstance(command, CancelInFlight):
                self.hooks_asked.clear()
            if isinstance(command, RunHooks):
                self.hooks_asked.append(command)
            if isinstance(command, Emit):
                self.events.append(command.event)

    def tick(self, seconds: float = 1.0) -> datetime:
        self.seconds += seconds
        return moment(self.seconds)

    def begin(self, question: str = "Do it.", mcp: PinnedCatalog | None = None) -> Run:
        self._executions += 1
        id_ = str(UUID(int=self._executions))
        self.feed(ExecutionStarted(id_, (user_message(question),), self.budget, self.tick(), mcp=mcp))
        return self

    def resume(self, *said: str) -> Self:
        """Go on from the state as it comes back from JSON, as after a restart of everything."""
        self.state = AgentState.from_json(self.state.to_json())
        self.hooks_asked.clear()
        messages = tuple(user_message(each) for each in said)
        self.feed(ExecutionStarted(str(UUID(int=999)), messages, ExecutionBudget(), self.tick(0)))
        return self

    def answer(
        self,
        text: str = "",
        *calls: ToolCall,
        usage: Usage = USAGE,
        finish_reason: str = "",
        after: float = 1,
        problem: str | None = None,
        cost: float | None = None,
        wasted: Usage = NOTHING_USED,
    ) -> Self:
        ending = finish_reason or ("tool_calls" if calls else "stop")
        response = InferenceResponse(
            text=text, tool_calls=calls, finish_reason=ending, usage=usage, format_problem=problem, cost=cost
        )
        self.feed(ModelAnswered(response, self.tick(after), wasted))
        return self

    def model_fails(self, error: ErrorRecord = BOOM, wasted: Usage = NOTHING_USED) -> Self:
        self.feed(ModelFailed(error, self.tick(), wasted))
        return self

    def returns(
        self,
        call_id: str,
        result: str = "fine",
        stop: str | None = None,
        after: float = 1,
        adding: Mapping[str, JsonValue] | None = None,
    ) -> Self:
        self.feed(ToolReturned(call_id, result, moment(self.seconds), self.tick(after), stop, adding or {}))
        return self

    def fails(self, call_id: str, error: ErrorRecord = BOOM) -> Run:
        self.feed(ToolFailed(call_id, error, moment(self.seconds), self.tick()))
        return self

    def child(
        self,
        call_id: str,
        answer: str = "found",
        status: ExecutionStatus = ExecutionStatus.COMPLETED,
        *,
        why: str = "",
        usage: Usage = USAGE,
        cost: float = 0.0,
        steps: int = 0,
        unpriced: tuple[str, ...] = (),
    ) -> Self:
        started_at, at = moment(self.seconds), self.tick()
        used = TreeUse(steps=steps, usage=usage, cost=cost, unpriced=unpriced)
        self.feed(SubagentReturned(call_id, status, answer, why, used, started_at, at))
        return self

    def hooked(self, *outcomes: Changes | ErrorRecord | None, about: str | None = None, after: float = 0) -> Self:
        """Let the hooks return that were asked for first, or those around the call `about`."""
        asked = next(each for each in self.hooks_asked if about is None or _call_id(each.context) == about)
        self.hooks_asked.remove(asked)
        runs: list[HookRun] = []
        for place, traits in enumerate(asked.hooks):
            outcome = outcomes[place] if place < len(outcomes) else None
            error = outcome if isinstance(outcome, ErrorRecord) else None
            runs.append(
                HookRun(name=traits.name, changes=None if isinstance(outcome, ErrorRecord) else outcome, error=error)
            )
            if error is not None:
                break
        self.feed(HooksReturned(asked.context.trigger, _call_id(asked.context), tuple(runs), self.tick(after)))
        return self

    def decide(
        self,
        call_id: str,
        decision: Decision = "approve",
        *,
        reason: str = "",
        arguments: Mapping[str, Any] | None = None,
        digest: str | None = None,
        after: float = 1,
    ) -> Self:
        given = dict[str, Any]() if arguments is None and decision == "edit" else arguments
        verdict = Verdict(decision=decision, by="ann", reason=reason, arguments=given, digest=digest)
        self.feed(ApprovalDecided(call_id, verdict, self.tick(after)))
        return self

    def expires(self, call_id: str, after: float = 1) -> Self:
        self.feed(ApprovalExpired(call_id, self.tick(after)))
        return self

    def says(self, text: str) -> Self:
        self.feed(MessageArrived(user_message(text), self.tick()))
        return self

    def summarises(self, text: str = "they talked", usage: Usage = USAGE) -> Self:
        self.feed(BufferSummarised(text, usage, self.tick()))
        return self

    def summary_fails(self, error: ErrorRecord = BOOM) -> Self:
        self.feed(SummaryFailed(error, self.tick()))
        return self

    def stop(self, message: str = "enough", mode: StopMode = "now") -> Self:
        at = self.tick()
        self.feed(
            StopRequested(StopSignal(reason=StopReason.USER_REQUESTED, message=message, source="me", at=at), mode, at)
        )
        return self

    def signals_after_step(self, *reasons: StopReason) -> Self:
        """Let signals of any reason come in from outside that let the step finish."""
        for reason in reasons:
            self.feed(StopRequested(signal(reason, f"because of {reason}", self.seconds), "after_step", self.tick()))
        return self

    def timer(self, after: float = 1) -> Self:
        self.feed(TimerFired(self.tick(after)))
        return self

    def step_due(self) -> Self:
        self.feed(StepDue(self.tick(0)))
        return self

    def becomes(
        self,
        budget: ExecutionBudget | None = None,
        *,
        tools: Iterable[str | ToolTraits] | None = None,
        hooks: Iterable[HookTraits] | None = None,
        **rules: Any,  # noqa: ANN401  # fields of any type
    ) -> Self:
        """Change the agent, as a driver does that has begun nothing of what it was asked for last."""
        loop, definition = self.loop, replace(self.loop.definition, **rules)
        if tools is not None:
            traits = [ToolTraits(name=each) if isinstance(each, str) else each for each in tools]
            loop = dataclasses.replace(loop, tools={each.name: each for each in traits})
        if hooks is not None:
            loop = dataclasses.replace(loop, hooks=tuple(hooks))
        self.loop = dataclasses.replace(loop, definition=definition)
        self.hooks_asked.clear()
        self.feed(DefinitionChanged(definition, self.tick(0), budget))
        return self

    def hands_over(self, *, handoffs: Iterable[AgentDefinition] = (), hooks: Iterable[HookTraits] = ()) -> Self:
        """Go on as the agent that the driver was asked to hand over to; it may hand over to `handoffs`."""
        asked = self.state.running.handing_over
        assert asked is not None
        definition, origin = self.loop.handoffs[asked.to_agent], self.loop.origin
        successors = {each.name: each for each in handoffs}
        loop = dataclasses.replace(self.loop, definition=definition, handoffs=successors, origin_digest=origin)
        self.loop = dataclasses.replace(loop, hooks=tuple(hooks))
        self.feed(DefinitionChanged(definition, self.tick(0), handoff=True))
        return self

    def handoff_refused(self, error: ErrorRecord = BOOM) -> Self:
        self.feed(HandoffRefused(error, self.tick(0)))
        return self

    def change_refused(self, error: ErrorRecord = BOOM) -> Self:
        self.feed(ChangeRefused(error, self.tick(0)))
        return self

    def driver_fails(self, error: ErrorRecord = BOOM) -> Run:
        self.feed(DriverFailed(error, self.tick()))
        return self

    def wanted(self, kind: type[CommandT]) -> tuple[CommandT, ...]:
        return tuple(command for command in self.commands if isinstance(command, kind))

    @property
    def model_call(self) -> CallModel:
        (found,) = self.wanted(CallModel)
        return found

    @property
    def hook_context(self) -> HookContext:
        (found,) = self.wanted(RunHooks)
        return found.context

    @property
    def called(self) -> list[str]:
        return [command.call.id for command in self.wanted(CallTool)]

    @property
    def spawned(self) -> list[Spawn]:
        return list(self.wanted(Spawn))

    @property
    def asked(self) -> list[str]:
        """The calls that a person is asked about."""
        return [command.call.id for command in self.wanted(RequestApproval)]

    @property
    def ended(self) -> tuple[ExecutionStatus, StopReason | None]:
        return self.state.status, self.state.stop_reason

    @property
    def signals(self) -> list[str]:
        return [each.reason.value for each in self.state.running.continuation.stop_signals]

    @property
    def said(self) -> list[str]:
        return [message.text for message in self.state.messages]

    @property
    def told(self) -> list[str]:
        """The kinds of all events so far."""
        return [type(event).__name__ for event in self.events]

    @property
    def answers(self) -> dict[str, str]:
        return {str(m.tool_call_id): m.text for m in self.state.messages if m.role == "tool"}

    @property
    def outcomes(self) -> list[tuple[str, str]]:
        last: Iterable[ToolExecution] = self.state.last_step_tool_executions
        return [(execution.call.id, execution.outcome.value) for execution in last]


def _call_id(context: HookContext) -> str | None:
    return context.call.id if context.call else None


COMPLETED = (ExecutionStatus.COMPLETED, StopReason.COMPLETED)


def stopped(reason: StopReason) -> tuple[ExecutionStatus, StopReason]:
    return ExecutionStatus.STOPPED, reason


FAILED = (ExecutionStatus.FAILED, StopReason.ERROR)
