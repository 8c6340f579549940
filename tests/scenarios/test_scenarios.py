"""Every scenario ends as it must, and the in-process driver and Temporal leave the very same state behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from holdfast.client import Settings
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.bounds import CALLS_PER_STEP_MAX, CONTINUE_EVENTS
from holdfast.core.wire.execution_events import AgentStepStarted
from holdfast.testing import assert_every_call_answered, assert_same_run
from holdfast.testing.openai_server import FakeOpenAI, RequestRecord
from holdfast.testing.script import Call, calls, say
from tests.scenarios.driving import UNEQUAL, locally, on_temporal
from tests.scenarios.expected import disappointments
from tests.scenarios.hooks import HOOKS
from tests.scenarios.scenario import CASES, Scenario, load
from tests.scenarios.tools import Gate, tools_at
from tests.serving import Serve
from tests.serving import served as served_at

FILES = sorted(CASES.glob("*.yaml"))
SCENARIOS = {path.stem: load(path) for path in FILES}
LENGTHS = {"one run": CONTINUE_EVENTS, "a run for each step": 1}
ON_TEMPORAL = {
    f"{name}-{length}": (scenario, events)
    for name, scenario in SCENARIOS.items()
    for length, events in LENGTHS.items()
    if events == CONTINUE_EVENTS or scenario.goes_on  # one step is one run, whatever the length
}


def assert_ended_well(
    scenario: Scenario,
    state: AgentState,
    requests: Sequence[RequestRecord],
    observed: Sequence[str] | None = None,
) -> None:
    found = disappointments(scenario.expect, state, requests, observed)
    assert not found, "\n".join(found)
    assert_every_call_answered(state)
    assert AgentState.from_dict(state.to_dict()) == state


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
async def test_a_scenario_ends_as_it_must(scenario: Scenario) -> None:
    async with FakeOpenAI(scenario.plays) as endpoint:
        state, observed = await locally(scenario, endpoint, str(uuid4()), str(uuid4()))
    assert_ended_well(scenario, state, endpoint.requests, observed)
    assert scenario.goes_on or observed.count(AgentStepStarted.__name__) < 2, "it is to be tried in several runs, too"


@pytest.mark.temporal
@pytest.mark.parametrize(("scenario", "continue_events"), ON_TEMPORAL.values(), ids=ON_TEMPORAL)
async def test_a_scenario_leaves_the_same_state_in_process_and_on_temporal(
    scenario: Scenario, settings: Settings, tmp_path: Path, continue_events: int
) -> None:
    gate, agent_id, execution_id = Gate(), str(uuid4()), str(uuid4())
    offer = Toolset(tools=tuple(tools_at(gate)), hooks=HOOKS)
    chosen = replace(settings, continue_events=continue_events)
    async with served_at(chosen, tmp_path / "ledger.jsonl", scenario.plays, offer) as served:
        durable = await on_temporal(scenario, served, gate, agent_id, execution_id)
        asked = served.endpoint.requests
        served.endpoint.begin_again()
        local, _ = await locally(scenario, served.endpoint, agent_id, execution_id)
    assert_ended_well(scenario, durable, asked)
    assert_same_run(durable, local, ignoring=UNEQUAL)


@pytest.mark.temporal
async def test_the_largest_step_there_can_be_is_readable(serve: Serve) -> None:
    wanted = calls(*[Call("echo", {"text": "x" * 100, "times": 1_000})] * CALLS_PER_STEP_MAX)
    async with serve([wanted, say("done")], tools_at(Gate())) as served:
        state = await served.client.run(AgentDefinition(name="scenario", tools="all"), "Do it.")
    answers = [message.text for message in state.messages if message.role == "tool"]
    assert len(answers) == CALLS_PER_STEP_MAX
    assert not any(answer.startswith("Error") for answer in answers)
