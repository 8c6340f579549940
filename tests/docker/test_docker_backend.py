"""Workspaces in real containers: made once, found by any worker, used, stopped and removed."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import pytest

from holdfast.workspace.backend import WorkspaceLost, WorkspaceUnavailable
from holdfast.workspace.docker.container_spec import LABEL, LABEL_TENANT
from holdfast.workspace.docker.docker_backend import DockerBackend
from tests.docker.daemon import HOST, Daemon, kill_request, run, workspace

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]

WAIT_SECONDS_MAX = 60.0


async def until_runs(daemon: Daemon, part: str) -> None:
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while not any(part in each for each in await asyncio.to_thread(daemon.commands)):
            await asyncio.sleep(0.05)


async def test_a_command_runs_in_a_container_of_its_own_as_a_user_without_a_name(
    backend: DockerBackend, daemon: Daemon, image: str
) -> None:
    place = workspace(image, "run with / odd ünïcode")
    assert await backend.ensure(place)
    ran = await run(backend, place, "id -u; pwd; echo text > file; cat file; exit 3")
    assert ran.output == b"10001\n/workspace\ntext\n"
    assert ran.result["exit_code"] == 3
    [container] = daemon.containers()
    assert container["Labels"][LABEL] == place.id
    assert container["Labels"][LABEL_TENANT] == "acme"


async def test_many_workers_at_once_make_one_container(backend: DockerBackend, daemon: Daemon, image: str) -> None:
    others = [DockerBackend(daemon.namespace, HOST) for _ in range(4)]
    place = workspace(image)
    made = await asyncio.gather(*(each.ensure(place) for each in [backend, *others] for _ in range(3)))
    assert made.count(True) >= 1
    assert len(daemon.names(all_states=True)) == 1
    await run(backend, place, "echo shared > file")
    assert (await run(others[0], place, "cat file")).output == b"shared\n"
    await asyncio.gather(*(each.close() for each in others))


async def test_two_namespaces_never_share_a_container(backend: DockerBackend, daemon: Daemon, image: str) -> None:
    place = workspace(image)
    other = DockerBackend(f"{daemon.namespace}-2", HOST)
    try:
        assert await backend.ensure(place)
        assert await other.ensure(place)
        await run(backend, place, "echo ours > file")
        assert (await run(other, place, "ls")).output == b""
    finally:
        await other.remove(place)
        await other.close()


async def test_a_changed_profile_replaces_the_container(backend: DockerBackend, daemon: Daemon, image: str) -> None:
    assert await backend.ensure(workspace(image))
    before = daemon.only()
    assert not await backend.ensure(workspace(image))
    assert await backend.ensure(workspace(image, pids_max=65))
    assert daemon.only() != before


async def test_a_stop_ends_a_command_and_all_that_it_started(
    backend: DockerBackend, daemon: Daemon, image: str
) -> None:
    place = workspace(image)
    await backend.ensure(place)
    command = "trap '' TERM; (setsid sleep 1111 &) ; sleep 1111 & echo on; sleep 1111; sleep 1111"
    running = asyncio.create_task(run(backend, place, command))
    await until_runs(daemon, "sleep 1111")
    began = time.monotonic()
    await backend.kill(place, [kill_request()])
    assert [each for each in daemon.commands() if "sleep" in each] == [], f"after {time.monotonic() - began:.2f} s"
    ran = await running
    assert (ran.output, ran.result["signal"]) == (b"on\n", 9)
    assert daemon.only(), "the container outlives the command"


async def test_a_caller_that_goes_away_ends_its_command(backend: DockerBackend, daemon: Daemon, image: str) -> None:
    place = workspace(image)
    await backend.ensure(place)
    running = asyncio.create_task(run(backend, place, "sleep 1111"))
    await until_runs(daemon, "sleep 1111")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while daemon.commands():  # another process's end
            await asyncio.sleep(0.02)


async def test_a_command_that_cannot_be_reached_is_ended_with_its_container(
    backend: DockerBackend, daemon: Daemon, image: str
) -> None:
    place = workspace(image)
    await backend.ensure(place)
    running = asyncio.create_task(run(backend, place, "sleep 1111"))
    await until_runs(daemon, "sleep 1111")
    daemon.api.pause(daemon.only())  # no program starts in it now, and none answers
    began = time.monotonic()
    await backend.kill(place, [kill_request()])
    assert time.monotonic() - began < 30
    assert daemon.names(all_states=True) == []
    with pytest.raises(WorkspaceLost, match="container ended"):
        await running


async def test_a_workspace_that_is_removed_is_gone_and_can_be_made_again(
    backend: DockerBackend, daemon: Daemon, image: str
) -> None:
    place = workspace(image)
    await backend.ensure(place)
    await run(backend, place, "echo old > file")
    await backend.remove(place)
    assert daemon.names(all_states=True) == []
    await backend.remove(place)
    assert await backend.ensure(place)
    assert (await run(backend, place, "ls")).output == b""


async def test_a_container_that_vanished_is_made_again(backend: DockerBackend, daemon: Daemon, image: str) -> None:
    place = workspace(image)
    await backend.ensure(place)
    daemon.clear()
    assert daemon.names(all_states=True) == []
    with suppress(WorkspaceUnavailable):  # it was there a moment ago
        await run(backend, place, "echo never")
    assert await backend.ensure(place)
    assert (await run(backend, place, "echo on")).output == b"on\n"
