"""Every scenario leaves the same state on Temporal where each step is a run of its own (continue-as-new)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.client import Settings
from tests.scenarios.outcome import SCENARIOS, assert_the_same_state
from tests.scenarios.scenario import Scenario

# one step is one run, whatever its length
SEVERAL_STEPS = {name: scenario for name, scenario in SCENARIOS.items() if scenario.goes_on}


@pytest.mark.slow
@pytest.mark.temporal
@pytest.mark.parametrize("scenario", SEVERAL_STEPS.values(), ids=SEVERAL_STEPS)
async def test_a_scenario_leaves_the_same_state_when_each_step_is_a_run(
    scenario: Scenario, settings: Settings, tmp_path: Path
) -> None:
    await assert_the_same_state(scenario, replace(settings, continue_events=1), tmp_path)
