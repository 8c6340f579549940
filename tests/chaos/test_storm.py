"""A storm of dying workers and servers: every acknowledged message is answered once, and no session is stuck.

`python -m tests.chaos.storm` runs a larger one; docs/reliability.md has its figures.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from holdfast.client import Settings
from tests.chaos.storm import Plan, storm

pytestmark = [pytest.mark.temporal, pytest.mark.chaos, pytest.mark.timeout(1_500)]

SESSIONS = int(os.environ.get("HOLDFAST_STORM_SESSIONS", "300"))
TURNS = 3
STORM_SECONDS = float(os.environ.get("HOLDFAST_STORM_SECONDS", "120"))
DRAINED_SECONDS_MAX = 60.0
SEEDS = [int(each) for each in os.environ.get("HOLDFAST_STORM_SEEDS", "").split()] or random.sample(range(10**6), 3)


@pytest.mark.parametrize("seed", SEEDS)
async def test_every_acknowledged_message_is_answered_once_whatever_dies(
    settings: Settings, tmp_path: Path, seed: int
) -> None:
    plan = Plan(SESSIONS, TURNS, seed, STORM_SECONDS)
    figures = await storm(plan, settings, tmp_path, print)
    print(f"\nseed {seed}: {figures.report()}")  # noqa: T201  # the figures are what one runs it for
    assert not figures.problems, figures.problems[:3]
    assert figures.holds, "the faults really fired"
    assert figures.begun > 0
    assert figures.drained_seconds < DRAINED_SECONDS_MAX, "what was acknowledged is drained soon after the storm"
