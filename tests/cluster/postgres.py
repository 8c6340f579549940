"""A PostgreSQL server of a test's own, as Debian packages it; it can be killed, and followed by a replica."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.cluster.processes import Program, as_user, environment

HOST: Final = "127.0.0.1"
USER: Final = "temporal"
PASSWORD: Final = "loopback"  # noqa: S105  # of a database that lives as long as its test
DATABASES: Final = ("temporal", "temporal_visibility")
CONNECTIONS_MAX: Final = 400
"""Seven server processes with 20 connections to the store and 10 to visibility each, and some to look."""

MEMORY: Final = Path("/dev/shm")  # noqa: S108  # the folder that is made in it is its user's alone
READY_SECONDS_MAX: Final = 120.0
POLL_SECONDS: Final = 0.1


STANDBY: Final = "standby"
"""The name by which a replica, and its slot, is known to its primary."""


class Postgres:
    """A running PostgreSQL on a loopback port."""

    def __init__(
        self, port: int, place: Path | None = None, *, source: Postgres | None = None, follow: str | None = None
    ) -> None:
        """Start it; its files go into a new folder in `place`, by default in memory where the system has that.

        It is new, or begins as a base backup of `source`; with `follow`, the address (HOST:PORT) at which it reaches
        its source, it is a replica of it until it is promoted.
        """
        self.port = port
        self._user = "postgres" if os.geteuid() == 0 else None  # PostgreSQL refuses to run as root
        # a folder of its own: those of pytest are closed to other users
        self.folder = Path(
            tempfile.mkdtemp(prefix="holdfast-postgresql-", dir=place or (MEMORY if MEMORY.is_dir() else None))
        )
        self._prepare()
        if source is None:
            password = str(self.folder / "password")
            self._run("initdb", "--auth", "scram-sha-256", "--username", USER, "--pwfile", password, str(self.data))
        else:
            self._copy(source, follow)
        options = {
            "listen_addresses": HOST,
            "port": str(port),
            "unix_socket_directories": "",
            "max_connections": str(CONNECTIONS_MAX),
            "wal_level": "replica",
            "shared_buffers": "256MB",
        }
        settings = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        command = [program("postgres"), "-D", str(self.data), *settings]
        log = self.folder / "log"
        self.process = Program(
            "postgres", command, log, environment(), user=self._user, stop=signal.SIGINT
        )  # ends its sessions
        self.wait_until_ready()

    @property
    def data(self) -> Path:
        """The database's folder."""
        return self.folder / "data"

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return f"{HOST}:{self.port}"

    def wait_until_ready(self) -> None:
        """Return once it takes connections."""
        until = time.monotonic() + READY_SECONDS_MAX
        while subprocess.run([program("pg_isready"), "-q", "-h", HOST, "-p", str(self.port)], check=False).returncode:
            assert self.process.alive, self.process.last_words()
            assert time.monotonic() < until, self.process.last_words()
            time.sleep(POLL_SECONDS)

    def kill(self) -> None:
        """Kill it as a machine that loses its power does: nothing is written any more."""
        self.process.kill()

    def start_again(self) -> None:
        """Start it on its data, and return once it has recovered."""
        self.process.start_again()
        self.wait_until_ready()

    def until_followed(self, *, synchronous: bool) -> None:
        """Return once a replica follows it; with `synchronous`, no commit is acknowledged that the replica lacks."""
        if synchronous:
            self.query(f"ALTER SYSTEM SET synchronous_standby_names = '{STANDBY}'")  # synchronous_commit is `on`
            self.query("SELECT pg_reload_conf()")
        wanted = ["streaming", "sync" if synchronous else "async"]
        until = time.monotonic() + READY_SECONDS_MAX
        while (rows := self.query("SELECT state, sync_state FROM pg_stat_replication")) != [wanted]:
            assert time.monotonic() < until, rows
            time.sleep(POLL_SECONDS)

    def promote(self) -> None:
        """Make a replica a primary, and return once it takes writes."""
        assert self.query("SELECT pg_promote(true, 60)") == [["t"]], self.process.last_words()

    def dump(self, database: str, target: Path) -> None:
        """Dump a database as docs/storage.md has it: at one moment, while it works."""
        with target.open("wb") as output:
            told = [program("pg_dump"), "--format", "custom", "--dbname", self._url(database)]
            subprocess.run(told, check=True, stdout=output, env=environment())

    def restore(self, database: str, source: Path) -> None:
        """Create a database from a dump."""
        told = [program("pg_restore"), "--create", "--exit-on-error", "--dbname", self._url("postgres")]
        with source.open("rb") as dump:
            subprocess.run(told, check=True, stdin=dump, env=environment())
        assert self.query("SELECT current_database()", database) == [[database]]

    def stop(self) -> None:
        """End it, and every session with it, and remove its files."""
        self.process.stop()
        shutil.rmtree(self.folder)

    def query(self, statement: str, database: str = DATABASES[0]) -> list[list[str]]:
        """Return the rows of a statement, every value as text."""
        return [line.split(",") for line in self.psql(database, statement).splitlines()]

    def psql(self, database: str, *commands: str) -> str:
        """Return what psql prints for these commands of one connection, as CSV without a header."""
        told = [
            program("psql"),
            "--no-psqlrc",
            "--csv",
            "--tuples-only",
            "--quiet",
            *(f"--command={each}" for each in commands),
        ]
        done = subprocess.run(
            [*told, self._url(database)], check=False, capture_output=True, text=True, env=environment()
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _prepare(self) -> None:
        (self.folder / "password").write_text(PASSWORD)
        if self._user is not None:
            for each in (self.folder, self.folder / "password"):
                shutil.chown(each, self._user)

    def _copy(self, source: Postgres, follow: str | None) -> None:
        """Fill the folder with a base backup: the whole of `source` as it was at the end of it."""
        place = f"postgresql://{USER}:{PASSWORD}@{follow or source.address}/?application_name={STANDBY}"
        told = ["--pgdata", str(self.data), "--checkpoint", "fast", "--dbname", place]
        if follow is not None:
            told += ["--write-recovery-conf", "--create-slot", "--slot", STANDBY]
        self._run("pg_basebackup", *told)

    def _url(self, database: str) -> str:
        return f"postgresql://{USER}:{PASSWORD}@{self.address}/{database}"

    def _run(self, name: str, *arguments: str) -> None:
        command: Sequence[str] = ["setpriv", *as_user(self._user), "--", program(name), *arguments]
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment())
        assert done.returncode == 0, done.stderr


def program(name: str) -> str:
    """Return the path of one of PostgreSQL's programs: Debian keeps the server's out of PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda each: int(each.parts[-3]))
    path = str(found[-1]) if found else shutil.which(name)
    if path is None:
        raise RuntimeError(f"there is no PostgreSQL ({name}); install Debian's package `postgresql`")
    return path


def version() -> str:
    """Return the version of the server that `program` finds, such as `15.14`."""
    answer = subprocess.run([program("postgres"), "--version"], check=True, capture_output=True, text=True)
    return answer.stdout.split()[2]
