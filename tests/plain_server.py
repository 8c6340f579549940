"""A Temporal server that is not ours."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.server.ports import HOST, choose_ports
from holdfast.server.server_process import Launch, ServerProcess


@pytest.fixture(scope="session")
def plain_server(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """The address of a server as `temporal server start-dev` gives it: no search attributes, no settings of ours.

    Register nothing in its namespace `default`.
    """
    with running(tmp_path_factory.mktemp("plain")) as address:
        yield address


@contextmanager
def running(folder: Path, *settings: str) -> Generator[str]:
    """Run such a server until the block ends, with these dynamic settings (KEY=VALUE) of its own; give its address."""
    program = str(Path(sys.executable).with_name("temporal"))
    ports = choose_ports(0, 0)
    command = [program, "server", "start-dev", "--headless", "--ip", HOST, "--port", str(ports.grpc)]
    command += [f"--dynamic-config-value={each}" for each in settings]
    with (folder / "inherited").open("wb") as inherited:
        launch = Launch([*command, "--http-port", str(ports.http)], folder, folder / "log", inherited.fileno())
        server = ServerProcess(launch)
    try:
        assert server.wait_until_ready(ports.http) is None
        yield f"{HOST}:{ports.grpc}"
    finally:
        os.kill(server.pid, signal.SIGKILL)
