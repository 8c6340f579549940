"""`ObjectFolder`: objects as files in one folder: private, written atomically, and never through a symbolic link.

Folders are 0700 and files 0600, whatever the umask and the parent folder allow. The parts of a name are opened one
below the other without following links, so a planted link leads nowhere. All of it blocks.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600
UNFINISHED: Final = "."
"""The prefix of a file that is still being written; no object's name has it."""

SHARD_CHARS: Final = 2
"""The length of the folders that content is spread over by its digest."""

_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class ObjectFolder:
    """The objects below `path`, which is created with the first object; `path` itself may be a link."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, name: str, data: bytes) -> None:
        """Write `data` to `name`, replacing what is there; it is on disk on return. Raises OSError."""
        *folders, last = _parts(name)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            self.path.mkdir(mode=FOLDER_MODE)
        with self._opened(folders, make=True) as folder:
            unfinished = f"{UNFINISHED}{secrets.token_hex(8)}"
            file = os.open(unfinished, _WRITE_FLAGS, FILE_MODE, dir_fd=folder)
            try:
                try:
                    _write_all(file, data)
                    os.fsync(file)
                finally:
                    os.close(file)
                os.replace(unfinished, last, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with suppress(OSError):
                    os.unlink(unfinished, dir_fd=folder)
                raise
            os.fsync(folder)

    def read(self, name: str, start: int = 0, end: int | None = None) -> tuple[bytes, int]:
        """Return the bytes of `name` from `start` to `end`, and its whole size. Raises OSError."""
        with self._file(name) as file:
            size = os.fstat(file).st_size
            left = max(0, min(size if end is None else end, size) - start)
            pieces: list[bytes] = []
            while left > 0 and (piece := os.pread(file, left, start)):
                pieces.append(piece)
                start, left = start + len(piece), left - len(piece)
            return b"".join(pieces), size

    def facts(self, name: str) -> os.stat_result:
        """Return the size and age of `name`. Raises OSError."""
        with self._file(name) as file:
            return os.fstat(file)

    def names(self, prefix: str) -> list[str]:
        """Return the names below the folder `prefix`, unordered. Raises OSError."""
        with self._opened(_parts(prefix), make=False) as folder:
            return list(_below(folder, prefix))

    def entries(self, prefix: str) -> Iterator[tuple[str, int, float]]:
        """Return the name, size and time of writing (Unix seconds) of each file below the folder `prefix`, unordered.

        Raises OSError, at once where there is no such folder.
        """
        with self._opened(_parts(prefix), make=False) as folder:
            opened = os.dup(folder)
        return self._entries(opened, prefix)

    def move(self, name: str, to: str) -> None:
        """Rename the file `name` to `to`, replacing what is there, as if it were written now. Raises OSError."""
        *folders, last = _parts(name)
        *target, new = _parts(to)
        with self._opened(folders, make=False) as source, self._opened(target, make=True) as folder:
            os.utime(last, dir_fd=source, follow_symlinks=False)  # first: the time counts from now, whatever happens
            os.replace(last, new, src_dir_fd=source, dst_dir_fd=folder)
            os.fsync(folder)
            os.fsync(source)
        self._prune(folders)

    def delete(self, name: str) -> None:
        """Delete the file `name`. Raises OSError."""
        *folders, last = _parts(name)
        with self._opened(folders, make=False) as folder:
            os.unlink(last, dir_fd=folder)
        self._prune(folders)

    def _prune(self, folders: list[str]) -> None:
        """Remove a folder that has become empty, where its name is not one of 256: a run's results have their own."""
        if len(folders[-1]) > SHARD_CHARS:
            with suppress(OSError), self._opened(folders[:-1], make=False) as parent:
                os.rmdir(folders[-1], dir_fd=parent)

    def _entries(self, folder: int, prefix: str) -> Iterator[tuple[str, int, float]]:
        try:
            for name in _below(folder, ""):
                with suppress(FileNotFoundError):  # it was moved since
                    facts = os.stat(name[1:], dir_fd=folder, follow_symlinks=False)
                    yield f"{prefix}{name}", facts.st_size, facts.st_mtime
        finally:
            os.close(folder)

    @contextmanager
    def _file(self, name: str) -> Generator[int]:
        *folders, last = _parts(name)
        with self._opened(folders, make=False) as folder:
            file = _open(last, _READ_FLAGS, folder)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise OSError(errno.EINVAL, "it is no regular file", name)
            yield file
        finally:
            os.close(file)

    @contextmanager
    def _opened(self, folders: list[str], *, make: bool) -> Generator[int]:
        """Open a folder below `path`, part by part; with `make`, create the missing ones."""
        opened = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for each in folders:
                if make:
                    _make(each, opened)
                below = _open(each, _FOLDER_FLAGS, opened)
                os.close(opened)
                opened = below
            yield opened
        finally:
            os.close(opened)


def _make(name: str, parent: int) -> None:
    with suppress(FileExistsError):
        os.mkdir(name, FOLDER_MODE, dir_fd=parent)
        os.fsync(parent)


def _open(name: str, flags: int, parent: int) -> int:
    try:
        return os.open(name, flags, dir_fd=parent)
    except OSError as error:
        if stat.S_ISLNK(_mode(name, parent)):  # the system reports "too many links" or "not a directory"
            raise OSError(errno.ELOOP, "it is a link, and links are not followed", name) from error
        raise


def _mode(name: str, parent: int) -> int:
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
    except OSError:
        return 0


def _write_all(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]


def _below(folder: int, prefix: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(UNFINISHED):
                continue
            if entry.is_file(follow_symlinks=False):
                yield f"{prefix}/{entry.name}"
            elif entry.is_dir(follow_symlinks=False):
                try:
                    below = _open(entry.name, _FOLDER_FLAGS, folder)
                except FileNotFoundError:  # it was empty, and is removed
                    continue
                try:
                    yield from _below(below, f"{prefix}/{entry.name}")
                finally:
                    os.close(below)


def _parts(name: str) -> list[str]:
    """Return the parts of an object's name. Raises OSError for one that leads out of the folder."""
    parts = name.split("/")
    if any(not part or part.startswith(UNFINISHED) or "\0" in part for part in parts):
        raise OSError(errno.EINVAL, "it is no object's name", name)
    return parts
