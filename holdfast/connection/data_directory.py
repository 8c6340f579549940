"""A data directory: its lock, its address file and its database file; it never starts or stops a server.

lock           held (flock) by the server process itself; its text is the pid of the process that started it
server.json    where the running server listens; meaningful only while the lock is held
temporal.db    the database, complete from the moment it has this name
building.db*   a first start that has not finished; removed by the next start
server.log     what the server printed
server.yaml    where the Web UI finds a codec server, with the token that no process list is to show; while it starts
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sqlite3
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from holdfast.core.base.errors import InvalidInput, ServerUnavailable

QUICK_CHECK_BYTES_MAX: Final = 64 * 1024 * 1024
"""Every page of a database up to this size is checked before a start (about 0.1 s); of a larger one the first only."""

ENVIRONMENT: Final = "holdfast"
"""What Temporal's program is told that the options in `server.yaml` are called."""

_MOVE_AWAY: Final = "move temporal.db, temporal.db-wal and temporal.db-shm away together, or restore a backup"


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where an embedded server listens; `server.json` holds exactly these fields.

    `address` is "host:port" for Temporal clients, `ui` the URL of the Web UI.
    """

    address: str
    ui: str
    pid: int
    data_dir: str


class DatabaseWatch:
    """Whether a running server still writes the files that the next start will read."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._first: tuple[int, int] | None = None

    def fault(self) -> str | None:
        """Return what has become of the database since it was there first; none where it is the same file still."""
        try:
            now = self._database.stat()
        except FileNotFoundError:
            identity, became = None, "removed"
        except OSError:  # it cannot be told
            return None
        else:
            identity, became = (now.st_dev, now.st_ino), "replaced"
        if self._first is None or identity == self._first:
            self._first = self._first or identity
            return None
        return (
            f"{self._database} was {became} while the server was running, so the server was stopped: everything it "
            "accepted from then on would be lost; restore the file, or start with a new database"
        )


