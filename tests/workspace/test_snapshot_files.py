"""Files of snapshots for people: put, listed, read as they are and as an archive."""

from __future__ import annotations

import io
import json
import tarfile
from hashlib import sha256
from pathlib import Path

import pytest

from holdfast.core.base.errors import InvalidInput, StorageFailed
from holdfast.storage.records import Records
from holdfast.workspace import snapshot_files, snapshot_store
from holdfast.workspace.inside.snapshots import EMPTY
from holdfast.workspace.snapshot_files import SnapshotFiles
from holdfast.workspace.snapshot_store import SnapshotStore
from tests.workspace.programs import Inside


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records.in_folder(tmp_path / "objects")


async def put(records: Records, source: Path, place: str = ".", digest: str = EMPTY) -> str:
    return await SnapshotFiles(records).with_files(digest, source, place)


def folder(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "a").write_text("one")
    (source / "deep" / "b").write_text("two")
    (source / "deep" / "run").write_text("#!/bin/sh\n")
    (source / "deep" / "run").chmod(0o755)
    (source / "out").symlink_to("/etc/passwd")
    return source


async def test_a_folder_that_is_put_is_what_a_workspace_would_have_made(tmp_path: Path, records: Records) -> None:
    made = await put(records, folder(tmp_path))
    inside = Inside.below(tmp_path / "workspace")
    inside.ask({"op": "restore", "files": made}, b"".join(await SnapshotStore(records).packed(made)))
    assert (inside.root / "deep" / "b").read_text() == "two"
    assert not (inside.root / "out").exists(), "links are left out"
    inside.files = made
    inside.shell("true")
    assert inside.files == made


async def test_files_are_listed_and_read_and_a_folder_is_an_archive(tmp_path: Path, records: Records) -> None:
    made = await put(records, folder(tmp_path), "project")
    files = SnapshotFiles(records)
    assert [each.path for each in await files.listed(made)] == ["project/a", "project/deep/b", "project/deep/run"]
    assert [each.path for each in await files.listed(made, "project/deep")] == ["project/deep/b", "project/deep/run"]
    assert await files.read(made, "project/a") == b"one"
    with tarfile.open(fileobj=io.BytesIO(await files.read(made, "project"))) as archive:
        entries = {each.name: each.mode for each in archive.getmembers()}
        opened = archive.extractfile("deep/b")
        assert opened is not None
        assert opened.read() == b"two"
    assert entries == {"a": 0o644, "deep/b": 0o644, "deep/run": 0o755}


async def test_a_file_is_put_beside_those_that_are_there_and_replaces_its_own(tmp_path: Path, records: Records) -> None:
    first = await put(records, folder(tmp_path))
    (tmp_path / "a").write_text("changed")
    second = await put(records, tmp_path / "a", digest=first)
    files = SnapshotFiles(records)
    assert await files.read(second, "a") == b"changed"
    assert await files.read(second, "deep/b") == b"two"
    assert await files.read(first, "a") == b"one", "a snapshot never changes"


@pytest.mark.parametrize("path", ["..", "../a", "/etc/passwd", "a/../../b"])
async def test_a_path_that_leads_out_is_refused(tmp_path: Path, records: Records, path: str) -> None:
    made = await put(records, folder(tmp_path))
    with pytest.raises(InvalidInput, match="leads out of the workspace"):
        await SnapshotFiles(records).read(made, path)
    with pytest.raises(InvalidInput, match="leads out of the workspace"):
        await put(records, tmp_path / "source", path)


async def test_a_name_that_begins_with_dots_leads_nowhere_else(tmp_path: Path, records: Records) -> None:
    (tmp_path / "a").write_text("dots")
    files = SnapshotFiles(records)
    made = await files.with_files(EMPTY, tmp_path / "a", "..notes/...a")
    assert await files.read(made, "..notes/...a") == b"dots"


async def test_what_is_not_there_or_in_the_way_is_refused_in_words(tmp_path: Path, records: Records) -> None:
    made = await put(records, folder(tmp_path))
    with pytest.raises(InvalidInput, match="has no file or folder 'nothing'"):
        await SnapshotFiles(records).read(made, "nothing")
    with pytest.raises(InvalidInput, match="'deep' is a link or a folder"):
        await put(records, tmp_path / "source" / "a", "deep", made)
    with pytest.raises(InvalidInput, match="cannot be read"):
        await put(records, tmp_path / "missing")


async def test_a_folder_larger_than_a_snapshot_is_refused_before_it_is_read(
    tmp_path: Path, records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_files, "TOTAL_BYTES_MAX", 5)
    with pytest.raises(InvalidInput, match="name a part of it"):
        await put(records, folder(tmp_path))


@pytest.mark.parametrize("path", ["../out", "/etc/out", "a/../../out", "a//b", ".", "a\0b"])
async def test_a_forged_manifest_is_neither_stored_nor_restored(records: Records, path: str) -> None:
    content = b"forged"
    files = [[path, 0o644, len(content), sha256(content).hexdigest()]]
    data = json.dumps({"files": files, "folders": [], "links": []}).encode()
    store, digest = SnapshotStore(records), await records.write_attachment(data)
    with pytest.raises(StorageFailed, match="none of a workspace's"):
        await store.write(digest, [data, content], EMPTY)
    with pytest.raises(StorageFailed, match="none of a workspace's"):
        await store.packed(digest)


async def test_a_snapshot_larger_than_any_is_not_gathered(
    tmp_path: Path, records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await put(records, folder(tmp_path))
    monkeypatch.setattr(snapshot_store, "TOTAL_BYTES_MAX", 5)
    with pytest.raises(StorageFailed, match="has more than 5 bytes"):
        await SnapshotStore(records).packed(made)
