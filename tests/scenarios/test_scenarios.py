"""Every scenario ends as it must, and the in-process driver and Temporal leave the very same state behind."""

from __future__ import annotations

from uuid import uuid4

import pytest

from holdfast.core.state import AgentState
from holdfast.testing.openai_server import FakeOpenAI
from tests.core.invariants import assert_every_call_has_one_answer
from tests.scenarios.driving import locally, masked, on_temporal
from tests.scenarios.scenarios import SCENARIOS, Gate, Scenario, tools_at
from tests.serving import Serve

each_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)


def assert_ended_well(scenario: Scenario, state: AgentState) -> None:
    answers = [message.content for message in state.messages if message.role == "tool"]
    assert (state.status, state.stop_reason) == scenario.ends
    assert scenario.check(answers), answers
    assert_every_call_has_one_answer(state.messages)
    assert AgentState.from_dict(state.to_dict()) == state


@each_scenario
async def test_a_scenario_ends_as_it_must(scenario: Scenario) -> None:
    async with FakeOpenAI(scenario.script) as endpoint:
        state = await locally(scenario, endpoint, str(uuid4()), str(uuid4()))
    assert_ended_well(scenario, state)


@pytest.mark.temporal
@each_scenario
async def test_a_scenario_leaves_the_same_state_in_process_and_on_temporal(scenario: Scenario, serve: Serve) -> None:
    gate, agent_id, execution_id = Gate(), str(uuid4()), str(uuid4())
    async with serve(scenario.script, tools_at(gate)) as served:
        durable = await on_temporal(scenario, served, gate, agent_id, execution_id)
        local = await locally(scenario, served.endpoint, agent_id, execution_id)
    assert_ended_well(scenario, durable)
    assert masked(durable).to_dict() == masked(local).to_dict()
    assert masked(durable) == masked(local)
