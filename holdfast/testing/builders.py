"""Builders of legal values for tests: messages, calls, answers, and states that the real loop has made.

    a_state(conversation=[user("Where is order 17?"), assistant("It left.")], steps=3, status="completed")

Ids are fixed and the clock ticks a second per event, so that equal words give equal states. No state is put together
by hand: what the loop would not bring about cannot be built.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Final
from uuid import UUID

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.initial_state import new_agent
from holdfast.core.agent.state import AgentState
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.messages import Message, Role, ToolCall
from holdfast.core.conversation.steps import AgentStep, ErrorRecord, InferenceResponse
from holdfast.core.conversation.stop_reasons import StopReason, StopSignal
from holdfast.core.loop.agent_loop import AgentLoop
from holdfast.core.loop.events import (
    DriverFailed,
    Event,
    ExecutionStarted,
    ModelAnswered,
    ModelCancelled,
    ModelFailed,
    StopRequested,
    ToolFailed,
    ToolReturned,
)
from holdfast.core.tools.tool_traits import ToolTraits
from holdfast.testing.script import DEFAULT_USAGE

START: Final = datetime(2025, 1, 1, 12, tzinfo=UTC)
"""When everything built here begins."""

AGENT: Final = AgentDefinition(name="tester", system_prompt="Be brief.")
USAGE: Final = Usage(input_tokens=DEFAULT_USAGE[0], output_tokens=DEFAULT_USAGE[1])
QUESTION: Final = "What is to be done?"
ANSWER: Final = "Nothing."
ENDING_IN_A_STEP: Final = frozenset({ExecutionStatus.COMPLETED, ExecutionStatus.FAILED})
STEPS_MAX: Final = 10_000
"""The longest execution that is built."""


def numbered_ids(first: int = 1) -> Callable[[], str]:
    """Return a source of ids that counts: what `LocalDriver(new_id=...)` takes for a run that can be repeated."""
    numbers = count(first)
    return lambda: str(UUID(int=next(numbers)))


def ticking_clock(seconds: float = 1.0, start: datetime = START) -> Callable[[], datetime]:
    """Return a clock that moves on by `seconds` whenever it is read: what `LocalDriver(clock=...)` takes."""
    ticks = count()
    return lambda: start + timedelta(seconds=seconds * next(ticks))


def a_message(text: str = QUESTION, role: Role = "user") -> Message:
    """Return what somebody said."""
    return Message(role=role, content=text)


def user(text: str = QUESTION) -> Message:
    """Return what a person said."""
    return a_message(text)


def assistant(text: str = ANSWER) -> Message:
    """Return what the model said."""
    return a_message(text, "assistant")


def a_call(name: str = "look", call_id: str = "call_1", /, **arguments: Any) -> ToolCall:  # noqa: ANN401  # any JSON
    """Return a call of the tool `name`: `a_call("add", a=1, b=2)`. Calls of one answer need ids of their own."""
    return ToolCall(id=call_id, name=name, arguments=arguments)


def a_response(text: str = "", *calls: ToolCall, usage: Usage = USAGE, finish_reason: str = "") -> InferenceResponse:
    """Return a model's answer; the finish reason follows from `calls` unless it is given."""
    ending = finish_reason or ("tool_calls" if calls else "stop")
    return InferenceResponse(text=text, tool_calls=calls, finish_reason=ending, usage=usage, model="scripted")


def an_error(message: str = "it broke", kind: str = "Boom", source: str = "test") -> ErrorRecord:
    """Return an error as data."""
    return ErrorRecord(type=kind, message=message, source=source)


def a_step(*calls: ToolCall, text: str = "", result: str = "fine", error: ErrorRecord | None = None) -> AgentStep:
    """Return the step of an answer: a final one without `calls`, else one whose calls gave `result` or `error`."""
    run = _Run(AGENT, tools=tuple(call.name for call in calls))
    run.begin(QUESTION, ExecutionBudget())
    run.step(a_response(text or ("" if calls else ANSWER), *calls), result, error)
    return run.state.steps[0]


