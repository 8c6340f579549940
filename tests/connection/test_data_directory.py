"""Data directories and databases that cannot work, met through the real server's start."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.connection import data_directory
from holdfast.connection.data_directory import DataDirectory
from holdfast.core.base.errors import HoldfastError, InvalidInput
from holdfast.server.embedded import EmbeddedServer

pytestmark = pytest.mark.temporal

NOBODY = 65_534


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data directory whose database has no write-ahead log to hide damage."""
    data_dir = tmp_path_factory.mktemp("stopped")
    with EmbeddedServer.start(data_dir, port=0, ui_port=0):
        pass
    with contextlib.closing(sqlite3.connect(data_dir / "temporal.db")) as opened:
        opened.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert not (data_dir / "temporal.db-wal").exists()
    return data_dir


@pytest.fixture
def settled(stopped: Path, tmp_path: Path) -> Path:
    """Return a copy of `stopped` to damage."""
    return Path(shutil.copytree(stopped, tmp_path / "data"))


@pytest.mark.parametrize("name", ["file", "file/below", "nul\0byte", "x" * 300])
def test_a_path_that_can_be_no_folder_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InvalidInput, match=r"data directory .* cannot be used"):
        EmbeddedServer.start(tmp_path / name, port=0, ui_port=0)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.fixture
def guarded() -> Iterator[Path]:
    """Return a folder in which this process, root or not, has only the rights its mode gives."""
    folder = Path(tempfile.mkdtemp())  # not tmp_path, whose parents are closed to other users
    folder.chmod(0o755)
    root = os.geteuid() == 0
    if root:
        os.chown(folder, NOBODY, NOBODY)
        os.seteuid(NOBODY)
    yield folder
    if root:
        os.seteuid(0)
    for path in (folder, *folder.iterdir()):
        path.chmod(0o700)
    shutil.rmtree(folder)


@pytest.mark.parametrize("mode", [0o000, 0o300, 0o500])
def test_a_folder_without_our_rights_is_refused(guarded: Path, mode: int) -> None:
    data_dir = guarded / "data"
    data_dir.mkdir()
    (data_dir / "lock").touch()
    data_dir.chmod(mode)
    with pytest.raises(InvalidInput, match="cannot be read and written"):
        EmbeddedServer.start(data_dir, port=0, ui_port=0)


def test_a_parent_folder_without_our_rights_is_refused(guarded: Path) -> None:
    guarded.chmod(0o500)
    with pytest.raises(InvalidInput, match="Permission denied"):
        EmbeddedServer.start(guarded / "new", port=0, ui_port=0)


def test_a_read_only_database_is_refused(guarded: Path) -> None:
    data_dir = guarded / "data"
    data_dir.mkdir()
    (data_dir / "temporal.db").write_bytes(b"SQLite")
    (data_dir / "temporal.db").chmod(0o400)
    with pytest.raises(InvalidInput, match=r"temporal\.db cannot be read and written"):
        EmbeddedServer.start(data_dir, port=0, ui_port=0)


def empty(database: Path) -> None:
    database.write_bytes(b"")


def cut_in_half(database: Path) -> None:
    os.truncate(database, database.stat().st_size // 2)


def replaced(database: Path) -> None:
    database.write_bytes(b"not a database\n" * 1000)


def zeroed_inside(database: Path) -> None:
    with database.open("r+b") as opened:
        for page in range(10, database.stat().st_size // 4096, 7):
            opened.seek(page * 4096)
            opened.write(bytes(4096))


def of_another_program(database: Path) -> None:
    database.unlink()
    with contextlib.closing(sqlite3.connect(database)) as opened:
        opened.execute("CREATE TABLE theirs (x)")


def a_folder(database: Path) -> None:
    database.unlink()
    database.mkdir()


def content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


@pytest.mark.parametrize("damage", [empty, cut_in_half, replaced, zeroed_inside, of_another_program, a_folder])
def test_a_damaged_database_is_named_and_left_as_it_is(settled: Path, damage: Callable[[Path], None]) -> None:
    database = settled / "temporal.db"
    damage(database)
    damaged = content(database)
    with pytest.raises(InvalidInput, match=r"cannot be used.*move temporal\.db") as caught:
        EmbeddedServer.start(settled, port=0, ui_port=0)
    assert str(database) in str(caught.value)
    assert content(database) == damaged
    assert not DataDirectory.at(settled).locked()


@pytest.mark.parametrize("damage", [cut_in_half, replaced])
def test_damage_only_the_server_notices_is_named_too(
    settled: Path, damage: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def see_nothing(_directory: DataDirectory) -> None:
        pass

    monkeypatch.setattr(DataDirectory, "check_database", see_nothing)
    damage(settled / "temporal.db")
    damaged = content(settled / "temporal.db")
    with pytest.raises(InvalidInput, match=r"the database .*temporal\.db cannot be used"):
        EmbeddedServer.start(settled, port=0, ui_port=0)
    assert content(settled / "temporal.db") == damaged


def test_a_large_database_cut_short_is_found_without_reading_it_whole(
    settled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_directory, "QUICK_CHECK_BYTES_MAX", 0)
    cut_in_half(settled / "temporal.db")
    with pytest.raises(InvalidInput, match="malformed"):
        EmbeddedServer.start(settled, port=0, ui_port=0)


def test_a_write_ahead_log_without_its_database_is_never_given_to_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "temporal.db-wal").write_bytes(b"theirs")
    with pytest.raises(InvalidInput, match=r"temporal\.db is missing but .*temporal\.db-wal is there"):
        EmbeddedServer.start(tmp_path, port=0, ui_port=0)
    assert (tmp_path / "temporal.db-wal").read_bytes() == b"theirs"
    assert not (tmp_path / "temporal.db").exists()


def test_every_refusal_is_one_of_ours_when_the_disk_fails(tmp_path: Path) -> None:
    (tmp_path / "server.json.new").mkdir()  # cannot be removed as a file, whoever we are
    with pytest.raises(HoldfastError, match="cannot be written"):
        EmbeddedServer.start(tmp_path, port=0, ui_port=0)
