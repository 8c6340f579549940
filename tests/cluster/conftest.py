"""One cluster for the whole tier: PostgreSQL, seven processes of the server, the namespace prepared."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from uuid import uuid4

import pytest

from holdfast.client import Settings
from tests import forked
from tests.cluster.cluster import Cluster, cluster
from tests.cluster.processes import environment


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Generator[Cluster]:
    """The cluster, which tests may harm and must leave whole."""
    forked.begin()
    with cluster(tmp_path_factory.mktemp("cluster")) as running:
        asyncio.run(running.until_ready())
        setup = [sys.executable, "-m", "holdfast", "setup", "--create-namespace", "--address", running.address]
        subprocess.run(setup, env=environment(), check=True, timeout=300)
        forked.ready()
        yield running


@pytest.fixture
def settings(running: Cluster, tmp_path: Path) -> Settings:
    """Settings with a task queue and a folder for large data that no other test uses."""
    return Settings(
        address=running.address,
        task_queue=f"test-{uuid4()}",
        storage=(tmp_path / "objects").as_uri(),
        data_dir=tmp_path,
    )
