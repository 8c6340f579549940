"""The crash certificate in short: three scenarios, their worker killed at each tenth event. `make chaos` has all of it.

The whole is `python -m tests.chaos.certificate`; docs/reliability.md has its table.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from tests.chaos.certificate.catalogue import SCENES
from tests.chaos.certificate.certify import Plan, certify
from tests.chaos.certificate.report import repeating
from tests.chaos.certificate.trial import Outcome

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(600)]

SEED = int(os.environ.get("HOLDFAST_CERTIFICATE_SEED", "1"))
SHORT = ("plain", "approval", "stream")
MINUTES = float(os.environ.get("HOLDFAST_CERTIFICATE_MINUTES", "60"))


@pytest.mark.slow
async def test_a_worker_killed_along_three_scenarios_breaks_no_rule() -> None:
    outcomes: list[Outcome] = []
    plan = Plan([SCENES[name] for name in SHORT], ["worker"], SEED, every=10, per_run=2)
    table = await certify(plan, outcomes.append)
    broken = [(repeating(each, SEED), each.problems) for each in outcomes if each.problems]
    assert not broken, broken
    assert not table.empty, table.empty


@pytest.mark.chaos
@pytest.mark.timeout(7_200)
async def test_the_certificate_holds() -> None:
    options = ["--seed", str(SEED), "--minutes", str(MINUTES), "--jobs", "6", "--per-run", "3"]
    command = [sys.executable, "-m", "tests.chaos.certificate", *options]
    process = await asyncio.create_subprocess_exec(*command, cwd=Path(__file__).parents[2])
    try:
        assert await process.wait() == 0, "its output names what is broken, and how to repeat it"
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
