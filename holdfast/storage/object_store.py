"""`Objects`: bytes under a name, in a folder or a bucket, written atomically.

Nothing is deleted at once. `holdfast storage gc` (`holdfast.server.garbage`) moves what nothing refers to into
`trash/`, where `read` still finds it, and deletes it there days later.
"""

from __future__ import annotations

import asyncio
import errno
import shutil
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice
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
"""How long a bucket's errors are retried; after that the caller decides."""

OPERATION_SECONDS: Final = 60.0
"""How long writing or reading one object may take."""

RENEWED_AFTER: Final = timedelta(days=1)
"""An existing object older than this is written again, so that a bucket's expiry counts from its last use.

Otherwise content that today's run shares with last month's would expire with the latter.
"""

LISTED_AT_ONCE: Final = 1_000
"""How many names are listed per request: as many as a bucket returns at once."""

ERROR_TEXT_CHARS_MAX: Final = 300

TRASH: Final = "trash"
"""The folder of objects that nothing referred to when they were moved; each has its name below it."""

COLLECTED: Final = ("payloads", "results", "attachments")
"""The folders whose objects a garbage collection may move to the trash. Whatever else is written stays for ever.

Whoever writes into them calls `Objects.write` each time, also for content that it has written before: so what is
referred to from now on is never older than RENEWED_AFTER.
"""

FULL: Final = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class Entry:
    """An object in a listing: its name, its size in bytes, and when it was last written, by the store's clock."""

    name: str
    size: int
    written: datetime


