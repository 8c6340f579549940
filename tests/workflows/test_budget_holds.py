"""Budgets hold on the real server, measured at the endpoint: a few runs of `bench.budget`, which tries more of them."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from bench.budget import measure, show

RUNS = int(os.environ.get("HOLDFAST_BUDGET_RUNS", "6"))
SEED = int(os.environ.get("HOLDFAST_FUZZ_SEED", str(random.SystemRandom().randrange(10**6))))


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_no_run_passes_its_budget(temporal_address: str, tmp_path: Path) -> None:
    ended = await measure(temporal_address, tmp_path, RUNS, SEED)
    assert len(ended) == RUNS
    assert sum(account.calls for account, _ in ended.values()) >= RUNS // 2, "hardly anything was asked"
    lacking = sum(account.subagent_unreported for account, _ in ended.values())
    assert lacking <= RUNS // 2, "too many runs lack a subagent's usage to show anything"
    assert show(ended, SEED), f"HOLDFAST_FUZZ_SEED={SEED}"
