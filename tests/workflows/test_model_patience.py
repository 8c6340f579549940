"""A model call fails for a run by the clock alone: how long is the definition's `model_patience_seconds`."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from holdfast import AgentDefinition, ExecutionStatus, StopReason
from holdfast.client import AttemptFailed
from holdfast.client.run_source import RunSource
from holdfast.core.base.errors import ExecutionFailed
from holdfast.core.base.frozen import replace
from holdfast.local import LocalDriver
from holdfast.testing import ScriptedModel
from holdfast.testing.script import Reply, say
from tests.serving import Serve
from tests.workflows.histories import history_of, replayed
from tests.workflows.test_story_on_server import details_with

pytestmark = pytest.mark.temporal

AGENT = AgentDefinition(name="patient")
AWAY = Reply(status=503, text="we are moving house")
CUT = Reply(text="Once upon a time", pieces_max=3)
FAR = Reply(status=429, headers={"retry-after": "60"}, text="not now")


@pytest.mark.parametrize(("patience", "attempts"), [(0, 1), (1, 3)])
@pytest.mark.parametrize("fault", [AWAY, CUT, Reply(disconnect=True)], ids=["503", "cut", "disconnected"])
async def test_a_call_is_given_up_when_patience_is_over(
    serve: Serve, fault: Reply, patience: float, attempts: int
) -> None:
    agent = replace(AGENT, model_patience_seconds=patience)
    async with serve([say("too late", failures=(fault,) * 20)]) as served:
        execution_id = await served.client.start(agent, "How are you?")
        with pytest.raises(ExecutionFailed, match=f"model_patience_seconds is {patience}"):
            await served.client.result(execution_id)
        state = await served.client.state(execution_id)
        assert 1 <= len(served.endpoint.requests) <= attempts
        await replayed(served.client, execution_id)
    assert [error.type for error in state.errors] == ["ProviderUnavailable"]
    assert state.execution_duration is not None
    assert state.execution_duration.total_seconds() >= patience


async def test_a_run_says_that_it_waits_for_its_endpoint_and_until_when(serve: Serve) -> None:
    async with serve([say("late", failures=(FAR,))]) as served:
        client = served.client
        execution_id = await client.start(AGENT, "How are you?")
        async with aclosing(client.watch(execution_id)) as watched:
            async with asyncio.timeout(90):
                failed = await anext(each async for each in watched if isinstance(each, AttemptFailed))
        told = await RunSource.find(client, execution_id)
        assert await told.model_wait() == failed, "`show` says the same as `watch`"
        details = await details_with(client, execution_id, "Waiting for the model endpoint")
        await client.stop(execution_id)
        state = await client.result(execution_id)
        signals = [
            each.workflow_execution_signaled_event_attributes.signal_name
            for each in (await history_of(client, execution_id)).events
            if each.HasField("workflow_execution_signaled_event_attributes")
        ]
        await replayed(client, execution_id)
    assert failed.attempt == 1
    assert failed.next_at is not None
    assert state.execution is not None
    assert 55 < (failed.next_at - state.execution.started_at).total_seconds() < 75
    assert "waiting for the model endpoint, attempt 1 failed, next in " in failed.line(state.execution.started_at)
    assert "not now" in failed.message
    assert "attempt 1, next at" in details
    assert "not now" in details
    assert signals.count("model_wait") == 1
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.USER_REQUESTED)


async def test_a_short_wait_costs_the_history_nothing(serve: Serve) -> None:
    async with serve([say("there", failures=(AWAY, AWAY))]) as served:
        execution_id = await served.client.start(AGENT, "How are you?")
        await served.client.result(execution_id)
        events = (await history_of(served.client, execution_id)).events
    assert not any(each.HasField("workflow_execution_signaled_event_attributes") for each in events)


async def test_in_a_process_patience_is_the_same() -> None:
    agent = replace(AGENT, model_patience_seconds=1)
    model = ScriptedModel([say("too late", failures=(AWAY,) * 20)])
    state = await LocalDriver(agent, model=model).execute("How are you?")
    assert state.status is ExecutionStatus.FAILED
    assert "given up after 3 attempts (model_patience_seconds is 1)" in state.errors[0].message
