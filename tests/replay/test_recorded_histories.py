"""Runs of people that were begun by older code go on with the code as it is: every recorded history replays."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path

import pytest

from tests.replay.archive import UNRELEASED, Recorded, files, read
from tests.replay.recording import runs
from tests.replay.replaying import deviations, report

SIZE_BYTES_MAX = 1_000_000
"""How large one file may be: it is in every clone for ever."""

NOT_OURS = (r"/(home|root|tmp|work|Users)/", r"\.py\b.*line \d", r"127\.0\.0\.1:(?!1\b)\d", r"\d@[a-z]", r"test-key")
"""What a history must not hold: folders, places in files, ports, processes of a machine, the endpoint's key."""


@pytest.fixture(scope="module")
def recorded() -> list[Recorded]:
    """Every recorded run, of every release."""
    return list(chain.from_iterable(map(read, files())))


@pytest.mark.timeout(300)
async def test_every_recorded_run_replays(recorded: list[Recorded]) -> None:
    found = await deviations(recorded)
    assert not found, report(found)


def test_every_scenario_and_every_rich_run_is_recorded() -> None:
    there = {run.name for run in read(UNRELEASED)}
    missing = sorted(set(runs()) - there)
    assert not missing, f"run `make histories`: {missing} are not recorded"


def test_the_recorded_runs_hold_nothing_of_the_machine_that_recorded_them(recorded: list[Recorded]) -> None:
    told = {run.name: str(run.history) + str(run.objects) for run in recorded}
    found = {(name, place) for name, text in told.items() for place in NOT_OURS if re.search(place, text)}
    assert not found


@pytest.mark.parametrize("path", files(), ids=lambda path: path.name)
def test_the_recorded_runs_take_little_room(path: Path) -> None:
    assert path.stat().st_size < SIZE_BYTES_MAX
