"""Single collections of a folder: what is restored, kept, told beforehand, and left as it is by one that ends early."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload

from holdfast.core.base.errors import InvalidInput, ServerUnavailable, StorageFailed
from holdfast.server.garbage.collection import CLOCK, Collection, Report, Rules, Source
from holdfast.server.garbage.mark_file import MarkFile
from holdfast.server.garbage.references import ReferenceReader
from holdfast.server.garbage.store_sources import StoreSource
from holdfast.storage.object_store import Objects, in_trash

HOUR = 3600.0
OLD, LONG_AGO = 100.0, 1_000.0
"""Hours: old enough for the trash, and to be deleted from there."""


class History:
    """A namespace whose runs refer to these contents; `error` is what reading them again ends with."""

    def __init__(self, *contents: bytes, error: Exception | None = None) -> None:
        self._keys = [sha256(each).digest() for each in contents]
        self._error = error

    async def mark(self, marks: MarkFile, *, again: bool) -> None:
        marks.mark(self._keys)
        if again and self._error is not None:
            raise self._error


class Store:
    """A folder of objects of any age, and the file of its collections."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "objects"
        self.objects = Objects(self.folder.as_uri())
        self._file = folder / "marks.db"

    def put(self, folder: str, content: bytes, *, hours: float = OLD, trash: bool = False, stem: str = "") -> str:
        """Write a content as of so many hours ago, and return its name; `stem` is a name that is none of ours."""
        digits = sha256(content).hexdigest()
        name = f"{folder}/{stem}" if stem else f"{folder}/{digits[:2]}/{digits}"
        path = self.folder / (in_trash(name) if trash else name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(Payload(metadata={"encoding": b"binary/plain"}, data=content).SerializeToString())
        written = time.time() - hours * HOUR
        os.utime(path, (written, written))
        return name

    def names(self) -> set[str]:
        """The objects that are there; not those that a collection writes for itself."""
        files = (each.relative_to(self.folder).as_posix() for each in self.folder.rglob("*") if each.is_file())
        return {each for each in files if each != CLOCK}

    async def collect(
        self,
        *sources: Source,
        dry_run: bool = False,
        objects: Objects | None = None,
        ahead: float = 0,
        phase: Callable[[str], None] = lambda _: None,
    ) -> Report:
        """Collect, by a clock that is so many hours ahead of the folder's."""
        store = StoreSource(objects or self.objects, ReferenceReader(None), lambda _: None)
        with MarkFile(self._file, "test") as marks:
            collection = Collection(
                objects or self.objects, store, sources, Rules(dry_run=dry_run), lambda: time.time() + ahead * HOUR
            )
            report = await collection.run(marks, phase)
            marks.remove()
        return report


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def digest(content: bytes) -> bytes:
    return sha256(content).hexdigest().encode()


async def test_an_attachment_in_the_trash_that_a_snapshot_alone_names_is_taken_out(store: Store) -> None:
    name = store.put("attachments", b"file", hours=LONG_AGO, trash=True)
    store.put("snapshots", b"state with " + digest(b"file"), hours=LONG_AGO)
    report = await store.collect()
    assert report.folders["attachments"].restored.objects == 1
    assert name in store.names()


async def test_a_collection_that_ended_while_it_followed_references_follows_them_when_resumed(store: Store) -> None:
    class Failing(Objects):
        async def read(self, name: str) -> bytes:
            if name == manifest:
                raise StorageFailed("it is away for the moment")
            return await super().read(name)

    file = store.put("attachments", b"file")
    manifest = store.put("attachments", b"manifest with " + digest(b"file"))
    source = History(b"manifest with " + digest(b"file"))
    with pytest.raises(StorageFailed):
        await store.collect(source, objects=Failing(store.objects.url))
    report = await store.collect(source)
    assert report.resumed
    assert report.trashed_names == []
    assert {file, manifest} <= store.names()


def _everything(store: Store) -> Source:
    """Objects in every state that a collection knows, outside the trash and in it; some are referred to."""
    used = [f"used {number}".encode() for number in range(4)]
    store.put("payloads", used[0])
    store.put("payloads", used[1], hours=LONG_AGO, trash=True)
    store.put("payloads", used[2], hours=1)
    store.put("payloads", used[2], hours=LONG_AGO, trash=True)
    store.put("payloads", used[3], hours=1, trash=True)
    for hours in (1.0, OLD, LONG_AGO):
        store.put("payloads", f"outside {hours}".encode(), hours=hours)
        store.put("payloads", f"trash {hours}".encode(), hours=hours, trash=True)
        for other in (1.0, OLD, LONG_AGO):
            store.put("attachments", f"both {hours} {other}".encode(), hours=hours)
            store.put("attachments", f"both {hours} {other}".encode(), hours=other, trash=True)
    return History(*used)


async def test_a_dry_run_says_exactly_what_the_next_collection_does_and_changes_nothing(store: Store) -> None:
    source = _everything(store)
    before = store.names()
    told = await store.collect(source, dry_run=True)
    assert store.names() == before
    done = await store.collect(source)
    gone = before - store.names()
    assert (told.trashed_names, told.deleted_names) == (done.trashed_names, done.deleted_names)
    assert told.folders == done.folders
    assert gone <= {*done.trashed_names, *map(in_trash, done.deleted_names)}
    assert len(done.deleted_names) > 3


async def test_a_dry_run_by_a_clock_that_is_off_is_refused_as_the_collection_is(store: Store) -> None:
    store.put("payloads", b"unused")
    for dry_run in (True, False):
        for ahead in (3.0, -3.0):
            with pytest.raises(InvalidInput, match=r"differ by 10,[78]\d\d s"):
                await store.collect(dry_run=dry_run, ahead=ahead)
    assert len(store.names()) == 1


async def test_a_server_that_is_lost_before_the_sweep_costs_no_object(store: Store) -> None:
    source = _everything(store)
    before = store.names()
    with pytest.raises(ServerUnavailable):
        await store.collect(source, History(error=ServerUnavailable("it is away")))
    assert store.names() == before
    assert (await store.collect(source)).resumed


async def test_files_of_others_stay_and_are_in_nobodys_way(store: Store) -> None:
    named = store.put("attachments", b"file")
    strange = [
        store.put(folder, b"a note about " + digest(b"file"), hours=LONG_AGO, trash=trash, stem=stem)
        for folder, trash in (("payloads", False), ("results", True), ("parts", False), ("snapshots", False))
        for stem in ("README", "ab/cd/ef")
    ]
    strange += [
        store.put(folder, b"a note about " + digest(b"file"), hours=LONG_AGO, stem=f"zz/{'A' * 64}")
        for folder in ("payloads", "parts")
    ]
    (store.folder / "parts" / "link").symlink_to(store.folder)
    (store.folder / "payloads" / "empty").mkdir()
    report = await store.collect()
    there = store.names()
    assert named in there
    assert all(each in there or in_trash(each) in there for each in strange)
    assert report.trashed_names == []
    assert report.deleted_names == []


PHASES = 7


class Killed(Objects):
    """A store whose collection is killed at its nth change: before it, or right behind it."""

    def __init__(self, url: str, change: int, *, behind: bool) -> None:
        super().__init__(url)
        self._left = 2 * change + behind

    async def to_trash(self, name: str) -> None:
        self._maybe()
        await super().to_trash(name)
        self._maybe()

    async def from_trash(self, name: str) -> None:
        self._maybe()
        await super().from_trash(name)
        self._maybe()

    async def empty_trash_of(self, name: str) -> None:
        self._maybe()
        await super().empty_trash_of(name)
        self._maybe()

    def _maybe(self) -> None:
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1


def _killed(work: Coroutine[Any, Any, object]) -> None:
    """Do this in a process of its own, which must be killed in the middle of it."""
    pid = os.fork()
    if not pid:
        with suppress(BaseException):
            asyncio.run(work)
        os._exit(0)
    work.close()
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status)


@pytest.mark.skipif(sys.platform != "linux", reason="forks a process that has threads")
@pytest.mark.parametrize("kill", [*((phase, None) for phase in range(PHASES)), *((None, n) for n in range(0, 12, 2))])
def test_a_collection_that_is_killed_anywhere_is_made_up_for_by_the_next(
    tmp_path: Path, kill: tuple[int | None, int | None]
) -> None:
    phase, change = kill
    for each in ("undisturbed", "killed"):
        (tmp_path / each).mkdir()
    undisturbed, store = Store(tmp_path / "undisturbed"), Store(tmp_path / "killed")
    source = _everything(undisturbed), _everything(store)
    for _ in range(2):  # the second one deletes the copies of what the first has taken out
        asyncio.run(undisturbed.collect(source[0]))
    phases = itertools.count()

    def at(_: str) -> None:
        if next(phases) == phase:
            os.kill(os.getpid(), signal.SIGKILL)

    objects = Killed(store.objects.url, change, behind=change % 4 == 0) if change is not None else None
    _killed(store.collect(source[1], objects=objects, phase=at))
    assert asyncio.run(store.collect(source[1])).resumed
    asyncio.run(store.collect(source[1]))
    assert store.names() == undisturbed.names()
