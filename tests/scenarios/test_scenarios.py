"""Every scenario ends as it must, and the in-process driver and Temporal leave the very same state behind."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from holdfast.client import Settings
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.base.bounds import CALLS_PER_STEP_MAX
from holdfast.core.wire.execution_events import AgentStepStarted
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import Call, calls, say
from tests.scenarios.driving import locally
from tests.scenarios.outcome import SCENARIOS, assert_ended_well, assert_the_same_state
from tests.scenarios.scenario import Scenario
from tests.scenarios.tools import Gate, tools_at
from tests.serving import Serve


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
async def test_a_scenario_ends_as_it_must(scenario: Scenario) -> None:
    async with FakeOpenAI(scenario.plays) as endpoint:
        state, observed = await locally(scenario, endpoint, str(uuid4()), str(uuid4()))
    assert_ended_well(scenario, state, endpoint.requests, observed)
    assert scenario.goes_on or observed.count(AgentStepStarted.__name__) < 2, "it is to be tried in several runs, too"


@pytest.mark.temporal
@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
async def test_a_scenario_leaves_the_same_state_in_process_and_on_temporal(
    scenario: Scenario, settings: Settings, tmp_path: Path
) -> None:
    await assert_the_same_state(scenario, settings, tmp_path)


@pytest.mark.temporal
async def test_the_largest_step_there_can_be_is_readable(serve: Serve) -> None:
    wanted = calls(*[Call("echo", {"text": "x" * 100, "times": 1_000})] * CALLS_PER_STEP_MAX)
    async with serve([wanted, say("done")], tools_at(Gate())) as served:
        state = await served.client.run(AgentDefinition(name="scenario", tools="all"), "Do it.")
    answers = [message.text for message in state.messages if message.role == "tool"]
    assert len(answers) == CALLS_PER_STEP_MAX
    assert not any(answer.startswith("Error") for answer in answers)
