"""`holdfast doctor` on workspaces: a daemon that is there, one that lacks an image, and none."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from holdfast.client import Settings
from holdfast.core.agent.definition import AgentDefinition
from holdfast.server.doctor import workspaces
from holdfast.server.doctor.findings import Finding, Level
from holdfast.server.doctor.workspaces import examine_workspaces

HERE = replace(Settings(), workspaces=("docker",))
CODER = AgentDefinition.model_validate({"name": "coder", "workspace": {"image": "coder:1"}})
TALKER = AgentDefinition(name="talker")


@asynccontextmanager
async def daemon(*images: str) -> AsyncGenerator[str]:
    """The address of a daemon that knows these images and nothing else."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        known = path == "/version" or any(path.endswith(f"/images/{image}/json") for image in images)
        body = json.dumps({"ApiVersion": "1.44"} if known else {"message": "No such image"}).encode()
        status = "200 OK" if known else "404 Not Found"
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        writer.write(f"{head}Connection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()

    with TemporaryDirectory() as folder:
        async with await asyncio.start_unix_server(answer, Path(folder) / "docker.sock"):
            yield f"unix://{folder}/docker.sock"


async def found(settings: Settings, *agents: AgentDefinition) -> Finding:
    async def known() -> dict[str, AgentDefinition]:
        return {each.name: each for each in agents}

    [finding] = await examine_workspaces(settings, asyncio.ensure_future(known()))
    assert finding.remedy or finding.level is Level.OK
    return finding


@pytest.fixture
def docker_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    return lambda address: monkeypatch.setenv("DOCKER_HOST", address)


async def test_a_daemon_with_the_agents_images_is_sound(docker_at: Callable[[str], None]) -> None:
    async with daemon("coder:1") as address:
        docker_at(address)
        for settings in (HERE, Settings()):
            assert await found(settings, CODER, TALKER) == Finding(
                workspaces.WORKSPACES, Level.OK, f"Docker at {address} has 'coder:1'"
            )


async def test_an_image_that_the_daemon_lacks_is_told_with_what_gets_it(docker_at: Callable[[str], None]) -> None:
    async with daemon("another:1") as address:
        docker_at(address)
        lacks = await found(HERE, CODER)
        assert (lacks.level, lacks.remedy) == (Level.ERROR, "get it with `docker pull coder:1`")
        unnamed = await found(HERE, TALKER)
        assert (unnamed.level, unnamed.remedy) == (Level.WARNING, "get it with `docker pull python:3.13-slim`")


async def test_without_a_daemon_the_doctor_says_what_to_do(docker_at: Callable[[str], None], tmp_path: Path) -> None:
    docker_at(f"unix://{tmp_path}/docker.sock")
    gone = await found(HERE, TALKER)
    assert gone.level is Level.ERROR
    assert f"Docker does not answer at unix://{tmp_path}/docker.sock" in gone.result
    assert gone.remedy == "start it, or set DOCKER_HOST for the worker"
    perhaps = await found(Settings(), CODER)
    assert perhaps.level is Level.WARNING, "the agents' worker may be on another machine"
    assert perhaps.remedy.endswith("a worker elsewhere has its own")


async def test_docker_is_not_asked_where_nobody_needs_it(docker_at: Callable[[str], None], tmp_path: Path) -> None:
    docker_at(f"unix://{tmp_path}/docker.sock")
    assert (await found(Settings(), TALKER)).level is Level.OK
    assert (await found(replace(HERE, workspaces=("folder",)), TALKER)).result == "folder"
    elsewhere = await found(replace(Settings(), workspace_queue="sandbox"), CODER)
    assert elsewhere == Finding(workspaces.WORKSPACES, Level.OK, "their tools are served on 'sandbox'")
