"""The user's folder with one `holdfast dev` for all tests here that do not stop it, and a fake endpoint behind it.

Where HOLDFAST_TEST_ADDRESS names a server, one `holdfast worker` for it; `embedded_only` tests are left out then.
"""

from __future__ import annotations

import asyncio
import os
import pty
import sys
import tty
from collections.abc import Generator
from pathlib import Path

import pytest

from holdfast.client import Holdfast
from holdfast.server.embedded import EmbeddedServer
from holdfast.testing.openai_server import FakeOpenAI
from tests.cli.failing import Failing, begun
from tests.cli.program import SCRIPTS, Project, Running


@pytest.fixture(scope="session")
def endpoint() -> Generator[str]:
    with FakeOpenAI.in_thread(SCRIPTS) as server:
        yield server.base_url


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory after one first start, to be copied: that start takes 2 s, any other 0.2 s."""
    data_dir = tmp_path_factory.mktemp("built") / "data"
    with EmbeddedServer.start(data_dir, port=0, ui_port=0):
        pass
    return data_dir


@pytest.fixture(scope="session")
def project(endpoint: str, built: Path, named_server: str | None, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The user's folder; its commands are forked."""
    return Project.at(tmp_path_factory.mktemp("cli") / "project", endpoint, built, named_server)


@pytest.fixture(scope="session")
def dev(project: Project) -> Generator[Running]:
    """`holdfast dev` in `project`, or `holdfast worker` for a named server, for everybody: do not stop it."""
    with project.dev() as dev:
        yield dev


@pytest.fixture
def client(project: Project) -> Holdfast:
    """What a program would use: to set the stage and to look, in milliseconds, at what the command line did."""
    return asyncio.run(Holdfast.connect(project.settings))


@pytest.fixture
def own(endpoint: str, built: Path, named_server: str | None, tmp_path: Path) -> Project:
    """A project for one test, nothing running in it."""
    return Project.at(tmp_path / "project", endpoint, built, named_server)


@pytest.fixture(scope="session")
def failing(project: Project, dev: Running) -> Generator[Failing]:  # noqa: ARG001  # its server
    """What takes its time to fail."""
    with begun(project) as failing:
        yield failing


@pytest.fixture
def fingers(monkeypatch: pytest.MonkeyPatch) -> Generator[int]:
    """What is written there is typed at standard input."""
    ours, terminal = pty.openpty()
    tty.setraw(terminal)
    with open(terminal, closefd=False) as stdin, open(terminal, "w", closefd=False) as stdout:
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(sys, "stdout", stdout)
        yield ours
    os.close(ours)
    os.close(terminal)
