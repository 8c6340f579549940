"""A step goes on with another model where its own cannot be asked, on a real server (docs/spec.md, 6.17)."""

from __future__ import annotations

import pytest

from holdfast import LLM, AgentDefinition, ExecutionStatus, tool
from holdfast.core.base.errors import ExecutionFailed
from holdfast.events import ModelFellBack
from holdfast.testing.script import Reply, call, say
from tests.serving import Serve
from tests.workflows.histories import replayed
from tests.workflows.test_story_on_server import details_with

pytestmark = pytest.mark.temporal

ROUTES = LLM.model_validate({"model": "first", "fallback": ["second"]})
AGENT = AgentDefinition(name="clerk", llm=ROUTES, tools=("add",), model_patience_seconds=1)
GONE = Reply(disconnect=True)


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_a_step_whose_endpoint_is_gone_is_answered_by_the_next_one(serve: Serve) -> None:
    first = [call("add", a=1, b=2), say("nobody hears this", failures=(GONE,) * 20)]
    async with serve({"first": first, "second": [say("nor this"), say("three")]}, [add]) as served:
        execution_id = await served.client.start(AGENT, "How much is it?")
        state = await served.client.result(execution_id)
        events = [each async for each in served.client.watch(execution_id) if isinstance(each, ModelFellBack)]
        details = await details_with(served.client, execution_id, "second")
        await replayed(served.client, execution_id)
    assert (state.status, state.final_response) == (ExecutionStatus.COMPLETED, "three")
    assert [[each.to for each in done.step.fallbacks] for done in state.step_executions] == [[], ["second"]]
    assert {each.fallback.error.type for each in events} == {"ProviderUnavailable"}
    assert [each.step_number for each in events] == [2]
    assert "instead of `first`" in details


async def test_the_last_models_failure_fails_the_run_and_every_attempt_is_counted(serve: Serve) -> None:
    away = [Reply(status=503, text="we are moving house")] * 20
    async with serve({"first": [Reply(status=402, text="no credit")], "second": away}, [add]) as served:
        execution_id = await served.client.start(AGENT, "How much is it?")
        with pytest.raises(ExecutionFailed, match="moving house"):
            await served.client.result(execution_id)
        state = await served.client.state(execution_id)
        await replayed(served.client, execution_id)
    assert state.status is ExecutionStatus.FAILED
    assert [error.type for error in state.errors] == ["ProviderUnavailable"]
    assert [[each.error.type for each in done.step.fallbacks] for done in state.step_executions] == [["QuotaExceeded"]]
