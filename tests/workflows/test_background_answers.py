"""Answers that a provider makes in the background, for runs on a real server that are stopped or out of time."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from holdfast.client import Holdfast, Settings
from holdfast.connection.worker_settings import WorkerSettings
from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import LLM, AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.bounds import MODEL_GRACE_SECONDS
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.models import ProviderSettings
from holdfast.testing.responses_server import FakeResponses
from holdfast.testing.script import Reply, say
from tests.models.asking_responses import Known
from tests.workflows.histories import replayed
from workers import make_worker

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(180)]

CLERK = AgentDefinition(name="clerk", llm=LLM(background=True))
PLAIN = AgentDefinition(name="clerk", llm=LLM(background=True, stream=False))


@asynccontextmanager
async def serving(settings: Settings, turn: Reply) -> AsyncGenerator[tuple[Holdfast, FakeResponses, Known]]:
    """Serve `turn` to a worker of this process."""
    async with FakeResponses([turn]) as endpoint:
        model = Known(ProviderSettings(base_url=endpoint.base_url, api_key="test-key", model="scripted"))
        client = await Holdfast.connect(settings)
        try:
            async with make_worker(
                client.temporal, settings, Toolset(), model, None, WorkerSettings.from_environment()
            ):
                yield client, endpoint, model
        finally:
            await model.close()


@pytest.mark.parametrize("agent", [CLERK, PLAIN], ids=["streamed", "polled"])
@pytest.mark.parametrize("pieces", [None, 5], ids=["queued", "in progress"])
async def test_a_stop_cancels_the_answer_at_the_provider(
    settings: Settings, agent: AgentDefinition, pieces: int | None
) -> None:
    async with serving(settings, say("never", pieces_max=pieces, hang=True)) as (client, endpoint, model):
        execution_id = await client.start(agent, "Where is it?")
        await model.known.wait()
        assert endpoint.background[0].status == ("queued" if pieces is None else "in_progress")
        await client.stop(execution_id, "enough")
        state = await client.result(execution_id)
        await endpoint.background[0].until("cancelled")
        assert sum(each.path == "/v1/responses" for each in endpoint.requests) == 1
        await replayed(client, execution_id)
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.USER_REQUESTED)
    assert 0 < state.usage.total_tokens == state.usage.estimated_tokens


async def test_the_time_limit_cancels_it_too(settings: Settings) -> None:
    limited = AgentDefinition(
        name="clerk", llm=LLM(background=True), budget=ExecutionBudget(max_seconds=2 * MODEL_GRACE_SECONDS)
    )
    async with serving(settings, say("never", pieces_max=5, hang=True)) as (client, endpoint, _):
        state = await client.result(await client.start(limited, "Where is it?"))
        await endpoint.background[0].until("cancelled")
    assert state.stop_reason is StopReason.TIME_LIMIT


async def test_an_operators_termination_cancels_it_too(settings: Settings) -> None:
    async with serving(settings, say("never", pieces_max=5, hang=True)) as (client, endpoint, model):
        execution_id = await client.start(CLERK, "Where is it?")
        await model.known.wait()
        await client.temporal.get_workflow_handle(execution_id).terminate("by an operator")
        await endpoint.background[0].until("cancelled")