@dataclass(frozen=True, slots=True)
class DataDirectory:
    """The files of one data directory; `path` is absolute."""

    path: Path

    @classmethod
    def at(cls, path: Path) -> DataDirectory:
        """Name the directory without touching it."""
        return cls(Path(os.path.abspath(path)))  # noqa: PTH100 - resolve() would read the disk and follow links

    @property
    def database(self) -> Path:
        """The finished database."""
        return self.path / "temporal.db"

    @property
    def building(self) -> Path:
        """The database of a first start, until it is healthy."""
        return self.path / "building.db"

    @property
    def log(self) -> Path:
        """The server's output."""
        return self.path / "server.log"

    def write_environment(self, ui_codec: str) -> list[str]:
        """Write the codec server's address into a file of the owner's alone, and return the options that name it."""
        self.clear_environment()
        with os.fdopen(os.open(self._environment, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump({"env": {ENVIRONMENT: {"ui-codec-endpoint": ui_codec.rstrip("/")}}}, file)  # which is YAML, too
        return ["--env-file", str(self._environment), "--env", ENVIRONMENT]

    def clear_environment(self) -> None:
        """Remove what `write_environment` has written: a server reads it once."""
        self._environment.unlink(missing_ok=True)

    @property
    def _environment(self) -> Path:
        return self.path / "server.yaml"

    @property
    def _lock(self) -> Path:
        return self.path / "lock"

    @property
    def _address(self) -> Path:
        return self.path / "server.json"

    def prepare(self) -> None:
        """Create the directory (readable by its owner only) or raise `InvalidInput` saying why it cannot be used."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except (OSError, ValueError) as error:
            raise self._unusable(error) from error
        # The lock may be there and writable while the directory is not, so the directory is asked as well.
        if not os.access(self.path, os.R_OK | os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
            raise self._unusable(PermissionError("it cannot be read and written"))

    def try_lock(self) -> int | None:
        """Take the lock; return its file descriptor, or None when a server or another start holds it.

        Release it with `os.close` only: LOCK_UN would also take it from a server that inherited the descriptor.
        """
        try:
            descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._unusable(error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError as error:
            os.close(descriptor)
            raise self._unusable(error) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        return descriptor

    def locked(self) -> bool:
        """Whether a server, or a start, holds the lock; changes nothing."""
        try:
            probe = os.open(self._lock, os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except (OSError, ValueError) as error:
            raise self._unusable(error) from error
        try:
            # Shared, so that two readers never see each other; a start that meets a reader tries again.
            fcntl.flock(probe, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(probe)
        return False

    def holder(self) -> str:
        """Name the process that took the lock, for a message."""
        with contextlib.suppress(OSError):
            if pid := self._lock.read_text(encoding="ascii", errors="replace").strip():
                return f"pid {pid}"
        return "another process"

    def read_address(self) -> ServerAddress | None:
        """Return what `server.json` says, None when it is absent or not ours."""
        try:
            data: Any = json.loads(self._address.read_bytes())
            return ServerAddress(str(data["address"]), str(data["ui"]), int(data["pid"]), str(data["data_dir"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def publish(self, address: ServerAddress) -> None:
        """Write `server.json` in one step, so that nobody reads half of it."""
        fresh = self._address.with_suffix(".json.new")
        fresh.write_text(json.dumps(asdict(address)) + "\n", encoding="utf-8")
        fresh.replace(self._address)

    def retract(self) -> None:
        """Remove `server.json`; only for the one whose server holds the lock."""
        self._address.unlink(missing_ok=True)

    def clear_leftovers(self) -> None:
        """Remove what a killed start left behind; only under the lock."""
        self.retract()
        for leftover in (*self.path.glob("building.db*"), *self.path.glob("server.json.new")):
            leftover.unlink(missing_ok=True)

    def has_database(self) -> bool:
        """Whether a first start has finished here.

        Raises:
            InvalidInput: the database is gone but its write-ahead log is not: SQLite would replay that log into a
                new database and ruin both.
        """
        if os.path.lexists(self.database):
            return True
        log = self.path / "temporal.db-wal"
        if log.exists():
            raise InvalidInput(f"{self.database} is missing but {log} is there; put it back, or move the -wal away too")
        return False

    def check_database(self) -> None:
        """Raise `InvalidInput` for a database no server can run on; never change it."""
        if not self.database.is_file():
            raise self._damaged("it is not a file")
        if not os.access(self.database, os.R_OK | os.W_OK, effective_ids=os.access in os.supports_effective_ids):
            raise InvalidInput(f"{self.database} cannot be read and written; change its permissions or owner")
        size = self.database.stat().st_size
        if size == 0:
            raise self._damaged("it is empty (0 bytes)")
        try:
            with contextlib.closing(sqlite3.connect(self.database.as_uri() + "?mode=ro", uri=True)) as opened:
                table = opened.execute("SELECT 1 FROM sqlite_master WHERE name = 'namespaces'").fetchone()
                verdict = opened.execute("PRAGMA quick_check(1)").fetchone() if size <= QUICK_CHECK_BYTES_MAX else None
        except sqlite3.Error as error:
            raise self._damaged(str(error)) from error
        if table is None:
            raise self._damaged("it holds no Temporal tables")
        if verdict is not None and verdict[0] != "ok":
            raise self._damaged(" ".join(str(verdict[0]).split()))

    def damage_in(self, line: str) -> InvalidInput | None:
        """Return the error for a server's last line when it blames the database."""
        marks = ("database disk image is malformed", "file is not a database", "no such table")
        return self._damaged(line) if any(mark in line for mark in marks) else None

    def finish_building(self) -> None:
        """Give the built database its final name, whole or not at all, even across a power cut."""
        try:
            # The server leaves its write-ahead log behind even after a clean stop; a rename would part the two.
            with contextlib.closing(sqlite3.connect(self.building.as_uri() + "?mode=rw", uri=True)) as opened:
                busy: Any = opened.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        except sqlite3.Error as error:
            raise ServerUnavailable(
                f"the new database {self.building} cannot be finished: {error}; try again"
            ) from error
        if busy:
            raise ServerUnavailable(f"another program has {self.building} open; close it and try again")
        _sync(self.building)
        self.building.rename(self.database)
        _sync(self.path)

    def _unusable(self, error: OSError | ValueError) -> InvalidInput:
        reason = "it is a file" if isinstance(error, FileExistsError) else getattr(error, "strerror", None) or error
        return InvalidInput(f"the data directory {str(self.path)!r} cannot be used: {reason}; choose another one")

    def _damaged(self, reason: str) -> InvalidInput:
        return InvalidInput(f"the database {self.database} cannot be used: {reason}; {_MOVE_AWAY}")


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def running_server(data_dir: Path) -> ServerAddress | None:
    """Return the server that runs on the directory now; None where there is none, or it is still starting."""
    directory = DataDirectory.at(data_dir)
    return directory.read_address() if directory.locked() else None