class Objects:
    """The objects at one URL. Safe to use from any thread and event loop."""

    def __init__(self, url: str, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        """Take a URL that `storage_url.checked_place` accepted; nothing is opened or created yet."""
        self.url = url
        self._clock = clock
        folder = folder_of(url)
        self._folder = None if folder is None else ObjectFolder(folder)
        self._store: Store | None = None
        self._opening = Lock()

    async def write(self, name: str, data: bytes) -> None:
        """Write `data` to `name`; it is on disk on return. An existing object of that size stays.

        A name must therefore identify its content: writing it again writes the same. Raises StorageFailed.
        """
        async with self._typed_errors("write", name):
            if not await self._is_there(name, len(data)):
                await self._put(name, data)

    async def replace(self, name: str, data: bytes) -> None:
        """Write `data` to `name`, replacing what is there: the last writer wins.

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
        """Return whether the object `name` exists. Raises StorageFailed."""
        try:
            async with self._typed_errors("read", name):
                await self._facts(name)
        except ObjectMissing:
            return False
        return True

    async def names(self, prefix: str, limit: int) -> list[str]:
        """Return the first `limit` names below the folder `prefix`, sorted by their characters.

        Returns nothing if there is no such folder. Raises StorageFailed.
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
        """Return the object `name`; one that is in the trash is written again. Raises ObjectMissing, StorageFailed."""
        try:
            return await self._read(name)
        except ObjectMissing as missing:
            if not name.startswith(tuple(f"{folder}/" for folder in COLLECTED)):
                raise
            try:
                data = await self._read(in_trash(name))
            except ObjectMissing:
                raise missing from None
        with suppress(StorageFailed):  # whoever may only read has it all the same
            await self.replace(name, data)
        return data

    async def entries(self, folder: str) -> AsyncGenerator[list[Entry]]:
        """Yield the objects below `folder`, in any order, at most LISTED_AT_ONCE at a time. Raises StorageFailed.

        What is written or moved meanwhile may be there or not.
        """
        pages = self._folder_pages(folder) if self._folder is not None else self._bucket_pages(folder)
        try:
            while True:
                async with self._typed_errors("list", folder):
                    page = await anext(pages, None)
                if page is None:
                    return
                yield page
        except ObjectMissing:  # there is no such folder
            return
        finally:
            await pages.aclose()

    async def entry(self, name: str) -> Entry | None:
        """Return what a listing would say of the object `name`; None where it is missing. Raises StorageFailed."""
        try:
            async with self._typed_errors("read", name):
                return Entry(name, *(await self._facts(name)))
        except ObjectMissing:
            return None

    async def to_trash(self, name: str) -> None:
        """Move the object `name` to the trash, where it counts as written now; nothing where it is missing.

        Whoever writes it at that moment may find it moved: `read` still finds it. Raises StorageFailed.
        """
        with suppress(ObjectMissing):
            async with self._typed_errors("move", name):
                await self._move(name, in_trash(name))

    async def from_trash(self, name: str) -> None:
        """Write the object `name` again from its copy in the trash, which stays there. Raises StorageFailed."""
        with suppress(ObjectMissing):
            await self.replace(name, await self._read(in_trash(name)))

    async def empty_trash_of(self, name: str) -> None:
        """Delete the copy of the object `name` in the trash for good. Raises StorageFailed."""
        with suppress(ObjectMissing):
            async with self._typed_errors("delete", name):
                await self._delete(in_trash(name))

    async def _read(self, name: str) -> bytes:
        async with self._typed_errors("read", name):
            if self._folder is not None:
                return (await asyncio.to_thread(self._folder.read, name))[0]
            result = await obstore.get_async(self._bucket(), name)
            return bytes(await result.bytes_async())

    async def _move(self, name: str, to: str) -> None:
        if self._folder is not None:
            await asyncio.to_thread(self._folder.move, name, to)
        else:
            await obstore.copy_async(self._bucket(), name, to)
            await obstore.delete_async(self._bucket(), name)

    async def _delete(self, name: str) -> None:
        if self._folder is not None:
            await asyncio.to_thread(self._folder.delete, name)
        else:
            await obstore.delete_async(self._bucket(), name)

    async def _folder_pages(self, prefix: str) -> AsyncGenerator[list[Entry]]:
        folder = self._folder
        assert folder is not None  # noqa: S101  # for type checkers
        facts = await asyncio.to_thread(folder.entries, prefix)
        while page := await asyncio.to_thread(lambda: list(islice(facts, LISTED_AT_ONCE))):
            yield [Entry(name, size, datetime.fromtimestamp(written, UTC)) for name, size, written in page]

    async def _bucket_pages(self, prefix: str) -> AsyncGenerator[list[Entry]]:
        listing = obstore.list(self._bucket(), prefix, chunk_size=LISTED_AT_ONCE)  # pyright: ignore[reportUnknownMemberType]  # as above
        async for chunk in listing:
            yield [Entry(each["path"], each["size"], each["last_modified"]) for each in chunk]

    async def _facts(self, name: str) -> tuple[int, datetime]:
        """Return the size of the object `name`, and when it was written."""
        if self._folder is not None:
            facts = await asyncio.to_thread(self._folder.facts, name)
            return facts.st_size, datetime.fromtimestamp(facts.st_mtime, UTC)
        head = await obstore.head_async(self._bucket(), name)
        return head["size"], head["last_modified"]

    async def _is_there(self, name: str, size: int) -> bool:
        """Return whether the object exists, has that size and is younger than RENEWED_AFTER."""
        try:
            actual_size, written = await self._facts(name)
        except (
            FileNotFoundError,
            PermissionDeniedError,
        ):  # S3 reports a missing object as the latter if the caller may not list
            return False
        return actual_size == size and self._clock() - written < RENEWED_AFTER

    @asynccontextmanager
    async def _typed_errors(self, what: str, name: str) -> AsyncGenerator[None]:
        """Turn every error into StorageFailed or ObjectMissing, which name the object and the place."""
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
        """Return the cause and the remedy in one line."""
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


def in_trash(name: str) -> str:
    """Return the name of an object in the trash."""
    return f"{TRASH}/{name}"


@cache
def objects_at(url: str) -> Objects:
    """Return the objects at `url`, one value for the whole process (`memory://` lives as long as the process)."""
    return Objects(url)


def _free(folder: Path) -> str:
    try:
        return f" ({shutil.disk_usage(folder).free:,} bytes are free)"
    except OSError:
        return ""
