"""A Docker daemon of the test's own is killed and started again under a workspace."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from docker import APIClient
from docker.errors import DockerException

from holdfast.workspace.backend import WorkspaceLost, WorkspaceUnavailable
from holdfast.workspace.docker.docker_backend import DockerBackend
from tests.docker.conftest import absent
from tests.docker.daemon import run, workspace

pytestmark = [
    pytest.mark.docker,
    pytest.mark.timeout(600),
    # the library leaves a socket to the collector where it cannot connect
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"),
]

START_SECONDS_MAX = 120.0


class OwnDaemon:
    """A dockerd below one folder, in a network namespace of its own: `--bridge=none` removes the host's docker0."""

    def __init__(self, folder: Path) -> None:
        self.host = f"unix://{folder}/s"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Any:
        below = self._folder
        folders = ("--data-root", f"{below}/d", "--exec-root", f"{below}/e", "--pidfile", f"{below}/p")
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(str(shutil.which("unshare")), "--net", "dockerd"),
                    *folders,
                    "-H",
                    self.host,
                    "--bridge=none",
                    "--iptables=false",
                    "--ip6tables=false",
                ],
                stdout=log,
                stderr=log,
            )
        until = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                return APIClient(base_url=self.host, version="auto", timeout=60)
            except DockerException:
                assert self._process.poll() is None, (self._folder / "log").read_text()[-2_000:]
                assert time.monotonic() < until
                time.sleep(0.1)

    def end(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(START_SECONDS_MAX)
            self._end_containerd()
        (self._folder / "p").unlink(missing_ok=True)

    def _end_containerd(self) -> None:
        """A daemon that was killed leaves its containerd, which goes with the machine or is started anew with it."""
        file = self._folder / "e" / "containerd" / "containerd.pid"
        with suppress(OSError, ValueError):
            os.kill(int(file.read_text()), signal.SIGKILL)
            file.unlink()


@pytest.fixture
async def own(api: Any, image: str) -> AsyncGenerator[OwnDaemon]:
    if os.geteuid() != 0 or shutil.which("dockerd") is None:
        absent("a daemon of the test's own needs root and dockerd")
    with TemporaryDirectory(prefix="hd", dir="/var/tmp", ignore_cleanup_errors=True) as folder:
        own = OwnDaemon(Path(folder))
        with own.start() as client:
            client.load_image(b"".join(api.get_image(image)))
        yield own
        own.end(signal.SIGTERM)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_command_under_a_daemon_that_ends_is_lost_and_the_next_one_runs(
    own: OwnDaemon, image: str, number: int
) -> None:
    backend = DockerBackend("test", own.host)
    place = workspace(image)
    assert await backend.ensure(place)
    running = asyncio.create_task(run(backend, place, "echo begun; sleep 1111"))
    await asyncio.sleep(1)
    await asyncio.to_thread(own.end, number)
    with pytest.raises(WorkspaceLost, match="it may have had its effect"):
        await running
    with pytest.raises(WorkspaceUnavailable, match="Docker does not answer"):
        await DockerBackend("test", own.host).ensure(place)
    with await asyncio.to_thread(own.start) as client:
        with suppress(WorkspaceUnavailable):  # what is remembered of the container may be old
            await backend.ensure(place)
            await run(backend, place, "true")
        await backend.ensure(place)
        assert (await run(backend, place, "echo on")).output == b"on\n"
        assert len(client.containers(all=True)) == 1
        await backend.remove(place)
    await backend.close()
