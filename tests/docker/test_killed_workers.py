"""Workers killed at each moment of a container's life leave none behind."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from pathlib import Path

import pytest

from holdfast.workspace.docker.container_spec import LEASE_SECONDS, container_name
from holdfast.workspace.docker.containers import Containers
from holdfast.workspace.docker.docker_backend import DockerBackend
from holdfast.workspace.docker.engine import DockerEngine
from tests.docker.daemon import HOST, Daemon, client, run, workspace

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]

METHODS = ("inspect_container", "inspect_image", "create_container", "start", "exec_create", "exec_start", "kill")
MOMENTS = tuple(f"{when} {method}" for method in (*METHODS, "remove_container") for when in ("before", "after"))
WORKERS = (
    *((f"ws-{number}", moment) for number, moment in enumerate(2 * MOMENTS)),
    *((f"shared-{number // 2}", "under way") for number in range(18)),
)
"""Workspace and moment of each; the last ones use a workspace by twos."""

AT_ONCE = 8
GONE_SECONDS_MAX = 60.0


async def killed(namespace: str, name: str, image: str, moment: str, places: asyncio.Semaphore) -> int:
    async with places:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.docker.killed_worker", namespace, name, image, moment), cwd=ROOT
        )
        async with asyncio.timeout(300):
            return await process.wait()


async def test_no_container_is_left_a_minute_after_its_workers_were_killed(
    daemon: Daemon, image: str, capsys: pytest.CaptureFixture[str]
) -> None:
    places = asyncio.Semaphore(AT_ONCE)
    workers = [killed(daemon.namespace, name, image, moment, places) for name, moment in WORKERS]
    names = {container_name(name, daemon.namespace) for name, _ in WORKERS}
    working = asyncio.gather(*workers)
    seen: set[str] = set()
    while not working.done():
        now = await asyncio.to_thread(daemon.names, all_states=True)
        assert len(now) == len(set(now)), "two containers of one id"
        seen |= set(now)
        await asyncio.sleep(0.2)
    assert len(WORKERS) == 50
    codes = dict(zip(WORKERS, await working, strict=True))
    assert {worker: code for worker, code in codes.items() if code != -signal.SIGKILL} == {}, "each died at its moment"
    assert seen
    assert seen <= names
    last = time.monotonic()
    while daemon.names() and time.monotonic() - last < GONE_SECONDS_MAX:
        await asyncio.sleep(0.2)
    gone = time.monotonic() - last
    with capsys.disabled():
        print(f"\n{len(WORKERS)} workers killed, {len(seen)} containers seen; `docker ps` is empty after {gone:.0f} s")
    assert daemon.names() == []
    sweeper = DockerBackend(daemon.namespace, HOST)
    left = daemon.names(all_states=True)
    assert await sweeper.sweep() >= len(left)
    assert daemon.names(all_states=True) == [], "created and never started: the next worker's sweep has them"
    await sweeper.close()


async def test_a_container_lives_on_while_a_command_runs_longer_than_a_lease(
    backend: DockerBackend, daemon: Daemon, image: str
) -> None:
    place = workspace(image)
    await backend.ensure(place)
    container = daemon.only()
    ran = await run(backend, place, f"sleep {LEASE_SECONDS + 15:g}; echo on")
    assert ran.output == b"on\n"
    assert daemon.only() == container


async def test_a_command_outlives_no_worker(daemon: Daemon, image: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.docker.killed_worker", daemon.namespace, "ws", image, "under way"), cwd=ROOT
    )
    assert await process.wait() == -signal.SIGKILL
    assert daemon.names(), "the container is there until its lease is over"
    async with asyncio.timeout(20):
        while daemon.commands():  # another process's end
            await asyncio.sleep(0.05)
    assert daemon.inside(["cat", "/workspace/file"]) == "begun\n"


async def test_a_sweep_leaves_what_runs_and_what_is_about_to(
    backend: DockerBackend, daemon: Daemon, image: str
) -> None:
    await backend.ensure(workspace(image, "running"))
    engine = DockerEngine(HOST)
    containers = Containers(engine, daemon.namespace)
    with client() as api:
        api.create_container(image, name=f"holdfast-{daemon.namespace}", labels=daemon_labels(daemon))
    await containers.sweep()
    assert len(daemon.names(all_states=True)) == 2
    engine.close()


def daemon_labels(daemon: Daemon) -> dict[str, str]:
    """Return the labels of a container that another worker has just made."""
    [container] = daemon.containers()
    return dict(container["Labels"])
