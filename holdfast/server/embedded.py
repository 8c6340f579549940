"""The embedded Temporal server: one real server per data directory, started, shared and stopped; no agent knows it.

A first start builds the database under another name and renames it when it is whole, so that a start killed at any
moment leaves a directory that starts next time. The lock on the directory is a descriptor the server inherits: it
lives exactly as long as the server, whatever becomes of us.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

from holdfast.connection.data_directory import DatabaseWatch, DataDirectory, ServerAddress, running_server
from holdfast.core.base.errors import DataDirectoryInUse, HoldfastError, InvalidInput, MissingPart, ServerUnavailable
from holdfast.core.base.extras import install_command
from holdfast.core.wire.search_attributes import SEARCH_ATTRIBUTES
from holdfast.server.ports import HOST, IN_USE, Ports, check_ports, choose_ports, names_port, port_taken, refuse_taken
from holdfast.server.server_process import Launch, ServerProcess, serves, set_retention
from holdfast.server.ui_gateway import UiGateway, hidden_host

RETENTION_SECONDS: Final = 30 * 24 * 3600
OTHER_START_SECONDS_MAX: Final = 15.0
"""How long a start waits for another one on the same directory; a first start takes 2 s."""
OTHER_START_POLL_SECONDS: Final = 0.05
LAUNCHES_MAX: Final = 3
"""Ports we chose ourselves can be lost to another program between choosing and listening; then others are tried."""
LOG_BYTES_MAX: Final = 8 * 1024 * 1024

# Measured on server 1.32: a sequential step 50 ms -> 7 ms, timers true below 1 s, many readers of a busy workflow,
# no pause before an execution goes on in a new run, cancellation of activities that do not heartbeat, fair dispatch,
# and a worker that stands still takes no calls with the polls it had open (for a minute by default).
# Everything also works, slower, without them.
_DYNAMIC_CONFIG: Final = (
    "history.transferProcessorMaxPollRPS=1000",
    "history.timerProcessorMaxPollRPS=1000",
    'history.timerProcessorMaxTimeShift="10ms"',
    "history.MaxBufferedQueryCount=1000",
    'history.workflowIdReuseMinimalInterval="10ms"',
    "frontend.WorkerCommandsEnabled=true",
    "system.enableCancelActivityWorkerCommand=true",
    "frontend.namespaceCount=20000",
    "matching.numTaskqueueReadPartitions=1",
    "matching.numTaskqueueWritePartitions=1",
    "matching.enableFairness=true",
    'matching.longPollExpirationInterval="10s"',
    'matching.wv.VersionDrainageStatusVisibilityGracePeriod="5s"',
    'matching.wv.VersionDrainageStatusRefreshInterval="5s"',
)


@dataclass(frozen=True, slots=True)
class _Start:
    """Everything one start needs; 0 stands for any free port, `lock` is the descriptor the server inherits."""

    program: str
    directory: DataDirectory
    port: int
    ui_port: int
    log: Path
    lock: int
    ui_codec: str | None


class EmbeddedServer:
    """A Temporal server on this machine, or the use of one that another process started here.

    `attached` is True in the second case; then `stop` leaves the server alone. As a context manager it stops on exit.
    """

    def __init__(self, address: ServerAddress, process: ServerProcess | None, gateway: UiGateway | None = None) -> None:
        self.address = address
        self.attached = process is None
        self._process = process
        self._gateway = gateway
        self._owner = os.getpid()

    @classmethod
    def start(
        cls,
        data_dir: Path,
        *,
        port: int = 7233,
        ui_port: int = 8233,
        attach: bool = True,
        log: Path | None = None,
        ui_codec: str | None = None,
    ) -> EmbeddedServer:
        """Start the server of `data_dir` and return when it serves; blocking (0.2 s, a first start 2 s).

        Where a server already runs on the directory, use it (whatever its ports), or refuse with `attach=False`.
        Port 0 means any free one; `log` defaults to `server.log` in the directory. `ui_codec` is the URL at which the
        Web UI finds a codec server.

        Raises:
            MissingPart: there is no `temporal` program.
            InvalidInput: the directory, its database, a port number or the codec's URL cannot be used.
            PortTaken: another program listens on one of the ports.
            DataDirectoryInUse: another server owns the directory and is not to be used, or does not answer.
            ServerUnavailable: the server ended, or did not answer, while starting.
        """
        program = _program()
        check_ports(port, ui_port)
        _check_codec(ui_codec)
        directory = DataDirectory.at(data_dir)
        directory.prepare()
        lock = _lock_or_find(directory)
        if isinstance(lock, ServerAddress):
            if not attach:
                raise DataDirectoryInUse(
                    f"the data directory {directory.path} is in use by the server at {lock.address} "
                    f"(pid {lock.pid}); use that server, stop it, or choose another directory"
                )
            return cls(lock, None)
        try:
            return cls._start(_Start(program, directory, port, ui_port, log or directory.log, lock, ui_codec))
        except OSError as error:  # a full or broken disk, under any of the files
            raise ServerUnavailable(f"the data directory {directory.path} cannot be written: {error}") from error
        finally:
            os.close(lock)  # ours only: the server keeps its own copy, and with it the lock

    @classmethod
    def _start(cls, start: _Start) -> EmbeddedServer:
        directory = start.directory
        directory.clear_leftovers()
        refuse_taken(start.port, "--port")
        with contextlib.ExitStack() as undo:
            gateway = UiGateway.bind(start.ui_port)
            undo.callback(gateway.close)
            _open_log(start.log)
            if directory.has_database():
                directory.check_database()
            else:
                _build(start)
            process, ports, ui_host = _launch(start, directory.database, start.port)
            undo.callback(process.stop)
            gateway.serve(ui_host, ports.ui)
            ui = f"http://{HOST}:{gateway.port}"
            address = ServerAddress(f"{HOST}:{ports.grpc}", ui, process.pid, str(directory.path))
            directory.publish(address)
            undo.pop_all()
        server = cls(address, process, gateway)
        atexit.register(server.stop)
        return server

    @property
    def alive(self) -> bool:
        """Whether the server still runs (it may have crashed, or its owner may have stopped it)."""
        if self._process is not None:
            return not self._process.ended.is_set()
        return running_server(Path(self.address.data_dir)) == self.address

    def wait(self, seconds_max: float) -> bool:
        """Return whether a server of ours has ended within that time; blocking."""
        return self._process is not None and self._process.ended.wait(seconds_max)

    @property
    def fault(self) -> str | None:
        """Why the server was ended though nobody asked for it: its database was taken away from under it."""
        return None if self._process is None else self._process.fault

    def stop(self) -> None:
        """End the server and return when it is gone (about 1.2 s, bounded); nothing when attached or already ended."""
        # A forked child holds a copy of this object; the server is not its to stop.
        if self._process is None or self._owner != os.getpid():
            return
        atexit.unregister(self.stop)
        if not self._process.ended.is_set():
            # First, and while the lock is still ours: whoever comes now waits for the end instead of attaching.
            DataDirectory.at(Path(self.address.data_dir)).retract()
        self._process.stop()
        if self._gateway is not None:
            self._gateway.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _program() -> str:
    beside = Path(sys.executable).with_name("temporal")
    program = str(beside) if os.access(beside, os.X_OK) else shutil.which("temporal")
    if program is None:
        raise MissingPart(f"the Temporal server is not installed; run: {install_command('temporal')}")
    return os.path.abspath(program)  # noqa: PTH100 - the server is started in another folder; links stay as they are


def _lock_or_find(directory: DataDirectory) -> int | ServerAddress:
    """Return the lock's descriptor, or the healthy server that holds it; wait for a start or stop under way."""
    deadline = time.monotonic() + OTHER_START_SECONDS_MAX
    while True:
        lock = directory.try_lock()
        if lock is not None:
            return lock
        address = directory.read_address()
        if address is not None and serves(urlsplit(address.ui).port or 0):
            return address
        if time.monotonic() > deadline:
            who = directory.holder() if address is None else f"the server at {address.address} (pid {address.pid})"
            raise DataDirectoryInUse(
                f"the data directory {directory.path} is held by {who}, which does not answer; "
                "stop that process or choose another directory"
            )
        time.sleep(OTHER_START_POLL_SECONDS)  # a file lock has no event to wait for with a limit


