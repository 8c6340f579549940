"""`Objects`: bytes under a name, in a folder or a bucket, written whole or not at all. Deletes nothing."""

from __future__ import annotations

import asyncio
import errno
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final, TypeAlias

import obstore
from obstore.exceptions import BaseError, PermissionDeniedError
from obstore.store import MemoryStore, from_url

from holdfast.core.base.errors import ObjectMissing, StorageFailed
from holdfast.runtime.process_exit import settle_at_exit
from holdfast.storage.object_folder import ObjectFolder
from holdfast.storage.storage_url import MEMORY, folder_of

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

ERROR_TEXT_CHARS_MAX: Final = 300

FULL: Final = (errno.ENOSPC, errno.EDQUOT)


class Objects:
    """The objects of one place. Safe to use from any thread and event loop."""

    def __init__(self, url: str) -> None:
        """Name the place, a URL that `storage_url.checked_place` has let pass; nothing is opened or made yet."""
        self.url = url
        folder = folder_of(url)
        self._folder = None if folder is None else ObjectFolder(folder)
        self._store: Store | None = None
        self._opening = Lock()

    async def write(self, name: str, data: bytes) -> None:
        """Keep `data` under `name`, once it returns on disk; what is there already and of that size stays.

        A name must therefore say its content: whoever writes it again writes the same. Raises StorageFailed.
        """
        async with self._typed_errors("write", name):
            if not await self._is_there(name, len(data)):
                await self._put(name, data)

    async def replace(self, name: str, data: bytes) -> None:
        """Keep `data` under `name` in the place of what is there: the last one who writes wins.

        Raises StorageFailed.
        """
        async with self._typed_errors("write", name):
            await self._put(name, data)

    async def _put(self, name: str, data: bytes) -> None:
        if self._folder is not None:
            await asyncio.to_thread(self._folder.write, name, data)
        else:
            await obstore.put_async(self._bucket(), name, data, use_multipart=False)

    async def has(self, name: str) -> bool:
        """Return whether anything is kept under `name`. Raises StorageFailed."""
        try:
            async with self._typed_errors("read", name):
                await self._facts(name)
        except ObjectMissing:
            return False
        return True

    async def names(self, prefix: str, limit: int) -> list[str]:
        """Return the first `limit` names below the folder `prefix`, in the order of their characters.

        Nothing where there is no such folder. Raises StorageFailed.
        """
        try:
            async with self._typed_errors("list", prefix):
                if self._folder is not None:
                    names = await asyncio.to_thread(self._folder.names, prefix)
                else:
                    names = await self._listed(prefix, limit)
        except ObjectMissing:
            return []
        return sorted(names)[:limit]

    async def _listed(self, prefix: str, limit: int) -> list[str]:
        names: list[str] = []
        at_once = max(1, min(limit, LISTED_AT_ONCE))
        listing = obstore.list(self._bucket(), prefix, chunk_size=at_once)  # pyright: ignore[reportUnknownMemberType]  # an overload names a package that we do not have
        async for chunk in listing:
            names += (each["path"] for each in chunk)
            if len(names) >= limit:  # buckets list in order
                break
        return names

    async def read(self, name: str) -> bytes:
        """Return what is kept under `name`. Raises ObjectMissing, StorageFailed."""
        async with self._typed_errors("read", name):
            if self._folder is not None:
                return (await asyncio.to_thread(self._folder.read, name))[0]
            result = await obstore.get_async(self._bucket(), name)
            return bytes(await result.bytes_async())

    async def _facts(self, name: str) -> tuple[int, datetime]:
        """Return the size of what is kept under `name`, and when it was written."""
        if self._folder is not None:
            facts = await asyncio.to_thread(self._folder.facts, name)
            return facts.st_size, datetime.fromtimestamp(facts.st_mtime, UTC)
        head = await obstore.head_async(self._bucket(), name)
        return head["size"], head["last_modified"]

    async def _is_there(self, name: str, size: int) -> bool:
        """Return whether the object is there, whole and young."""
        try:
            actual_size, written = await self._facts(name)
        except (FileNotFoundError, PermissionDeniedError):  # S3 says the latter of what is missing to who may not list
            return False
        return actual_size == size and datetime.now(UTC) - written < RENEWED_AFTER

    @asynccontextmanager
    async def _typed_errors(self, what: str, name: str) -> AsyncGenerator[None]:
        """Turn whatever goes wrong into one error of ours that says where."""
        try:
            async with asyncio.timeout(OPERATION_SECONDS):
                yield
        except FileNotFoundError:
            if what == "write":
                raise StorageFailed(f"cannot write {name}: there is no {self.url}; {self._remedy()}") from None
            raise ObjectMissing(f"{self.url} has no object {name}; {self._remedy()}") from None
        except TimeoutError:
            raise StorageFailed(f"cannot {what} {name} in {self.url}: no end within {OPERATION_SECONDS:g} s") from None
        except (BaseError, OSError, ValueError) as error:
            raise StorageFailed(f"cannot {what} {name} in {self.url}: {self._cause(error)}") from None

    def _cause(self, error: Exception) -> str:
        """Return what went wrong and what to do about it, in one line."""
        if isinstance(error, OSError) and error.errno in FULL and self._folder is not None:
            return (
                f"the disk is full{_free(self._folder.path)}; make room on it, or name another place (HOLDFAST_STORAGE)"
            )
        text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        text = " ".join(text.partition("\n\nDebug source")[0].split())[:ERROR_TEXT_CHARS_MAX]
        return f"{text}; {self._remedy()}"

    def _remedy(self) -> str:
        if self._folder is None:
            return "is HOLDFAST_STORAGE right, and may we use the bucket?"
        return "do all workers and clients share this folder (HOLDFAST_STORAGE), with room on its disk?"

    def _bucket(self) -> Store:
        """Return the store, opened once."""
        with self._opening:
            if self._store is None:
                settle_at_exit()
                if self.url.startswith(f"{MEMORY}:"):
                    self._store = MemoryStore()
                else:
                    self._store = from_url(self.url, retry_config={"retry_timeout": RETRY_TIMEOUT})
            return self._store


@cache
def objects_at(url: str) -> Objects:
    """Return the objects of a place, the same value for the whole process (`memory://` lives as long as it)."""
    return Objects(url)


def _free(folder: Path) -> str:
    try:
        return f" ({shutil.disk_usage(folder).free:,} bytes are free)"
    except OSError:
        return ""
