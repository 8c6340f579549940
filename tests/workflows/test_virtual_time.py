"""Days in seconds: the test server of Temporal's Java SDK skips the time in which nothing but timers is under way."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.testservice.v1 import UnlockTimeSkippingRequest
from temporalio.testing import WorkflowEnvironment

from holdfast import AgentDefinition, ExecutionBudget, ExecutionStatus, StopReason, tool
from holdfast.client import Holdfast, Settings
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.errors import ExecutionFailed
from holdfast.core.conversation.steps import Outcome
from holdfast.models import OpenAIChat, ProviderSettings
from holdfast.storage.data_converter import converter
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import Reply, Script, call, say
from workers import make_worker

pytestmark = pytest.mark.temporal

DAY = 24 * 3_600.0
REAL_SECONDS_MAX = 90
PAYS: Script = [call("pay", amount=5), say("settled")]
BUSY = Reply(status=429, headers={"retry-after": "300"})

InVirtualTime = Callable[[Script], AbstractAsyncContextManager[Holdfast]]


@tool
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def careful(**more: Any) -> AgentDefinition:  # noqa: ANN401  # JSON
    """An agent whose payments wait for a person."""
    rule = {"tools": ["pay"], "expires_seconds": more.pop("expires_seconds", None)}
    return AgentDefinition.model_validate({"name": "careful", "tools": "all", "approvals": [rule], **more})


@pytest.fixture
def in_virtual_time(settings: Settings) -> InVirtualTime:
    @asynccontextmanager
    async def serving(script: Script) -> AsyncGenerator[Holdfast]:
        program = Path(sys.executable).with_name("temporal-test-server")
        assert program.exists(), "it comes with the dependency group `engines`"
        async with (
            FakeOpenAI(script) as endpoint,
            await WorkflowEnvironment.start_time_skipping(
                test_server_existing_path=str(program), data_converter=converter(settings.storage_place, None)
            ) as environment,
        ):
            model = OpenAIChat(ProviderSettings(base_url=endpoint.base_url, api_key="test-key", model="scripted"))
            try:
                async with make_worker(environment.client, settings, Toolset(tools=(pay,)), model):
                    await environment.client.test_service.unlock_time_skipping(UnlockTimeSkippingRequest())
                    yield Holdfast(environment.client, settings)
            finally:
                await model.close()

    return serving


@pytest.fixture(autouse=True)
def quick() -> Generator[None]:
    """None of these takes as long as it says."""
    begun = time.monotonic()
    yield
    assert time.monotonic() - begun < REAL_SECONDS_MAX


def lasted(state: AgentState) -> float:
    assert state.execution_duration is not None
    return state.execution_duration.total_seconds()


async def test_a_time_limit_of_a_day_strikes_after_a_day(in_virtual_time: InVirtualTime) -> None:
    async with in_virtual_time(PAYS) as client:
        state = await client.run(careful(), "pay", budget=ExecutionBudget(max_seconds=DAY))
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.TIME_LIMIT)
    assert DAY <= lasted(state.state) < DAY + 60


async def test_two_days_of_waiting_for_a_person_do_not_count_where_they_are_not_to(
    in_virtual_time: InVirtualTime,
) -> None:
    agent = careful(expires_seconds=2 * DAY, pause_while_waiting=True)
    async with in_virtual_time(PAYS) as client:
        state = await client.run(agent, "pay", budget=ExecutionBudget(max_seconds=60))
    assert (state.status, state.state.final_response) == (ExecutionStatus.COMPLETED, "settled")
    assert [each.outcome for each in state.state.step_executions[0].step.tool_executions] == [Outcome.DENIED]
    assert 2 * DAY <= lasted(state.state) < 2 * DAY + 60


async def test_two_days_of_waiting_for_a_person_count_by_default(in_virtual_time: InVirtualTime) -> None:
    agent = careful(expires_seconds=2 * DAY)
    async with in_virtual_time(PAYS) as client:
        state = await client.run(agent, "pay", budget=ExecutionBudget(max_seconds=DAY))
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.TIME_LIMIT)


async def test_an_endpoint_that_asks_for_minutes_gets_them(in_virtual_time: InVirtualTime) -> None:
    script = [say("there again", failures=(BUSY, BUSY, BUSY))]
    async with in_virtual_time(script) as client:
        state = await client.run(AgentDefinition(name="patient", tools="all"), "How are you?")
    assert (state.status, state.state.final_response) == (ExecutionStatus.COMPLETED, "there again")
    assert 900 <= lasted(state.state) < 960


@pytest.mark.slow
async def test_an_endpoint_that_is_away_for_twenty_minutes_is_waited_for(in_virtual_time: InVirtualTime) -> None:
    script = [say("there again", failures=(Reply(status=503),) * 45)]
    async with in_virtual_time(script) as client:
        agent = AgentDefinition(name="patient", model_patience_seconds=1_800)
        state = await client.run(agent, "How are you?")
    assert (state.status, state.state.final_response) == (ExecutionStatus.COMPLETED, "there again")
    assert 1_200 <= lasted(state.state) < 1_260


@pytest.mark.slow
async def test_a_call_is_given_up_after_a_quarter_of_an_hour_by_default(in_virtual_time: InVirtualTime) -> None:
    async with in_virtual_time([say("too late", failures=(Reply(status=503),) * 200)]) as client:
        execution_id = await client.start(AgentDefinition(name="patient"), "How are you?")
        with pytest.raises(ExecutionFailed, match="model_patience_seconds is 900"):
            await client.result(execution_id)
        state = await client.state(execution_id)
    assert 900 <= lasted(state) < 930
