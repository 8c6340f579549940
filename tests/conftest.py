"""The real parts that tests run against: one Temporal server per session, a worker and an endpoint per test."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from uuid import uuid4

import pytest

from holdfast.client import Settings
from holdfast.client.embedded import EmbeddedServer, ServerAddress
from holdfast.client.worker_settings import WorkerSettings
from holdfast.core.offer import Offer
from holdfast.core.tools import AnyTool
from holdfast.testing.script import Script
from tests.serving import Serve, Served, served


@pytest.fixture(scope="session")
def temporal_server(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServerAddress]:
    """A real Temporal server for the whole session, and where it keeps its data."""
    with EmbeddedServer.start(tmp_path_factory.mktemp("temporal"), port=0, ui_port=0) as server:
        yield server.address


@pytest.fixture(scope="session")
def temporal_address(temporal_server: ServerAddress) -> str:
    """Where that server is."""
    return temporal_server.address


@pytest.fixture
def settings(temporal_address: str, tmp_path: Path) -> Settings:
    """Settings with a task queue and a folder for large data that no other test uses.

    With HOLDFAST_ENCRYPTION_KEY_FILE in the environment, everything is encrypted.
    """
    return Settings(
        address=temporal_address,
        task_queue=f"test-{uuid4()}",
        storage=(tmp_path / "objects").as_uri(),
        encryption_key_file=Settings.from_environment().encryption_key_file,
    )


@pytest.fixture
def serve(settings: Settings, tmp_path: Path) -> Serve:
    """`async with serve(script, [tool, ...]) as served:` runs a worker against a scripted endpoint."""

    def serving(
        script: Script,
        tools: Sequence[AnyTool] = (),
        offer: Offer | None = None,
        serving: WorkerSettings | None = None,
    ) -> AbstractAsyncContextManager[Served]:
        given = offer or Offer(tools=tuple(tools))
        return served(settings, tmp_path / "ledger.jsonl", script, given, serving=serving)

    return serving
