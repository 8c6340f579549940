"""A model call that an operator resets while it is under way: what it had used counts beside the answer."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetActivityRequest

from activities.transcript_cache import TranscriptCache
from holdfast import AgentDefinition
from holdfast.client import Holdfast, Settings
from holdfast.connection.worker_settings import WorkerSettings
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.toolset import Toolset
from holdfast.models import OpenAIChat, ProviderSettings
from holdfast.testing import FakeOpenAI
from holdfast.testing.holds import Hold
from holdfast.testing.script import Reply
from workers import make_worker


@pytest.mark.temporal
@pytest.mark.timeout(120)
@pytest.mark.parametrize("heartbeats", [True, False], ids=["with heartbeats", "without heartbeats"])
async def test_what_a_reset_call_had_used_counts(settings: Settings, *, heartbeats: bool) -> None:
    execution_id, hold = str(uuid4()), Hold()
    begun = Reply(text="It is a long story.", hold=hold, pieces_max=3)
    async with FakeOpenAI([Reply(text="Short.", failures=(begun,), usage=(100, 20))]) as endpoint:
        client = await Holdfast.connect(settings)
        model = OpenAIChat(ProviderSettings(base_url=endpoint.base_url, api_key="k", model="scripted"))
        cache = TranscriptCache(bytes_max=0)
        async with make_worker(client.temporal, settings, Toolset(), model, cache, WorkerSettings.from_environment()):
            await client.start(AgentDefinition(name="clerk"), "go", execution_id=execution_id)
            async with asyncio.timeout(60):
                await asyncio.to_thread(hold.wait_until_held)
                await client.temporal.workflow_service.reset_activity(
                    ResetActivityRequest(
                        namespace=client.temporal.namespace,
                        execution=WorkflowExecution(workflow_id=execution_id),
                        id="step-1-model",
                        reset_heartbeat=not heartbeats,
                    )
                )
                state = await client.result(execution_id)
        await model.close()
    assert isinstance(state, AgentState)
    assert (state.final_response, len(endpoint.requests)) == ("Short.", 2)
    assert state.usage.total_tokens > 120
    assert state.usage.total_tokens - state.usage.estimated_tokens == 120
