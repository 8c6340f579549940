"""A guardian that cannot begin, and one that the system does not tell of a death."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence

import pytest

from activities import guardian, guardian_link
from activities.guardian_link import GuardianLink
from holdfast.client import Holdfast, Settings


@pytest.mark.slow
@pytest.mark.temporal
async def test_a_guardian_that_could_not_be_started_again_is_tried_again(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, refusals = guardian_link._started, 2  # pyright: ignore[reportPrivateUsage]  # the seam to the system
    client = await Holdfast.connect(settings)

    def refused_at_first(line: socket.socket, withheld: Sequence[str]) -> subprocess.Popen[bytes]:
        nonlocal refusals
        if refusals:
            refusals -= 1
            line.close()
            raise OSError("no process can be started")
        return started(line, withheld)

    async with GuardianLink(client.temporal) as link:
        assert await link.until_ready()
        first = link.pid
        assert first is not None
        monkeypatch.setattr(guardian_link, "_started", refused_at_first)
        os.kill(first, signal.SIGKILL)
        async with asyncio.timeout(30):
            while link.pid == first:  # noqa: ASYNC110  # nothing tells of it
                await asyncio.sleep(0.05)
        assert refusals == 0


@pytest.mark.parametrize("refused", [False, True])
async def test_a_worker_is_taken_for_dead_only_when_it_has_ended(
    monkeypatch: pytest.MonkeyPatch, *, refused: bool
) -> None:
    def refuse(_: int) -> int:
        raise PermissionError("not in this container")

    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as worker:  # noqa: ASYNC220  # at once
        monkeypatch.setattr(os, "getppid", lambda: worker.pid if worker.poll() is None else 1)
        if refused:
            monkeypatch.setattr(os, "pidfd_open", refuse)
        dead = asyncio.create_task(guardian._death(worker.pid))  # pyright: ignore[reportPrivateUsage]  # a process's loop
        await asyncio.wait([dead], timeout=0.5)
        assert not dead.done()
        worker.kill()
        await asyncio.wait_for(dead, 10)
