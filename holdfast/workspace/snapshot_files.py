"""The files of a snapshot for people: listed, read, as a tar archive; and new snapshots of what a person has."""

from __future__ import annotations

import asyncio
import io
import json
import os
import posixpath
import stat
import tarfile
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from holdfast.core.base.errors import InvalidInput
from holdfast.core.wire.record_store import AttachmentStore
from holdfast.workspace.inside.snapshots import FILE_BYTES_MAX, FILES_MAX, TOTAL_BYTES_MAX
from holdfast.workspace.snapshot_store import SnapshotFile, SnapshotStore

FILE_MODE: Final = 0o644
FOLDER_MODE: Final = 0o755


class SnapshotFiles:
    """The snapshots of one store, by their digests."""

    def __init__(self, store: AttachmentStore) -> None:
        self._snapshots = SnapshotStore(store)

    async def listed(self, digest: str, path: str = ".") -> list[SnapshotFile]:
        """Return the files at and below `path`. Raises InvalidInput without any, ObjectMissing, StorageFailed."""
        manifest, place = await self._snapshots.manifest(digest), _place(path)
        files = [each for name, each in manifest.files.items() if _below(name, place)]
        if not files and place and place not in manifest.folders:
            raise InvalidInput(f"the workspace has no file or folder {path!r}; `ls` lists what it has")
        return files

    async def closed(self, digest: str, path: str = ".") -> list[str]:
        """Return the folders at, below and above `path` whose files the snapshot lacks: they were closed to it."""
        manifest, place = await self._snapshots.manifest(digest), _place(path)
        return [each for each in manifest.closed if _below(each, place) or _below(place, each)]

    async def read(self, digest: str, path: str) -> bytes:
        """Return a file's content, or a folder as a tar archive. Raises InvalidInput for what is not there.

        Links in a folder are left out: where they lead is another machine's business.
        """
        manifest, place = await self._snapshots.manifest(digest), _place(path)
        if place in manifest.files:
            return await self._snapshots.content(manifest.files[place].digest)
        files = await self.listed(digest, path)
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for each in files:
                entry = tarfile.TarInfo(posixpath.relpath(each.path, place or "."))
                entry.size, entry.mode = each.size, each.mode
                archive.addfile(entry, io.BytesIO(await self._snapshots.content(each.digest)))
        return buffer.getvalue()

    async def with_files(self, digest: str, source: Path, path: str) -> str:
        """Store the snapshot that has also `source`, a file or a folder, at `path`; return its digest.

        Raises InvalidInput for what cannot be read, is too large, or would be in the way.
        """
        before, place = await self._snapshots.manifest(digest), _place(path)
        contents: list[bytes] = []
        files, folders = dict(before.files), dict(before.folders)
        for name, mode, content in await asyncio.to_thread(lambda: list(_read(source))):
            if not name and not place:
                place = source.name
            where = posixpath.join(place, name) if name else place
            folders |= {each: FOLDER_MODE for each in _parents(where) if each not in folders}
            files[where] = SnapshotFile(where, mode, len(content), sha256(content).hexdigest())
            contents.append(content)
        _check(files, folders, before.links)
        manifest: dict[str, list[Any]] = {
            "files": sorted([*each] for each in files.values()),
            "folders": sorted([*each] for each in folders.items()),
            "links": sorted([*each] for each in before.links.items()),
        }
        if before.closed:
            manifest["closed"] = list(before.closed)
        data = json.dumps(manifest, separators=(",", ":"), sort_keys=True).encode()
        made = sha256(data).hexdigest()
        await self._snapshots.write(made, [data, *contents], digest)
        return made


def _check(files: Mapping[str, SnapshotFile], folders: Mapping[str, int], links: Mapping[str, str]) -> None:
    """Refuse a snapshot in which one thing stands where another is, or that no workspace takes."""
    for each in (*files, *folders):
        if each in links or (each in files and each in folders):
            raise InvalidInput(f"{each!r} is a link or a folder of the workspace; choose another path")
    total = sum(each.size for each in files.values())
    if len(files) + len(folders) + len(links) > FILES_MAX or total > TOTAL_BYTES_MAX:
        size = f"{len(files):,} files with {total:,} bytes"
        raise InvalidInput(f"that would be {size}; a workspace's snapshot holds {FILES_MAX:,} and {TOTAL_BYTES_MAX:,}")


def _read(source: Path) -> Iterator[tuple[str, int, bytes]]:
    """Yield the regular files at and below `source`: where, mode, content. Links are not followed."""
    count, total = 0, 0
    try:
        paths = sorted(source.rglob("*")) if source.is_dir() else [source]
        for each in paths:
            facts = each.stat(follow_symlinks=False)
            if not stat.S_ISREG(facts.st_mode):
                continue
            if facts.st_size > FILE_BYTES_MAX:
                raise InvalidInput(f"{str(each)!r} has {facts.st_size:,} bytes; at most {FILE_BYTES_MAX:,} are taken")
            count, total = count + 1, total + facts.st_size
            if count > FILES_MAX or total > TOTAL_BYTES_MAX:  # before all of them are in memory
                size = f"{FILES_MAX:,} files and {TOTAL_BYTES_MAX:,} bytes"
                raise InvalidInput(f"{str(source)!r} has more than {size}; name a part of it")
            name = each.relative_to(source).as_posix() if each != source else ""
            yield name, FOLDER_MODE if os.access(each, os.X_OK) else FILE_MODE, each.read_bytes()
    except OSError as error:
        problem = f"{str(error.filename or source)!r} cannot be read ({error.strerror})"
        raise InvalidInput(f"{problem}; name a file or a folder") from None


def _place(path: str) -> str:
    """Return a path below the root, without `.`; empty for the root. Raises InvalidInput for one that leads out."""
    place = posixpath.normpath(path)
    if place.startswith(("/", "../")) or place == ".." or "\0" in place:
        raise InvalidInput(f"{path!r} leads out of the workspace; name a path below it")
    return "" if place == "." else place


def _below(name: str, place: str) -> bool:
    return not place or name == place or name.startswith(f"{place}/")


def _parents(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[: length + 1]) for length in range(len(parts))]
