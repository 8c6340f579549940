"""The backends of a worker: swept as it starts and while it lives."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast.workspace import worker_backends
from holdfast.workspace.folder import FolderBackend
from holdfast.workspace.worker_backends import WorkspaceBackends


async def test_a_living_worker_goes_on_sweeping_until_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    swept = asyncio.Semaphore(0)

    async def sweep(_backend: FolderBackend) -> int:
        swept.release()
        return 0

    monkeypatch.setattr(worker_backends, "SWEEP_EVERY_SECONDS", 0.01)
    monkeypatch.setattr(FolderBackend, "sweep", sweep)
    backends = WorkspaceBackends(["folder"], tmp_path, "default")
    async with asyncio.timeout(30), backends:
        for _ in range(3):
            await swept.acquire()
    tasks = [each for each in asyncio.all_tasks() if each is not asyncio.current_task()]
    assert not tasks
