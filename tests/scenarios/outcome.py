"""What must hold of a scenario's end, wherever it ran."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

from holdfast.client import Settings
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.toolset import Toolset
from holdfast.testing import assert_every_call_answered, assert_same_run
from holdfast.testing.openai_server import RequestRecord
from tests.scenarios.driving import UNEQUAL, locally, on_temporal
from tests.scenarios.expected import disappointments
from tests.scenarios.hooks import HOOKS
from tests.scenarios.scenario import CASES, Scenario, load
from tests.scenarios.tools import Gate, tools_at
from tests.serving import served

FILES = sorted(CASES.glob("*.yaml"))
SCENARIOS = {path.stem: load(path) for path in FILES}


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


async def assert_the_same_state(scenario: Scenario, settings: Settings, folder: Path) -> None:
    """Run the scenario on Temporal and in this process: it ends as it must, with the very same state."""
    gate, agent_id, execution_id = Gate(), str(uuid4()), str(uuid4())
    offer = Toolset(tools=tuple(tools_at(gate)), hooks=HOOKS)
    async with served(settings, folder / "ledger.jsonl", scenario.plays, offer) as serving:
        durable = await on_temporal(scenario, serving, gate, agent_id, execution_id)
        asked = serving.endpoint.requests
        serving.endpoint.begin_again()
        local, _ = await locally(scenario, serving.endpoint, agent_id, execution_id)
    assert_ended_well(scenario, durable, asked)
    assert_same_run(durable, local, ignoring=UNEQUAL)
