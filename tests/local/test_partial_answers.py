"""What the in-process driver learns of what it cancels: partial answers, what failed attempts and subagents used."""

from __future__ import annotations

import asyncio

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.model import AnswerPart, Model, ModelRequest
from holdfast.core.agent.state import AgentState
from holdfast.core.base.errors import ModelFailure
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.conversation.steps import InferenceResponse, Outcome
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.local import LocalDriver
from holdfast.models.function_model import FunctionModel

AGENT = AgentDefinition(name="local")
HELPER = AgentDefinition(name="helper")
PARENT = AgentDefinition(name="parent", subagents=("helper",))
PROMPTLY_SECONDS = 60.0


class Speaker(Model):
    """A model that says something and never comes to its end; its first attempt fails where `fails_first`."""

    def __init__(self, *, fails_first: bool = False, stubborn: bool = False) -> None:
        self.spoke = asyncio.Event()
        self._failures = int(fails_first)
        self._stubborn = stubborn

    async def __call__(self, request: ModelRequest) -> InferenceResponse:
        assert request.listener is not None
        if self._failures:
            self._failures -= 1
            request.listener(AnswerPart(text="void"))
            raise ModelFailure("busy", kind="ProviderUnavailable", again=True, usage=Usage(input_tokens=5))
        request.listener(AnswerPart(text="As far "))
        request.listener(AnswerPart(text="as I", usage=Usage(input_tokens=30, output_tokens=4)))
        self.spoke.set()
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if not self._stubborn:
                    raise
                self._stubborn = False  # once is enough, the test has to end


async def stopped(model: Speaker) -> AgentState:
    driver = LocalDriver(AGENT, model=model)
    run = asyncio.create_task(driver.execute("Go on."))
    await asyncio.wait_for(model.spoke.wait(), PROMPTLY_SECONDS)
    driver.stop("enough")
    return await asyncio.wait_for(run, PROMPTLY_SECONDS)


def partial(state: AgentState) -> InferenceResponse:
    step = state.running.current_step
    assert step is not None
    assert step.partial_response is not None
    return step.partial_response


async def test_a_stop_keeps_what_had_come_of_the_answer() -> None:
    state = await stopped(Speaker())
    assert (state.stop_reason, state.step_count) == (StopReason.USER_REQUESTED, 0)
    assert (partial(state).text, partial(state).finish_reason) == ("As far as I", "cancelled")
    assert state.usage == Usage(input_tokens=30, output_tokens=4)
    assert state.current_response == "As far as I"


async def test_what_an_attempt_used_that_failed_before_counts_as_well_and_its_words_are_void() -> None:
    state = await stopped(Speaker(fails_first=True))
    assert partial(state).text == "As far as I"
    assert state.usage == Usage(input_tokens=35, output_tokens=4)


async def test_a_model_that_does_not_heed_it_holds_nothing_up() -> None:
    model = Speaker(stubborn=True)
    state = await stopped(model)
    assert partial(state).text == "As far as I"


async def test_the_time_limit_keeps_it_as_well() -> None:
    for seconds in (0.2, 2, 20):  # a busy machine may need the first for nothing
        model = Speaker()
        state = await LocalDriver(AGENT, model=model).execute("Go on.", budget=ExecutionBudget(max_seconds=seconds))
        if model.spoke.is_set():
            break
    assert state.stop_reason is StopReason.TIME_LIMIT
    assert partial(state).text == "As far as I"


async def test_what_a_stopped_subagent_used_reaches_its_parent() -> None:
    speaker = Speaker()

    async def model(request: ModelRequest) -> InferenceResponse:
        if request.tools:
            call = ToolCall(id="a", name="spawn", arguments={"agent": "helper", "task": "speak"})
            return InferenceResponse(tool_calls=(call,), usage=Usage(input_tokens=100, output_tokens=10))
        return await speaker(request)

    chosen: Model = FunctionModel(model)
    driver = LocalDriver(PARENT, model=chosen, agents=[HELPER])
    run = asyncio.create_task(driver.execute("Go on."))
    await asyncio.wait_for(speaker.spoke.wait(), PROMPTLY_SECONDS)
    driver.stop("enough")
    state = await asyncio.wait_for(run, PROMPTLY_SECONDS)
    execution = state.last_tool_execution
    assert execution is not None
    assert (execution.outcome, execution.usage) == (Outcome.CANCELLED, Usage(input_tokens=30, output_tokens=4))
    assert state.usage == Usage(input_tokens=130, output_tokens=14)
