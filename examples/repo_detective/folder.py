"""One folder that is read and never left: every path is opened name by name and no link is followed. Knows no tools.

Checking a path and opening it afterwards is not enough: whoever can write into the folder swaps a file for a link in
between. So each name is opened relative to the folder opened before it (openat), with O_NOFOLLOW, and what was opened
is looked at once more before it is read.
"""

from __future__ import annotations

import os
import stat
import time
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from examples.repo_detective.globbing import Glob, Places
from holdfast.errors import InvalidInput

PATH_CHARS_MAX: Final = 1_000
DEPTH_MAX: Final = 32
"""How deep folders may be nested; deeper ones are left out."""

ENTRIES_MAX: Final = 20_000
"""How many names one walk looks at before it ends."""

WALK_SECONDS_MAX: Final = 5.0

READ_BYTES_MAX: Final = 2 * 1024 * 1024
"""How much of a file is read; the rest of a larger one is out of reach."""

BINARY_BYTES: Final = 8 * 1024
"""A NUL byte among so many first bytes makes a file binary (git's rule)."""

SKIPPED: Final = frozenset(
    ".git .hg .svn .venv venv node_modules __pycache__ .mypy_cache .pytest_cache .ruff_cache .hypothesis .tox .nox "  # noqa: SIM905  # as a list it would fill 15 lines
    ".cache .gradle .terraform .holdfast".split()
)
"""Folders that are never entered: other people's code, caches, and `.git`, whose configuration can hold passwords."""

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# O_NONBLOCK: a FIFO opens at once instead of waiting for a writer. O_NOCTTY: a terminal does not become ours.
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class FileText:
    """What was read of a file as lines without their ends; `size` is the whole file's, in bytes."""

    lines: tuple[str, ...]
    size: int

    @property
    def is_cut(self) -> bool:
        """Whether the file goes on behind the last line."""
        return self.size > READ_BYTES_MAX


@dataclass(frozen=True, slots=True)
class Found:
    """A regular file met on a walk; `names` lead to it from the folder."""

    names: tuple[str, ...]
    size: int

    @property
    def path(self) -> str:
        """The path as it can be asked for, and shown."""
        return shown("/".join(self.names))


class Entry(NamedTuple):
    """A name in a folder, as it was while the folder was open; `mode` 0 when it had gone already."""

    name: str
    mode: int
    size: int


class Folder:
    """The folder, opened; use it within `Folder.opened`."""

    def __init__(self, descriptor: int, path: Path) -> None:
        self.path = path
        self._descriptor = descriptor

    @classmethod
    @contextmanager
    def opened(cls, path: Path) -> Generator[Folder]:
        """Open the folder; it may itself be reached by a link, because its owner chose it. Raises InvalidInput."""
        try:
            descriptor = os.open(path, _FOLDER)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise InvalidInput(f"the folder {str(path)!r} cannot be opened: {reason}") from None
        try:
            yield cls(descriptor, path)
        finally:
            os.close(descriptor)

    def read(self, path: str) -> FileText:
        """Return the text at `path`; InvalidInput, in words for a model, when there is none to be had."""
        return self.read_names(names_of(path))

    def read_names(self, names: tuple[str, ...]) -> FileText:
        """Return the text of the file that `names` lead to."""
        path = "/".join(names)
        with _telling(path), self._entered(names[:-1]) as parent:
            mode = os.stat(names[-1], dir_fd=parent, follow_symlinks=False).st_mode
            _check_is_file(mode, path)
            opened = os.open(names[-1], _FILE, dir_fd=parent)
            try:
                found = os.fstat(opened)
                _check_is_file(found.st_mode, path)  # it may have been swapped in between
                raw = _read(opened)
            finally:
                os.close(opened)
        if b"\0" in raw[:BINARY_BYTES]:
            raise InvalidInput(f"{shown(path)} is a binary file ({found.st_size:,} bytes)")
        text = raw.decode("utf-8", "replace")
        lines = tuple(line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")) if text else ()
        return FileText(lines, max(found.st_size, len(raw)))

    def walk(self, glob: Glob) -> Walk:
        """Return the files that match."""
        return Walk(self, glob)

    @contextmanager
    def _entered(self, names: tuple[str, ...]) -> Generator[int]:
        """Open the folder that `names` lead to."""
        current = os.dup(self._descriptor)
        try:
            for index, name in enumerate(names):
                mode = os.stat(name, dir_fd=current, follow_symlinks=False).st_mode
                if not stat.S_ISDIR(mode):
                    what = "a link, which is not followed" if stat.S_ISLNK(mode) else "not a folder"
                    raise InvalidInput(f"{shown('/'.join(names[: index + 1]))} is {what}")
                following = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=current)
                os.close(current)
                current = following
            yield current
        finally:
            os.close(current)

    def entries(self, names: tuple[str, ...], count_max: int) -> list[Entry]:
        """Return what the folder that `names` lead to holds, in order of name; OSError when it is gone."""
        with self._entered(names) as opened, os.scandir(opened) as found:
            return sorted(_entry(each) for each in islice(found, count_max))


