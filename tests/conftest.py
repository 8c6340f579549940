"""The real parts that tests run against: one Temporal server per session, a worker and an endpoint per test."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from holdfast.client import Settings
from holdfast.connection.data_directory import ServerAddress
from holdfast.connection.worker_settings import WorkerSettings
from holdfast.core.agent.toolset import Toolset
from holdfast.core.tools.mcp_servers import McpServer
from holdfast.core.tools.tools import AnyTool
from holdfast.runtime.tool_runner import Results
from holdfast.server.embedded import EmbeddedServer
from holdfast.testing.script import Script
from tests import forked, server_credentials
from tests.plain_server import plain_server
from tests.serving import Serve, Served, served

pytest_plugins = ["tests.again"]

TOLD_LINES = 60
"""How much of a failure is printed at once; all of it follows at the end."""

LOG_CHARS = 2_000
"""How much of the server's log is told where the server has ended before its tests."""

__all__ = ["plain_server"]

MEMORY = Path("/dev/shm")  # noqa: S108  # the folders that pytest makes in it are its user's alone
"""Where Linux keeps files in memory. A server there needs a quarter less of the processors for a run."""
MEMORY_BYTES_MIN = 4 * 1024**3
"""How much must be free there; a run of all tests writes less than a quarter of it."""

LONGEST = (
    "workflows/test_mcp_tasks.py",
    "workflows/test_mcp.py",
    "scenarios/test_scenarios.py",
    "scenarios/test_scenarios_step_by_step.py",
    "workflows/test_session_messages.py",
    "cli/test_dev.py",
    "mcp_serve/test_mcp_serve.py",
    "mcp_serve/test_access.py",
    "examples/test_demo.py",
    "test_architecture.py",
    "server/test_embedded.py",
    "scenarios/test_mcp_in_both_drivers.py",
    "workflows/test_sessions_racing.py",
    "workflows/test_sessions.py",
    "workflows/test_subagents.py",
    "cli/test_bad_input.py",
    "test_site.py",
    "mcp/test_tasks.py",
    "client/test_watch.py",
    "core/test_round_trips.py",
    "workflows/test_input_waits.py",
    "testing/test_scripted_model.py",
    "mcp/test_connection.py",
    "test_wheel.py",
    "workflows/test_replay_guard.py",
    "chaos/test_server_lost.py",
    "test_documents.py",
    "workflows/test_trees.py",
    "cli/test_busy_indicator.py",
    "mcp_serve/test_runs_behind.py",
    "workflows/test_messages.py",
    "workflows/test_rich_replays.py",
    "workflows/test_hooks.py",
    "local/test_mcp_servers.py",
    "workflows/test_story_on_server.py",
    "core/test_session_machine.py",
    "workflows/test_waiting_listed.py",
    "mcp/test_credentials.py",
    "core/test_state_json.py",
    "workflows/test_history.py",
    "test_diagrams.py",
    "cli/test_chat.py",
    "workflows/test_model_patience.py",
    "core/test_budget_holds.py",
    "engines/test_llmock.py",
    "chaos/test_fatal_tools.py",
    "workflows/test_continuing.py",
    "testing/test_openai_server.py",
)
"""The files that take the longest, the longest first: several processes come to their ends together."""

FILES_BETWEEN = 6
"""How many other files stand between two of them: those wait for most of their time, the others compute."""

OWN_SERVERS = frozenset({"own", "plain_server"})
"""Fixtures of a server for the tests that name it, which is reached without credentials."""

# A busy machine is no fault of the code: no example has a deadline, and none may be too slow to make.
PATIENT = hypothesis_settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis_settings.register_profile("holdfast", PATIENT, max_examples=15)
hypothesis_settings.register_profile("quick", PATIENT, max_examples=4)  # `make quick`
hypothesis_settings.register_profile("thorough", PATIENT, max_examples=50)  # `make slow`
hypothesis_settings.load_profile("holdfast")


