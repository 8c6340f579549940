"""`Objects`: bytes under a name, in a folder or a bucket, written whole or not at all. Deletes nothing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final, TypeAlias

import obstore
from obstore.exceptions import BaseError, PermissionDeniedError
from obstore.store import LocalStore, MemoryStore, from_url

from holdfast.core.errors import ObjectMissing, StorageFailed
from holdfast.storage.places import MEMORY, folder_of

if TYPE_CHECKING:
    from obstore.store import ObjectStore

    Store: TypeAlias = ObjectStore

RETRY_TIMEOUT: Final = timedelta(seconds=10)
"""How long a bucket that answers with errors is asked again; beyond that whoever asked decides."""

OPERATION_SECONDS: Final = 60.0
"""The longest that one object may take to be written or read."""

RENEWED_AFTER: Final = timedelta(days=1)
"""An object that is there already is written again when it is older: a bucket's expiry then counts from its last use.

Otherwise content that a run of today shares with one of last month would go with the latter.
"""

LISTED_AT_ONCE: Final = 1_000
"""How many names of a listing are taken at the same time: as many as a bucket gives in one answer."""

SAID_CHARS_MAX: Final = 300


class Objects:
    """The objects of one place. Safe to use from any thread and event loop."""

    def __init__(self, url: str) -> None:
        """Name the place, a URL that `places.checked_place` has let pass; nothing is opened or made yet."""
        self.url = url
        self._folder = folder_of(url)
        self._store: Store | None = None
        self._opening = Lock()

    async def write(self, name: str, data: bytes) -> None:
        """Keep `data` under `name`, once it returns on disk; what is there already and of that size stays.

        A name must therefore say its content: whoever writes it again writes the same. Raises StorageFailed.
        """
        async with self._told("write", name):
            store = self._opened(make=True)
            if await _is_there(store, name, len(data)):
                return
            await self._put(store, name, data)

    async def replace(self, name: str, data: bytes) -> None:
        """Keep `data` under `name` in the place of what is there: the last one who writes wins.

        Raises StorageFailed.
        """
        async with self._told("write", name):
            await self._put(self._opened(make=True), name, data)

    async def _put(self, store: Store, name: str, data: bytes) -> None:
        await obstore.put_async(store, name, data, use_multipart=False)
        if self._folder is not None:
            await asyncio.to_thread(_sync, self._folder / name)

    async def has(self, name: str) -> bool:
        """Return whether anything is kept under `name`. Raises StorageFailed."""
        try:
            async with self._told("read", name):
                await obstore.head_async(self._opened(), name)
        except ObjectMissing:
            return False
        return True

    async def names(self, prefix: str, limit: int) -> list[str]:
        """Return the first `limit` names below the folder `prefix`, in the order of their characters.

        Nothing where there is no such folder. Raises StorageFailed.
        """
        found: list[str] = []
        try:
            async with self._told("list", prefix):
                at_once = LISTED_AT_ONCE if self._folder is not None else max(1, min(limit, LISTED_AT_ONCE))
                listing = obstore.list(self._opened(), prefix, chunk_size=at_once)  # pyright: ignore[reportUnknownMemberType]  # an overload names a package that we do not have
                async for chunk in listing:
                    found += (each["path"] for each in chunk)
                    if self._folder is None and len(found) >= limit:  # buckets list in order, a folder does not
                        break
        except ObjectMissing:
            return []
        return sorted(found)[:limit]

    async def read(self, name: str) -> bytes:
        """Return what is kept under `name`. Raises ObjectMissing, StorageFailed."""
        async with self._told("read", name):
            store = self._opened()
            found = await obstore.get_async(store, name)
            return bytes(await found.bytes_async())

    async def read_range(self, name: str, start: int, end: int) -> tuple[bytes, int]:
        """Return the bytes from `start` to `end` of what is kept under `name` (none beyond its end), and its size.

        Raises ObjectMissing, StorageFailed.
        """
        async with self._told("read", name):
            store = self._opened()
            size = (await obstore.head_async(store, name))["size"]
            end = min(end, size)
            return (
                bytes(await obstore.get_range_async(store, name, start=start, end=end)) if start < end else b""
            ), size

    @asynccontextmanager
    async def _told(self, what: str, name: str) -> AsyncGenerator[None]:
        """Turn whatever goes wrong into one error of ours that says where."""
        try:
            async with asyncio.timeout(OPERATION_SECONDS):
                yield
        except FileNotFoundError:
            if what == "write":
                raise StorageFailed(f"cannot write {name}: there is no {self.url}; {_remedy(self._folder)}") from None
            raise ObjectMissing(f"{self.url} has no object {name}; {_remedy(self._folder)}") from None
        except TimeoutError:
            raise StorageFailed(f"cannot {what} {name} in {self.url}: no end within {OPERATION_SECONDS:g} s") from None
        except (BaseError, OSError, ValueError) as error:
            said = " ".join(str(error).partition("\n\nDebug source")[0].split())[:SAID_CHARS_MAX]
            raise StorageFailed(f"cannot {what} {name} in {self.url}: {said}; {_remedy(self._folder)}") from None

    def _opened(self, *, make: bool = False) -> Store:
        """Return the store; a folder comes into being when it is first written to."""
        with self._opening:
            if self._store is None:
                self._store = self._open(make=make)
            return self._store

    def _open(self, *, make: bool) -> Store:
        if self._folder is not None:
            if make:
                _make_private(self._folder)
            elif not self._folder.is_dir():
                raise FileNotFoundError(self._folder)
            return LocalStore(self._folder)
        if self.url.startswith(f"{MEMORY}:"):
            return MemoryStore()
        return from_url(self.url, retry_config={"retry_timeout": RETRY_TIMEOUT})


@cache
def objects_at(url: str) -> Objects:
    """Return the objects of a place, the same value for the whole process (`memory://` lives as long as it)."""
    return Objects(url)


async def _is_there(store: Store, name: str, size: int) -> bool:
    """Return whether the object is there, whole and young."""
    try:
        found = await obstore.head_async(store, name)
    except (FileNotFoundError, PermissionDeniedError):  # S3 says the latter of what is missing to who may not list
        return False
    return found["size"] == size and datetime.now(UTC) - found["last_modified"] < RENEWED_AFTER


def _make_private(folder: Path) -> None:
    """Make `folder` readable by its owner only, its parents as usual; one that is there stays as it is."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


def _sync(path: Path) -> None:
    """Return when `path` would survive a power cut."""
    for each in (path, path.parent, path.parent.parent):
        opened = os.open(each, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def _remedy(folder: Path | None) -> str:
    if folder is None:
        return "is HOLDFAST_STORAGE right, and may we use the bucket?"
    return "do all workers and clients share this folder (HOLDFAST_STORAGE), with room on its disk?"
