"""The trash of a store, in a real folder and in memory: moved objects are still read, and come back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.core.base.errors import ObjectMissing
from holdfast.storage.object_store import Entry, Objects, in_trash

NAME = "payloads/ab/abc"
RESULT = "results/0123-4567/ref.0"


@pytest.fixture(params=["folder", "memory"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Objects:
    return Objects((tmp_path / "objects").as_uri() if request.param == "folder" else "memory:///trash")


async def listed(objects: Objects, folder: str) -> list[Entry]:
    return [each async for page in objects.entries(folder) for each in page]


async def test_a_moved_object_is_read_from_the_trash_and_written_again(objects: Objects) -> None:
    await objects.write(NAME, b"content")
    await objects.to_trash(NAME)
    assert await objects.entry(NAME) is None
    [entry] = await listed(objects, "trash/payloads")
    assert (entry.name, entry.size) == (in_trash(NAME), 7)
    assert datetime.now(UTC) - entry.written < timedelta(minutes=5), "its time in the trash counts from the move"
    assert await objects.read(NAME) == b"content"
    assert await objects.entry(NAME) is not None, "who reads it takes it out"
    await objects.empty_trash_of(NAME)
    assert await listed(objects, "trash/payloads") == []
    assert await objects.read(NAME) == b"content"


async def test_only_what_can_be_collected_is_looked_for_in_the_trash(objects: Objects) -> None:
    await objects.write("trash/parts/ab/abc", b"content")
    with pytest.raises(ObjectMissing, match="no object parts/ab/abc"):
        await objects.read("parts/ab/abc")


async def test_what_is_missing_is_neither_moved_nor_restored_nor_deleted(objects: Objects) -> None:
    await objects.to_trash(NAME)
    await objects.from_trash(NAME)
    await objects.empty_trash_of(NAME)
    assert await listed(objects, "payloads") == []
    with pytest.raises(ObjectMissing, match="no object payloads/ab/abc"):
        await objects.read(NAME)


async def test_an_object_written_again_as_it_is_moved_is_not_lost(objects: Objects) -> None:
    await objects.write(NAME, b"content")
    await objects.replace(NAME, b"content")  # another writer, between the last look and the move
    await objects.to_trash(NAME)
    assert await objects.read(NAME) == b"content"
    await objects.to_trash(NAME)
    await objects.from_trash(NAME)
    assert await objects.entry(NAME) is not None
    assert await objects.entry(in_trash(NAME)) is not None, "the copy stays until it is old enough"


async def test_a_runs_folder_of_results_goes_with_its_last_object(tmp_path: Path) -> None:
    objects = Objects((tmp_path / "objects").as_uri())
    for each in (RESULT, f"{RESULT}1", NAME):
        await objects.write(each, b"content")
        await objects.to_trash(each)
    assert not (tmp_path / "objects" / "results" / "0123-4567").exists()
    assert (tmp_path / "objects" / "payloads" / "ab").exists(), "256 folders at most: they stay for the next writer"
    await objects.empty_trash_of(RESULT)
    await objects.empty_trash_of(f"{RESULT}1")
    assert not (tmp_path / "objects" / "trash" / "results" / "0123-4567").exists()


async def test_links_in_a_folder_are_neither_listed_nor_moved(tmp_path: Path) -> None:
    objects, outside = Objects((tmp_path / "objects").as_uri()), tmp_path / "outside"
    outside.write_bytes(b"somebody's")
    await objects.write(NAME, b"content")
    (tmp_path / "objects" / "payloads" / "ab" / "link").symlink_to(outside)
    assert [each.name for each in await listed(objects, "payloads")] == [NAME]
    assert outside.exists()
