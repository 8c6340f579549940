"""Shards move between history processes while sessions talk: one joins, one leaves, one is killed."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest

from holdfast.client import Settings
from tests import forked
from tests.cluster.cluster import Cluster, cluster
from tests.cluster.processes import environment
from tests.cluster.talks import Timeline, talk_through

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

SHARDS: Final = int(os.environ.get("HOLDFAST_TEST_SHARDS", "512"))
FAIR_SHARE: Final = SHARDS // 10
"""The least that a process owns of three: the ring gives each about a third, by chance."""

MOVED_SECONDS_MAX: Final = 600.0
"""On a machine with a load of 70, two processes had acquired 132 of 512 shards after two minutes."""

POLL_SECONDS: Final = 0.2


@pytest.fixture
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Generator[Cluster]:
    forked.begin()
    with cluster(tmp_path_factory.mktemp("sharded"), shards=SHARDS) as running:
        asyncio.run(running.until_ready())
        setup = [sys.executable, "-m", "holdfast", "setup", "--create-namespace", "--address", running.address]
        subprocess.run(setup, env=environment(), check=True, timeout=300)
        forked.ready()
        yield running


@pytest.fixture
def settings(sharded: Cluster, tmp_path: Path) -> Settings:
    storage = (tmp_path / "objects").as_uri()
    return Settings(address=sharded.address, task_queue=f"test-{uuid4()}", storage=storage, data_dir=tmp_path)


def until_owned(cluster: Cluster, rule: Callable[[Counter[str]], bool]) -> None:
    """Return once the database says that the shards belong to whom they should."""
    until = time.monotonic() + MOVED_SECONDS_MAX
    while not (rule(owners := Counter(each.owner for each in cluster.shards())) and owners.total() == SHARDS):
        assert time.monotonic() < until, owners
        time.sleep(POLL_SECONDS)


async def test_sessions_go_on_while_shards_move(
    sharded: Cluster, settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = sharded.nodes["history"]
    moved: dict[str, int] = {}

    def joins() -> None:
        third = sharded.join("history")
        until_owned(sharded, lambda owners: owners[third.name] >= FAIR_SHARE)

    def leaves() -> None:
        first.stop()
        assert first.exit_code == 0, f"it ended by itself: {first.last_words()}"
        until_owned(sharded, lambda owners: not owners[first.name])

    def is_killed() -> None:
        second.kill()
        until_owned(sharded, lambda owners: not owners[second.name])

    def fault(timeline: Timeline) -> None:
        for name, deed in (("joins", joins), ("leaves", leaves), ("is killed", is_killed)):
            before = sharded.shards()
            timeline.run(f"a history process {name}", deed)
            moved[name] = len(set(sharded.shards()) - set(before))

    until_owned(sharded, lambda owners: min(owners[first.name], owners[second.name]) >= FAIR_SHARE)
    lines = await talk_through(fault, settings, tmp_path)
    with capsys.disabled():
        print("\n" + "\n".join([*lines, f"shards that moved: {moved}"]))
    assert min(moved.values()) >= FAIR_SHARE
    assert {each.owner for each in sharded.shards()} == {"history-3"}
