"""Snapshots of workspaces in the record store: a manifest and the contents that it names, each by its digest."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple, Self

from holdfast.core.base.errors import StorageFailed
from holdfast.core.base.stored_forms import MANIFEST
from holdfast.core.wire.record_store import AttachmentStore
from holdfast.workspace.inside.snapshots import EMPTY, TOTAL_BYTES_MAX

AT_ONCE_MAX: Final = 16
"""How many contents of one snapshot are read or written at once."""

EMPTY_MANIFEST: Final = b'{"files":[],"folders":[],"links":[]}'


class SnapshotFile(NamedTuple):
    """A file of a snapshot: `mode` are its permissions, `digest` is the SHA-256 of its content."""

    path: str
    mode: int
    size: int
    digest: str


@dataclass(frozen=True)
class Manifest:
    """What a snapshot holds: files, folders with their modes, links with their targets. Paths are below the root."""

    data: bytes

    @cached_property
    def _value(self) -> Mapping[str, Sequence[Any]]:
        value: Mapping[str, Sequence[Any]] = json.loads(self.data)
        return value

    @cached_property
    def files(self) -> Mapping[str, SnapshotFile]:
        """The files by path, sorted."""
        return {str(each[0]): SnapshotFile(*each) for each in self._value["files"]}

    @cached_property
    def folders(self) -> Mapping[str, int]:
        """The modes of the folders by path, sorted."""
        return {str(path): int(mode) for path, mode in self._value["folders"]}

    @cached_property
    def links(self) -> Mapping[str, str]:
        """The targets of the links by path, sorted."""
        return {str(path): str(target) for path, target in self._value["links"]}

    @cached_property
    def closed(self) -> tuple[str, ...]:
        """The folders that the workspace's program could not look into: the snapshot lacks what they hold."""
        return tuple(str(path) for path in self._value.get("closed", ()))

    @property
    def contents(self) -> set[str]:
        """The digests of the files' contents."""
        return {each.digest for each in self.files.values()}

    def checked(self) -> Self:
        """Return this. Raises StorageFailed for a path that leads out: what runs in a workspace may have forged it."""
        for path in (*self.files, *self.folders, *self.links, *self.closed):
            if "\0" in path or any(part in ("", ".", "..") for part in path.split("/")):
                raise StorageFailed(f"the snapshot names the path {path[:200]!r}, which is none of a workspace's")
        return self


class SnapshotStore:
    """Writes and reads snapshots. Safe to use from any event loop."""

    def __init__(self, store: AttachmentStore) -> None:
        self._store = store

    async def write(self, digest: str, contents: Sequence[bytes], before: str) -> None:
        """Store a snapshot: its manifest, then what the snapshot `before` does not have; the manifest comes last.

        Raises StorageFailed, also where a content is missing: a snapshot that is named can be restored.
        """
        manifest = Manifest(contents[0]).checked()
        written = set(await self._gathered(self._store.write_attachment(each) for each in contents[1:]))
        missing = manifest.contents - written
        if missing:
            missing -= (await self.manifest(before)).contents
        if missing:
            raise StorageFailed(f"{len(missing)} files of the snapshot changed while it was made")
        if await self._store.write_attachment(manifest.data) != digest:
            raise StorageFailed("the snapshot's manifest has another digest than its name")

    async def manifest(self, digest: str) -> Manifest:
        """Return what a snapshot holds. Raises ObjectMissing, StorageFailed (FormNewer for one of a newer Holdfast)."""
        data = EMPTY_MANIFEST if digest == EMPTY else await self._store.read_attachment(digest)
        MANIFEST.check(data, f"the manifest {digest}")
        return Manifest(data).checked()

    async def content(self, digest: str) -> bytes:
        """Return the content of a file. Raises ObjectMissing, StorageFailed."""
        return await self._store.read_attachment(digest)

    async def packed(self, digest: str) -> list[bytes]:
        """Return a snapshot in the pieces that the program takes: the manifest and each content, behind their lengths.

        Raises ObjectMissing, StorageFailed, also where it is larger than a snapshot may be.
        """
        manifest, left = await self.manifest(digest), TOTAL_BYTES_MAX

        async def read(content: str) -> bytes:
            nonlocal left
            data = await self._store.read_attachment(content) if left >= 0 else b""
            left -= len(data)
            if left < 0:
                raise StorageFailed(f"the snapshot {digest} has more than {TOTAL_BYTES_MAX:,} bytes")
            return data

        contents = await self._gathered(map(read, sorted(manifest.contents)))
        return [piece for each in (manifest.data, *contents) for piece in (struct.pack(">I", len(each)), each)]

    async def _gathered(self, calls: Iterable[Any]) -> list[Any]:
        at_once = asyncio.Semaphore(AT_ONCE_MAX)

        async def bounded(call: Any) -> Any:  # noqa: ANN401  # bytes or text
            async with at_once:
                return await call

        return list(await asyncio.gather(*map(bounded, calls)))
