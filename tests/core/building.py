"""A run of the loop for tests, short to write: fixed ids, a clock that ticks, the rules checked after each event."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Self, TypeVar
from uuid import UUID

from holdfast.core.budget import ExecutionBudget
from holdfast.core.commands import CallModel, CallTool, Command
from holdfast.core.definition import LLM, AgentDefinition
from holdfast.core.events import (
    DriverFailed,
    Event,
    ExecutionStarted,
    ModelAnswered,
    ModelFailed,
    StopMode,
    StopRequested,
    TimerFired,
    ToolFailed,
    ToolReturned,
)
from holdfast.core.loop import AgentLoop, new_agent, user_message
from holdfast.core.messages import ToolCall
from holdfast.core.state import AgentState, ExecutionStatus
from holdfast.core.steps import ErrorRecord, InferenceResponse, ToolExecution
from holdfast.core.stopping import StopReason, StopSignal
from holdfast.core.tools import ToolTraits
from holdfast.core.usage import Usage
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


def signal(reason: StopReason, message: str = "", seconds: float = 0) -> StopSignal:
    return StopSignal(reason=reason, message=message, source="test", at=moment(seconds))


class Run:
    """One agent under test. Every verb is one event; `state` and `commands` are what came of the latest."""

    def __init__(
        self,
        budget: ExecutionBudget | None = None,
        *,
        tools: Iterable[str] = ("add", "echo"),
        llm: LLM | None = None,
    ) -> None:
        definition = DEFINITION if llm is None else DEFINITION.model_copy(update={"llm": llm})
        self.loop = AgentLoop(definition, tools={name: ToolTraits(name=name) for name in tools})
        self.budget = budget or ExecutionBudget()
        self.state: AgentState = new_agent(definition, agent_id=AGENT_ID, at=START)
        self.commands: tuple[Command, ...] = ()
        self.seconds = 0.0
        self._executions = 1

    def feed(self, event: Event) -> None:
        before = self.state
        dump = before.to_dict()
        self.state, self.commands = self.loop.step(before, event)
        assert_legal(before, dump, event, self.state, self.commands)
        assert self.loop.step(before, event) == (self.state, self.commands), "equal inputs gave unequal outputs"

    def tick(self, seconds: float = 1.0) -> datetime:
        self.seconds += seconds
        return moment(self.seconds)

    def begin(self, question: str = "Do it.") -> Self:
        self._executions += 1
        id_ = str(UUID(int=self._executions))
        self.feed(ExecutionStarted(id_, (user_message(question),), self.budget, self.tick()))
        return self

    def answer(
        self, text: str = "", *calls: ToolCall, usage: Usage = USAGE, finish_reason: str = "", after: float = 1
    ) -> Self:
        ending = finish_reason or ("tool_calls" if calls else "stop")
        response = InferenceResponse(text=text, tool_calls=calls, finish_reason=ending, usage=usage)
        self.feed(ModelAnswered(response, self.tick(after)))
        return self

    def model_fails(self, error: ErrorRecord = BOOM) -> Self:
        self.feed(ModelFailed(error, self.tick()))
        return self

    def returns(self, call_id: str, result: str = "fine") -> Self:
        self.feed(ToolReturned(call_id, result, moment(self.seconds), self.tick()))
        return self

    def fails(self, call_id: str, error: ErrorRecord = BOOM) -> Self:
        self.feed(ToolFailed(call_id, error, moment(self.seconds), self.tick()))
        return self

    def stop(self, message: str = "enough", mode: StopMode = "now") -> Self:
        at = self.tick()
        self.feed(
            StopRequested(StopSignal(reason=StopReason.USER_REQUESTED, message=message, source="me", at=at), mode, at)
        )
        return self

    def timer(self, after: float = 1) -> Self:
        self.feed(TimerFired(self.tick(after)))
        return self

    def driver_fails(self, error: ErrorRecord = BOOM) -> Self:
        self.feed(DriverFailed(error, self.tick()))
        return self

    def wanted(self, kind: type[CommandT]) -> tuple[CommandT, ...]:
        return tuple(command for command in self.commands if isinstance(command, kind))

    @property
    def model_call(self) -> CallModel:
        (found,) = self.wanted(CallModel)
        return found

    @property
    def called(self) -> list[str]:
        return [command.call.id for command in self.wanted(CallTool)]

    @property
    def ended(self) -> tuple[ExecutionStatus, StopReason | None]:
        return self.state.status, self.state.stop_reason

    @property
    def answers(self) -> dict[str, str]:
        return {str(m.tool_call_id): m.text for m in self.state.messages if m.role == "tool"}

    @property
    def outcomes(self) -> list[tuple[str, str]]:
        last: Iterable[ToolExecution] = self.state.last_step_tool_executions
        return [(execution.call.id, execution.outcome.value) for execution in last]


COMPLETED = (ExecutionStatus.COMPLETED, StopReason.COMPLETED)


def stopped(reason: StopReason) -> tuple[ExecutionStatus, StopReason]:
    return ExecutionStatus.STOPPED, reason


FAILED = (ExecutionStatus.FAILED, StopReason.ERROR)
