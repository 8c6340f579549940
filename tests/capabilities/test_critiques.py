"""Critiques on a real server: by a rubric and by another agent, refused, accepted, and stopped in the middle."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.policies import Critique
from holdfast.core.agent.state import AgentState
from holdfast.core.base.errors import UnknownAgent
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.testing.script import Reply, say
from tests.capabilities.twin import assert_same_in_process
from tests.serving import Serve
from tests.workflows.histories import replayed
from tests.workflows.waiting import state_when

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(180)]

YES = '{"accepted": true, "reasons": []}'
NO = '{"accepted": false, "reasons": ["no source"]}'
JUDGES = ("You judge", "You are strict.")
AGENT = AgentDefinition(name="clerk", critique=Critique(rubric="It names a source."))


def desk(request: dict[str, Any]) -> Reply:
    """The answer names a source once it was asked for again; whoever judges wants one."""
    first, last = (str(request["messages"][place]["content"]) for place in (0, -1))
    if first.startswith(JUDGES):
        return say(YES if "page 3" in last else NO)
    return say("It is so, see page 3." if "not accepted" in last else "It is so.")


def outcomes(state: AgentState) -> list[str]:
    return [step.judgement.outcome for step in state.steps if step.judgement]


async def test_a_refused_answer_is_mended_and_the_critics_runs_are_children(serve: Serve) -> None:
    async with serve(desk) as served:
        execution_id = await served.client.start(AGENT, "Go.")
        state = await served.client.result(execution_id)
        bodies = [each.body for each in served.endpoint.requests]
        await replayed(served.client, execution_id)
    assert (state.status, state.final_response) == (ExecutionStatus.COMPLETED, "It is so, see page 3.")
    assert outcomes(state) == ["refused", "accepted"]
    assert "It names a source." in bodies[1]["messages"][0]["content"]
    assert bodies[1]["response_format"]["type"] == "json_schema"
    assert "- no source" in bodies[2]["messages"][-1]["content"]
    assert state.steps_used == 4
    await assert_same_in_process(AGENT, desk, state)


async def test_another_agent_judges_and_its_name_is_checked_at_the_start(serve: Serve) -> None:
    agent = AGENT.model_copy(update={"critique": Critique(agent="reviewer", rounds=1)})
    reviewer = AgentDefinition(name="reviewer", system_prompt="You are strict.")
    async with serve(desk) as served:
        with pytest.raises(UnknownAgent, match=r"critique\.agent: names 'reviewer'"):
            await served.client.start(agent, "Go.")
        execution_id = await served.client.start(agent, "Go.", subagents=[reviewer])
        state = await served.client.result(execution_id)
        await replayed(served.client, execution_id)
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.RETRY_LIMIT)
    assert state.final_response == ""
    await assert_same_in_process(agent, desk, state, agents=[reviewer])


def hung(request: dict[str, Any]) -> Reply:
    return Reply(hang=True) if "You judge" in str(request["messages"][0]) else say("It is so.")


async def test_a_stop_is_heard_by_the_critic_and_the_answer_does_not_count(serve: Serve) -> None:
    async with serve(hung) as served:
        execution_id = await served.client.start(AGENT, "Go.")
        await state_when(served.client, execution_id, lambda state: bool(state.running.subagents_started))
        async with asyncio.timeout(90):
            while len(served.endpoint.requests) < 2:  # noqa: ASYNC110  # nobody is called back
                await asyncio.sleep(0.02)
        await served.client.stop(execution_id, "enough")
        state = await served.client.result(execution_id)
        await replayed(served.client, execution_id)
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.USER_REQUESTED)
    assert outcomes(state) == ["unjudged"]
    assert state.final_response == ""