class Walk:
    """Every matching file of a folder, the upper ones first. After iterating, `cut` says why it ended early, if so."""

    def __init__(self, folder: Folder, glob: Glob) -> None:
        self.cut = ""
        self._folder = folder
        self._glob = glob
        self._ends_at = time.monotonic() + WALK_SECONDS_MAX
        self._entries_left = ENTRIES_MAX
        self._waiting: deque[tuple[tuple[str, ...], Places]] = deque([((), glob.start)])

    def __iter__(self) -> Iterator[Found]:
        """Walk; once only. The time its reader takes between two files counts too."""
        while self._waiting and not self.cut:
            names, places = self._waiting.popleft()
            for found in self._files_in(names, places):
                yield found
                if time.monotonic() > self._ends_at:
                    break
            if time.monotonic() > self._ends_at:
                self.cut = f"ended after {WALK_SECONDS_MAX:g} s; a narrower pattern reaches the rest"
            elif self._entries_left < 0:
                self.cut = f"ended after {ENTRIES_MAX:,} names; a narrower pattern reaches the rest"

    def _files_in(self, names: tuple[str, ...], places: Places) -> Iterator[Found]:
        """Return the matching files of one folder, and note the folders in it for later."""
        try:
            entries = self._folder.entries(names, self._entries_left + 1)  # one more tells that there is more
        except (OSError, InvalidInput):
            return  # gone, swapped for a link, or not ours to read
        self._entries_left -= len(entries)
        for entry in entries:
            reached = self._glob.after(places, entry.name)
            if stat.S_ISREG(entry.mode) and self._glob.ended(reached):
                yield Found((*names, entry.name), entry.size)
            elif stat.S_ISDIR(entry.mode) and reached and entry.name not in SKIPPED and len(names) + 1 < DEPTH_MAX:
                self._waiting.append(((*names, entry.name), reached))


def names_of(path: str) -> tuple[str, ...]:
    """Return the names that lead to `path` within the folder; InvalidInput for a path that must not be opened."""
    if len(path) > PATH_CHARS_MAX:
        raise InvalidInput(f"the path has {len(path):,} characters, at most {PATH_CHARS_MAX:,} are allowed")
    if "\0" in path:
        raise InvalidInput("the path holds a NUL character")
    if path.startswith("/"):
        raise InvalidInput(f"{shown(path)} is an absolute path; give it relative to the folder, as list_files does")
    names = tuple(name for name in path.split("/") if name not in ("", "."))
    if not names:
        raise InvalidInput("the path is empty; list_files shows the files there are")
    if ".." in names:
        raise InvalidInput(f"{shown(path)} leads out of the folder: `..` is not allowed")
    if closed := next((name for name in names if name in SKIPPED), None):
        raise InvalidInput(f"{shown(path)} is out of reach: {closed} is never read")
    return names


def shown(path: str) -> str:
    """Return a path as one printable line, whatever bytes its names are made of."""
    return path if path.isprintable() else ascii(path)[1:-1]


def _entry(found: os.DirEntry[str]) -> Entry:
    try:
        about = found.stat(follow_symlinks=False)
    except OSError:  # it went away in between
        return Entry(found.name, 0, 0)
    return Entry(found.name, about.st_mode, about.st_size)


def _check_is_file(mode: int, path: str) -> None:
    if stat.S_ISREG(mode):
        return
    if stat.S_ISDIR(mode):
        raise InvalidInput(f"{shown(path)} is a folder; list_files with the pattern '{shown(path)}/' shows its files")
    what = "a link, which is not followed" if stat.S_ISLNK(mode) else "not a regular file"
    raise InvalidInput(f"{shown(path)} is {what}")


def _read(opened: int) -> bytes:
    """Return the first READ_BYTES_MAX bytes of an open file."""
    pieces: list[bytes] = []
    left = READ_BYTES_MAX
    while left and (piece := os.read(opened, left)):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


@contextmanager
def _telling(path: str) -> Generator[None]:
    """Turn the system's refusals into one readable line."""
    try:
        yield
    except FileNotFoundError:
        raise InvalidInput(f"there is no file {shown(path)}; list_files shows the files there are") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "its name is not valid text"
        raise InvalidInput(f"{shown(path)} cannot be read: {reason}") from None