def pytest_configure() -> None:
    """Have pytest make its temporary folders in memory, where there is room and nobody has said where else."""
    if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES_MIN:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin the longest files early, some others between them, and leave everything else in its order."""
    folder = Path(__file__).parent
    longest = {folder / name: place * FILES_BETWEEN for place, name in enumerate(LONGEST)}
    others = dict.fromkeys(item.path for item in items if item.path not in longest)
    places = {**{path: place for place, path in enumerate(others)}, **longest}
    items.sort(key=lambda item: (places[item.path], item.path not in longest))


def pytest_collection_finish() -> None:
    """Leave the thousands of tests out of garbage collections."""
    _shorten_collections()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Give a test the credentials of the server that it talks to; skip it where it needs the embedded server's own."""
    needed: set[str] = {*getattr(item, "fixturenames", ())}
    is_shared = not needed.isdisjoint(("temporal_address", "named_server")) and needed.isdisjoint(OWN_SERVERS)
    server_credentials.allow(os.environ, server=is_shared)
    if is_shared and server_credentials.ADDRESS is not None and "temporal_server" in needed:
        pytest.skip("it freezes the embedded server's process or reads its files; HOLDFAST_TEST_ADDRESS names another")


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Leave what a file's tests keep out of later collections."""
    if nextitem is None or nextitem.path != item.path:
        _shorten_collections()


def _shorten_collections() -> None:
    """Collect now, and leave whatever stays out of every later collection.

    One of all that a process has gathered after some thousand tests takes a second and more. Where it falls into a
    workflow's code, the SDK takes that workflow for deadlocked (TMPRL1101), and raises in whatever the collector calls.
    What is in use at a file's end and dies in a circle later is not collected: some memory, no more.
    """
    gc.collect()
    gc.freeze()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Name what failed at once: a run that is cut off, or breaks in itself, has no summary."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:  # its own process tells it once more
        told = "\n".join(str(report.longrepr).splitlines()[-TOLD_LINES:])
        print(f"\n{told}\nfailed: {report.nodeid}", file=sys.__stderr__, flush=True)


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> Generator[None]:
    """Take back an ignored SIGINT (a background job of a plain shell has it); what we start would inherit it."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def temporal_server(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServerAddress]:
    """A real Temporal server for the whole session, and where it keeps its data."""
    forked.begin()
    with EmbeddedServer.start(tmp_path_factory.mktemp("temporal"), port=0, ui_port=0) as server:
        forked.ready()
        ended: list[str] = []
        threading.Thread(target=_note_end, args=(server, ended), daemon=True).start()
        yield server.address
        assert not ended, "; ".join(ended)


def _note_end(server: EmbeddedServer, ended: list[str]) -> None:
    """Note during which test the server of all tests has ended, and what it said last."""
    while not server.wait(seconds_max=60):
        pass
    log = Path(server.address.data_dir) / "server.log"
    ended += [os.environ.get("PYTEST_CURRENT_TEST", ""), str(server.fault), log.read_text()[-LOG_CHARS:]]


@pytest.fixture(scope="session")
def named_server() -> str | None:
    """Where the server is that HOLDFAST_TEST_ADDRESS names; none where a test is to start one of its own."""
    if server_credentials.ADDRESS is not None:
        forked.begin()
        forked.ready()
    return server_credentials.ADDRESS


@pytest.fixture(scope="session")
def temporal_address(request: pytest.FixtureRequest, named_server: str | None) -> str:
    """Where that server is; HOLDFAST_TEST_ADDRESS names another to test against (`python -m tests.cluster`)."""
    if named_server is not None:
        return named_server
    server: ServerAddress = request.getfixturevalue("temporal_server")
    return server.address


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
        offer: Toolset | None = None,
        serving: WorkerSettings | None = None,
        mcp: Mapping[str, McpServer] | None = None,
        results: Results | None = None,
    ) -> AbstractAsyncContextManager[Served]:
        given = offer or Toolset(tools=tuple(tools))
        return served(settings, tmp_path / "ledger.jsonl", script, given, serving=serving, mcp=mcp, results=results)

    return serving
