"""Containers where Docker is not there, or does not answer: refused with what to do, in bounded time."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from holdfast.core.base.errors import MissingPart
from holdfast.core.tools.workspace_profile import WorkspaceProfile
from holdfast.workspace.backend import Workspace, WorkspaceUnavailable
from holdfast.workspace.docker import engine
from holdfast.workspace.docker.docker_backend import DockerBackend
from holdfast.workspace.docker.engine import DockerEngine

PLACE = Workspace("ws", "acme", WorkspaceProfile())


@pytest.fixture
async def silent() -> AsyncGenerator[str]:
    """The address of a daemon that takes connections and never answers."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "docker.sock"
        held: list[asyncio.StreamWriter] = []
        server = await asyncio.start_unix_server(lambda _, writer: held.append(writer), path)
        yield f"unix://{path}"
        for each in held:
            each.close()
        server.close()


async def test_a_daemon_that_is_not_there_is_named_with_what_to_do(tmp_path: Path) -> None:
    backend = DockerBackend("default", f"unix://{tmp_path}/docker.sock")
    with pytest.raises(WorkspaceUnavailable, match=r"Docker does not answer at unix://.*start it, or set DOCKER_HOST"):
        await backend.ensure(PLACE)
    with pytest.raises(WorkspaceUnavailable):
        async for _ in backend.execute(PLACE, [b""]):
            pass
    await backend.kill(PLACE, [b""])
    await backend.remove(PLACE)
    await backend.close()


async def test_a_worker_that_starts_without_its_daemon_warns_of_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    backend = DockerBackend("default", f"unix://{tmp_path}/docker.sock")
    assert await backend.sweep() == 0
    [warning] = caplog.messages
    assert f"Docker does not answer at unix://{tmp_path}/docker.sock" in warning
    await backend.close()


async def test_a_daemon_that_never_answers_holds_nobody_up(silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "ENGINE_SECONDS_MAX", 1.0)
    opened = DockerEngine(silent)
    began = time.monotonic()
    with pytest.raises(WorkspaceUnavailable, match="Docker"):
        await opened.call(lambda api: api.ping(), seconds=1.0)
    assert time.monotonic() - began < 60
    opened.close()


async def test_a_kill_ends_in_bounded_time_where_nobody_answers(silent: str) -> None:
    backend = DockerBackend("default", silent)
    async with asyncio.timeout(60):
        await backend.kill(PLACE, [b""])
    await backend.close()


async def test_the_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "docker", None)
    with pytest.raises(MissingPart, match=r"package .*docker"):
        await DockerBackend("default").ensure(PLACE)
