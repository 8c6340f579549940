"""PostgreSQL's primary is lost for good while sessions talk, and its replica takes over."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import pytest

from holdfast.client import Settings
from tests.cluster.cluster import Cluster
from tests.cluster.talks import Timeline, talk_through

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

NOTICED_SECONDS: Final = 3.0
"""How long it takes until somebody has noticed that the primary is lost."""


async def test_sessions_go_on_on_a_synchronous_replica(
    settings: Settings, running: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    replica = running.replica()
    running.postgres.until_followed(synchronous=True)

    def promote() -> None:
        running.postgres.kill()
        time.sleep(NOTICED_SECONDS)
        replica.promote()
        running.turn_to(replica)

    def fault(timeline: Timeline) -> None:
        timeline.run("failover", promote)

    lines = await talk_through(fault, settings, tmp_path)
    with capsys.disabled():
        print("\n" + "\n".join(lines))
    assert running.postgres is replica
    assert replica.query("SELECT pg_is_in_recovery()") == [["f"]]
