"""Marks what the store itself refers to: snapshots, their parts, sessions, records, sinks, and files of workspaces.

None of those are ever collected, so each of them keeps what it names: an agent continues from any record. Only of
`holdfast.storage.object_store.COLLECTED` something can go, and of that an attachment can name others: the manifest of a
workspace's snapshot names its files.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from holdfast.core.base.errors import ObjectDamaged, ObjectMissing, PayloadRefused
from holdfast.server.garbage.concurrency import all_of
from holdfast.server.garbage.mark_file import DIGEST_BYTES, ROWS_AT_ONCE, Listed, MarkFile
from holdfast.server.garbage.references import ReferenceReader, digests_in
from holdfast.storage.fetch_result_tool import results_folder
from holdfast.storage.lru_cache import digest_of
from holdfast.storage.object_store import COLLECTED, TRASH, Entry, Objects, in_trash

CONTENT: Final = ("parts", "snapshots", "mcp")
"""The folders of objects that never change, by their digest."""

REPLACED: Final = ("records", "sessions", "sinks")
"""The folders of objects that are written again, and read again by each collection."""

DIGEST: Final = re.compile("[0-9a-f]{64}")
"""The last part of the name of an object of CONTENT."""

RECORDS: Final = "records"
RESULTS: Final = "results"

OBJECTS_AT_ONCE: Final = 8
"""How many objects are read at once; each has up to 64 MB."""


class StoreSource:
    """The store's own references, and its inventory."""

    def __init__(self, objects: Objects, reader: ReferenceReader, progress: Callable[[int], None]) -> None:
        """`progress` is called with how many more objects were read."""
        self._objects = objects
        self._reader = reader
        self._progress = progress

    async def take_inventory(self, marks: MarkFile) -> None:
        """List what can be collected, and what is in the trash. Raises StorageFailed."""
        for folder in COLLECTED:
            for prefix, trash in ((folder, False), (in_trash(folder), True)):
                async for page in self._objects.entries(prefix):
                    marks.add(each for each in map(_listed, page) if each is not None and each.trash == trash)
                    marks.commit()

    async def mark(self, marks: MarkFile, *, files: bool) -> None:
        """Mark what is named by what stays in the store: runs' results by their records; with `files`, attachments.

        Raises StorageFailed, also for a damaged part or snapshot: nobody knows what it names. Raises PayloadRefused
        where an encryption key is missing.
        """
        async for page in self._objects.entries(RECORDS):
            marks.mark(results_folder(each.name.rpartition("/")[2]).encode() for each in page)
        marks.commit()
        for folder in (*CONTENT, *REPLACED) if files else ():
            async for page in self._objects.entries(folder):
                await all_of((self._object(each, marks) for each in page), OBJECTS_AT_ONCE)
                marks.commit()

    async def follow(self, marks: MarkFile) -> None:
        """Mark what marked objects name, until there is nothing new. Raises StorageFailed, PayloadRefused."""
        while found := marks.next_followed(ROWS_AT_ONCE):
            await all_of((self._followed(each, marks) for each in found), OBJECTS_AT_ONCE)
            marks.followed(found)  # not before: one that was interrupted is resumed
            marks.commit()

    async def _object(self, entry: Entry, marks: MarkFile) -> None:
        folder, digest = entry.name.partition("/")[0], entry.name.rpartition("/")[2]
        is_content = folder in CONTENT and DIGEST.fullmatch(digest) is not None  # else somebody else's file
        if is_content and marks.has_read(entry.name):
            return
        try:
            data = await self._content(entry.name)
        except ObjectMissing:  # somebody has deleted it since it was listed
            return
        if is_content and digest_of(data) != digest:
            problem = f"the object {entry.name} in {self._objects.url} is damaged: its content has another digest"
            raise ObjectDamaged(
                f"{problem}, so what it names is unknown; restore it from a backup (nothing was deleted)"
            )
        marks.mark(digests_in(data))
        if is_content:
            marks.read(entry.name)
        self._progress(1)

    async def _followed(self, each: Listed, marks: MarkFile) -> None:
        # a read by its own name would take an object out of the trash
        try:
            marks.mark(digests_in(await self._content(in_trash(each.name) if each.trash else each.name)))
        except ObjectMissing:
            return
        self._progress(1)

    async def _content(self, name: str) -> bytes:
        data = await self._objects.read(name)
        try:
            return await self._reader.content(data)
        except PayloadRefused as error:
            raise PayloadRefused(f"the object {name} in {self._objects.url}: {error}; nothing was deleted") from None


def _listed(entry: Entry) -> Listed | None:
    """Return an object with its key; none for a name that is not ours, which stays."""
    trash = entry.name.startswith(f"{TRASH}/")
    name = entry.name.removeprefix(f"{TRASH}/")
    folder, *rest = name.split("/")
    if folder == RESULTS and len(rest) == 2:  # noqa: PLR2004  # results/EXECUTION/FILE
        key = f"{folder}/{rest[0]}".encode()
    else:
        try:
            key = bytes.fromhex(rest[-1])
        except (ValueError, IndexError):
            return None
        if len(key) != DIGEST_BYTES or rest != [rest[-1][:2], rest[-1]] or rest[-1] != key.hex():
            return None
    return Listed(name, trash, key, entry.size, entry.written.timestamp())
