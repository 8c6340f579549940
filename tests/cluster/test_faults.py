"""What a production server loses of its parts while sessions talk: nothing that was acknowledged, nothing twice."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from holdfast.client import Settings
from tests.cluster.cluster import Cluster
from tests.cluster.talks import Timeline, talk_through

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

DOWN_SECONDS: Final = 3.0
SLOW_SECONDS: Final = 0.1
SILENT_SECONDS: Final = 50.0
"""Longer than a heartbeat may fail to come (30 s), and than the SDK needs to give a silent connection up (45 s)."""

Deed = Callable[[Cluster], None]


def losing(role: str) -> Deed:
    """Kill the processes of a role, one after the other, and start each again."""

    def deed(cluster: Cluster) -> None:
        for node in cluster.nodes[role]:
            node.kill()
            time.sleep(DOWN_SECONDS)  # the fault itself
            node.start_again()
            asyncio.run(cluster.until_ready())

    return deed


def losing_the_database(cluster: Cluster) -> None:
    """Kill PostgreSQL as a power cut does, and start it again."""
    cluster.postgres.kill()
    time.sleep(DOWN_SECONDS)
    cluster.postgres.start_again()


def following(cluster: Cluster) -> None:
    """Have a replica follow PostgreSQL, which acknowledges nothing any more that the replica lacks."""
    cluster.standby = cluster.replica()
    cluster.postgres.until_followed(synchronous=True)


def failing_over(cluster: Cluster) -> None:
    """Kill PostgreSQL for good, promote its replica, and turn the server to that."""
    assert cluster.standby is not None
    cluster.postgres.kill()
    time.sleep(DOWN_SECONDS)
    cluster.standby.promote()
    cluster.turn_to(cluster.standby)


def cut_off(cluster: Cluster) -> None:
    """Cut workers and clients off from every frontend."""
    cluster.balancer.cut()
    time.sleep(DOWN_SECONDS * 3)
    cluster.balancer.heal()


def silenced(cluster: Cluster) -> None:
    """Drop whatever workers, clients and frontends send each other, on connections that stay open."""
    cluster.balancer.cut("stall")
    time.sleep(SILENT_SECONDS)
    cluster.balancer.heal()


def slowed(cluster: Cluster) -> None:
    """Make every statement take a tenth of a second longer."""
    cluster.database.slow(SLOW_SECONDS)
    time.sleep(DOWN_SECONDS * 5)
    cluster.database.slow(0)


FAULTS: Final[dict[str, Deed]] = {
    "frontend": losing("frontend"),
    "history": losing("history"),
    "matching": losing("matching"),
    "worker": losing("worker"),
    "database": losing_the_database,
    "network": cut_off,
    "silent network": silenced,
    "slow database": slowed,
    "failover": failing_over,
}

PREPARATIONS: Final[dict[str, Deed]] = {"failover": following}
"""What a fault needs before it."""


@pytest.mark.parametrize("name", FAULTS)
async def test_sessions_go_on_through_a_fault(
    name: str, settings: Settings, running: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fault(timeline: Timeline) -> None:
        timeline.run(name, partial(FAULTS[name], running))

    if name in PREPARATIONS:
        PREPARATIONS[name](running)
    lines = await talk_through(fault, settings, tmp_path)
    with capsys.disabled():
        print("\n" + "\n".join(lines))


async def test_sessions_go_on_through_all_faults_one_after_the_other(
    settings: Settings, running: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def faults(timeline: Timeline) -> None:
        for name, deed in FAULTS.items():
            if name in PREPARATIONS:
                PREPARATIONS[name](running)
            timeline.run(name, partial(deed, running))
            timeline.until_recovered()

    lines = await talk_through(faults, settings, tmp_path)
    with capsys.disabled():
        print("\n" + "\n".join(lines))
