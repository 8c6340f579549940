"""`MarkFile`: what a garbage collection has listed and read so far, in an SQLite file: memory stays bounded.

A collection that was interrupted goes on from it. Marks only ever keep objects, so old ones delete nothing; a file
older than RESUMED_SECONDS_MAX is begun anew, as it would keep too much.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, Self

from holdfast.core.base.errors import Conflict, InvalidInput, StorageFailed

RESUMED_SECONDS_MAX: Final = 24 * 3600.0
"""How old the file of an interrupted collection may be for another one to go on from it."""

FORMAT: Final = 1
"""The version of the tables."""

ROWS_AT_ONCE: Final = 1_000

DIGEST_BYTES: Final = 32
"""The length of a content's key, its SHA-256; a run's results have their folder's name as theirs."""

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS collection (id TEXT NOT NULL, began REAL NOT NULL);
CREATE TABLE IF NOT EXISTS mark (key BLOB PRIMARY KEY, followed INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS source (id TEXT PRIMARY KEY) WITHOUT ROWID;
DROP TABLE IF EXISTS object;
CREATE TABLE object (
    name TEXT NOT NULL, trash INTEGER NOT NULL, key BLOB NOT NULL, size INTEGER NOT NULL, written REAL NOT NULL,
    PRIMARY KEY (name, trash)
) WITHOUT ROWID;
CREATE INDEX object_key ON object (key);
"""


class Listed(NamedTuple):
    """An object of the store: its name outside the trash, whether it is there, its key, size, and Unix time."""

    name: str
    trash: bool
    key: bytes
    size: int
    written: float


class MarkFile:
    """The lists of one collection. One process at a time; not to be used from several threads."""

    def __init__(self, path: Path, collection_id: str) -> None:
        """Open the file for the collection `collection_id` (the store's URL and the namespaces).

        Raises Conflict where another collection is using it, InvalidInput where it cannot be written.
        """
        self._path = path
        self._database: sqlite3.Connection | None = None
        self.resumed = False
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._open(collection_id)
        except sqlite3.OperationalError as error:
            self.close()
            if "locked" in str(error):
                raise Conflict(f"another garbage collection is using {path}; wait for its end") from None
            raise InvalidInput(f"{path} cannot be used: {error}; choose another --data-dir") from None
        except sqlite3.DatabaseError:  # not a database, or a newer Holdfast's: nothing in it is needed
            self.remove()
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._open(collection_id)
        except OSError as error:
            raise InvalidInput(f"{path} cannot be used: {error.strerror}; choose another --data-dir") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Close the file. Raises StorageFailed for an error of the database, and removes a file that is damaged."""
        self.close()
        if isinstance(error, sqlite3.OperationalError):
            problem = f"{self._path} cannot be read or written: {error}"
            remedy = "make room on its disk, or choose another --data-dir; then run the same command again"
            raise StorageFailed(f"{problem}; {remedy}") from None
        if isinstance(error, sqlite3.DatabaseError):
            self.remove()
            problem = f"{self._path} is damaged ({error}), and was removed"
            raise StorageFailed(f"{problem}; run the same command again, which begins anew") from None

    @property
    def database(self) -> sqlite3.Connection:
        """The open file."""
        assert self._database is not None  # noqa: S101  # for type checkers
        return self._database

    def close(self) -> None:
        """Close the file; it stays for the next collection."""
        if self._database is not None:
            with suppress(sqlite3.Error):
                self._database.commit()
            self._database.close()
            self._database = None

    def remove(self) -> None:
        """Close and delete the file: the collection has ended."""
        self.close()
        for end in ("", "-journal", "-wal", "-shm"):
            Path(f"{self._path}{end}").unlink(missing_ok=True)

    def commit(self) -> None:
        """Save what was marked so far."""
        self.database.commit()

    def mark(self, keys: Iterable[bytes]) -> None:
        """Keep the objects with these keys."""
        self.database.executemany("INSERT OR IGNORE INTO mark (key) VALUES (?)", ((key,) for key in keys))

    def has_read(self, source: str) -> bool:
        """Whether a source that never changes was read, and its references are marked."""
        return self.database.execute("SELECT 1 FROM source WHERE id = ?", (source,)).fetchone() is not None

    def read(self, source: str) -> None:
        """Take note that a source that never changes was read; its references must be marked."""
        self.database.execute("INSERT OR IGNORE INTO source VALUES (?)", (source,))

    def add(self, objects: Iterable[Listed]) -> None:
        """Add objects of the store."""
        self.database.executemany("INSERT OR REPLACE INTO object VALUES (?, ?, ?, ?, ?)", objects)

    def next_followed(self, limit: int) -> list[Listed]:
        """Return the objects of at most `limit` marks whose content is not searched yet; `followed` is to be called."""
        unsearched = (
            "SELECT DISTINCT o.key FROM object o JOIN mark m ON m.key = o.key "
            "WHERE m.followed = 0 AND length(o.key) = ? LIMIT ?"
        )
        keys: list[tuple[bytes]] = self.database.execute(unsearched, (DIGEST_BYTES, limit)).fetchall()
        chosen = "SELECT name, trash, key, size, written FROM object WHERE key = ?"
        return [_listed(row) for key in keys for row in self.database.execute(chosen, key)]

    def followed(self, objects: Iterable[Listed]) -> None:
        """Take note that the content of these objects was searched; what they name must be marked."""
        self.database.executemany("UPDATE mark SET followed = 1 WHERE key = ?", ((each.key,) for each in objects))

    def has_unmarked(self, folder: str) -> bool:
        """Return whether an object of a folder is not marked, outside the trash or in it."""
        found = (
            "SELECT 1 FROM object o LEFT JOIN mark m ON m.key = o.key "
            "WHERE o.name BETWEEN ? AND ? AND m.key IS NULL LIMIT 1"
        )
        return self.database.execute(found, (f"{folder}/", f"{folder}0")).fetchone() is not None

    def objects(self, *, marked: bool, trash: bool) -> Iterator[Listed]:
        """Yield the objects that are marked or not, in the trash or not; the lists must not change meanwhile."""
        chosen = (
            "SELECT o.name, o.trash, o.key, o.size, o.written FROM object o LEFT JOIN mark m ON m.key = o.key "
            "WHERE o.trash = ? AND (m.key IS NOT NULL) = ?"
        )
        cursor = self.database.execute(chosen, (trash, marked))
        while rows := cursor.fetchmany(ROWS_AT_ONCE):
            yield from map(_listed, rows)

    def counted(self, folder: str, *, marked: bool) -> tuple[int, int]:
        """Return how many objects of a folder, outside the trash, are marked or not, and their bytes."""
        counting = (
            "SELECT count(*), coalesce(sum(o.size), 0) FROM object o LEFT JOIN mark m ON m.key = o.key "
            "WHERE o.trash = 0 AND o.name BETWEEN ? AND ? AND (m.key IS NOT NULL) = ?"
        )
        count, size = self.database.execute(counting, (f"{folder}/", f"{folder}0", marked)).fetchone()
        return count, size

    def _open(self, collection_id: str) -> None:
        # timeout 0: whoever has it locked has it until a collection's end
        self._database = sqlite3.connect(self._path, timeout=0, check_same_thread=False)
        self._database.execute("PRAGMA locking_mode = EXCLUSIVE")
        if self._database.execute("PRAGMA user_version").fetchone()[0] > FORMAT:
            raise sqlite3.DatabaseError("a newer Holdfast wrote it")
        self._database.executescript(f"BEGIN EXCLUSIVE; {_TABLES} PRAGMA user_version = {FORMAT}; COMMIT;")
        row = self._database.execute("SELECT id, began FROM collection").fetchone()
        if row is not None and row[0] == collection_id and 0 <= time.time() - row[1] <= RESUMED_SECONDS_MAX:
            self.resumed = True
            return
        for table in ("collection", "mark", "source"):
            self._database.execute(f"DELETE FROM {table}")  # noqa: S608  # our own names
        self._database.execute("INSERT INTO collection VALUES (?, ?)", (collection_id, time.time()))
        self._database.commit()


def _listed(row: tuple[str, int, bytes, int, float]) -> Listed:
    name, trash, key, size, written = row
    return Listed(name, bool(trash), key, size, written)