def _build(start: _Start) -> None:
    """Make `temporal.db`: a server of its own brings it up, on ports nobody knows."""
    process, ports, _ = _launch(start, start.directory.building, 0)
    try:
        agreed = set_retention(ports.http, ports.http_name, RETENTION_SECONDS)
    finally:
        process.stop()
    if not agreed:
        raise ServerUnavailable(f"the new server refused its retention time; see {start.log}")
    start.directory.finish_building()


def _launch(start: _Start, database: Path, port: int) -> tuple[ServerProcess, Ports, str]:
    """Return a server that serves `database`, its ports and its Web UI's host, or raise what kept it from starting."""
    words = ""
    for _ in range(LAUNCHES_MAX):
        ports, ui_host = choose_ports(port, 0), hidden_host()
        command = _command(start.program, database, ports, ui_host)
        command += start.directory.write_environment(start.ui_codec) if start.ui_codec else []
        try:
            watch = DatabaseWatch(database)
            process = ServerProcess(Launch(command, start.directory.path, start.log, start.lock, watch.fault))
        except (OSError, ValueError) as error:
            raise ServerUnavailable(f"{start.program} cannot be run: {error}") from error
        with contextlib.ExitStack() as undo:
            undo.callback(process.stop)
            undo.callback(start.directory.clear_environment)
            failed = process.wait_until_ready(ports.http, ports.http_name)
            if failed is None:
                undo.pop_all()
                start.directory.clear_environment()
                return process, ports, ui_host
        words = failed
        if IN_USE not in words or names_port(words, port):
            break
    raise _failure(start, words)