def a_state(
    *,
    conversation: Sequence[Message] = (),
    steps: int | None = None,
    status: ExecutionStatus | str = ExecutionStatus.COMPLETED,
    reason: StopReason = StopReason.USER_REQUESTED,
    budget: ExecutionBudget | None = None,
    agent: AgentDefinition = AGENT,
    usage: Usage = USAGE,
) -> AgentState:
    """Return the state after the loop has dealt with `conversation`.

    Args:
        conversation: what the person and the agent said in turn, the person first; every question is an execution of
            its own, earlier ones answered in one step each.
        steps: how many steps the last execution has archived: tool calls of the tool `look`, before the answer where
            there is one. By default 1 where it is completed or failed, else 0.
        status: how the last execution stands; `pending` gives the session between two executions.
        reason: why it was stopped, for `stopped`.
        budget: the last execution's limits.
        agent: whose state it is.
        usage: what each model call used.

    Raises InvalidInput for what no run can come to, such as an answer of a run that was stopped.
    """
    expected, exchanges = ExecutionStatus(status), _exchanges(conversation)
    run = _Run(agent, usage=usage)
    if expected is ExecutionStatus.PENDING:
        if steps:
            raise InvalidInput(f"a run that is pending has no steps, not {steps}; it has not begun")
        run.answer(exchanges if conversation else ())
        return run.state.for_next_execution(run.clock())
    *earlier, (question, answer) = exchanges
    run.answer(earlier)
    number = _steps_of(expected, steps, answer)
    run.begin(question, budget or agent.budget)
    run.look(number - (number > 0 and expected in ENDING_IN_A_STEP))
    run.end(expected, answer or ANSWER, reason, whole=number == 0)
    if (run.state.status, run.state.step_count) != (expected, number):
        actual = f"{run.state.status} after {run.state.step_count} steps ({run.state.stop_reason})"
        raise InvalidInput(f"the run is {actual} with this budget, not {expected} after {number}; change one of them")
    return run.state


def _steps_of(status: ExecutionStatus, steps: int | None, answer: str | None) -> int:
    number = int(status in ENDING_IN_A_STEP) if steps is None else steps
    if answer is not None and status is not ExecutionStatus.COMPLETED:
        raise InvalidInput(f"a run that is {status} has not answered; leave out the last answer of the conversation")
    if not 0 <= number <= STEPS_MAX or (number == 0 and status is ExecutionStatus.COMPLETED):
        raise InvalidInput(f"a run that is {status} cannot have {number} steps; at most {STEPS_MAX:,} are built")
    return number


def _exchanges(conversation: Sequence[Message]) -> list[tuple[str, str | None]]:
    """Return each question with its answer; only the last one may lack it."""
    expected: list[Role] = ["user", "assistant"]
    for index, message in enumerate(conversation):
        if message.role != expected[index % 2]:
            raise InvalidInput(
                f"message {index} of the conversation is of {message.role!r}, not {expected[index % 2]!r}"
            )
    texts: list[str | None] = [message.text for message in conversation]
    if len(texts) % 2:
        texts.append(None)
    pairs = [(question or "", answer) for question, answer in zip(texts[::2], texts[1::2], strict=True)]
    return pairs or [(QUESTION, None)]


def _loop(agent: AgentDefinition, tools: Sequence[str]) -> AgentLoop:
    """Make the loop: the one place that knows how."""
    return AgentLoop(agent, tools={name: ToolTraits(name=name) for name in tools})


class _Run:
    """The loop with an event per verb."""

    def __init__(self, agent: AgentDefinition, tools: Sequence[str] = ("look",), usage: Usage = USAGE) -> None:
        self.clock = ticking_clock()
        self._new_id = numbered_ids()
        self._loop = _loop(agent, tools)
        self._usage = usage
        self.state = new_agent(agent, agent_id=self._new_id(), at=self.clock())

    def feed(self, event: Event) -> None:
        self.state, _ = self._loop.step(self.state, event)

    def begin(self, question: str, budget: ExecutionBudget) -> None:
        self.feed(ExecutionStarted(self._new_id(), (user(question),), budget, self.clock()))

    def step(self, response: InferenceResponse, result: str = "fine", error: ErrorRecord | None = None) -> None:
        self.feed(ModelAnswered(response, self.clock()))
        for call in response.tool_calls:
            started_at = self.clock()
            if error is None:
                self.feed(ToolReturned(call.id, result, started_at, self.clock()))
            else:
                self.feed(ToolFailed(call.id, error, started_at, self.clock()))

    def answer(self, exchanges: Sequence[tuple[str, str | None]]) -> None:
        """Deal with each question in an execution of one step."""
        for question, answer in exchanges:
            self.begin(question, ExecutionBudget())
            self.step(a_response(answer or ANSWER, usage=self._usage))

    def look(self, times: int) -> None:
        """Take so many steps with a tool call each."""
        for number in range(1, times + 1):
            self.step(a_response("", a_call("look", f"call_{number}", number=number), usage=self._usage))

    def end(self, status: ExecutionStatus, answer: str, reason: StopReason, *, whole: bool) -> None:
        """Bring the execution to `status`; `whole` when no step may be archived for it."""
        if status is ExecutionStatus.COMPLETED:
            self.step(a_response(answer, usage=self._usage))
        elif status is ExecutionStatus.FAILED:
            failed = DriverFailed if whole else ModelFailed
            self.feed(failed(an_error(), self.clock()))
        elif status is ExecutionStatus.STOPPED:
            at = self.clock()
            signal = StopSignal(reason=reason, message="enough", source="test", at=at)
            self.feed(StopRequested(signal, "now", at))
            self.feed(ModelCancelled(None, at))