def _failure(start: _Start, words: str) -> HoldfastError:
    if IN_USE in words and names_port(words, start.port):
        return port_taken(start.port, "--port")
    damaged = start.directory.damage_in(words)
    return damaged or ServerUnavailable(f"the Temporal server did not start: {words} (full log: {start.log})")


def _command(program: str, database: Path, ports: Ports, ui_host: str) -> list[str]:
    # The database's bare name, in its own folder: the server reads it as a URI, where `?` and `%` mean something.
    command = [program, "server", "start-dev", "--ip", HOST, "--ui-disable-news-fetch", "--db-filename", database.name]
    command += ["--port", str(ports.grpc), "--http-port", str(ports.http)]
    command += ["--ui-ip", ui_host, "--ui-port", str(ports.ui)]
    # Write-ahead log: twice to three times the throughput; synchronous FULL: a power cut loses no commit.
    command += ["--sqlite-pragma", "journal_mode=wal", "--sqlite-pragma", "synchronous=2"]
    for name, kind in SEARCH_ATTRIBUTES.items():
        command += ["--search-attribute", f"{name}={kind}"]
    for value in (*_DYNAMIC_CONFIG, f"frontend.httpAllowedHosts={json.dumps([ports.http_name])}"):
        command += ["--dynamic-config-value", value]
    return command


def _check_codec(url: str | None) -> None:
    if url is not None and (not url.isprintable() or not url.startswith(("http://", "https://"))):
        raise InvalidInput(f"--ui-codec-endpoint is {url[:200]!r}; give the codec server's URL, http://HOST:PORT/TOKEN")


def _open_log(log: Path) -> None:
    try:
        with log.open("ab") as opened:
            if opened.tell() > LOG_BYTES_MAX:
                opened.truncate(0)
    except OSError as error:
        raise InvalidInput(f"the server's log {log} cannot be written: {error.strerror}") from error
