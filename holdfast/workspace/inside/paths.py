"""`Root`: files below one folder, and none outside it. Runs inside: Python 3.9, the standard library alone.

A path is opened part by part, each without following a link; links are read and followed by hand as long as they stay
below the root. So neither a link nor one that is swapped meanwhile leads out.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat

LINKS_MAX = 40
"""The most links on one path, as in Linux itself."""

PATH_CHARS_MAX = 4096

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISLNK, "a link"),
)


class Refused(Exception):
    """What was asked for is not done; the message is for the model."""


def shown(path: str) -> str:
    """Return a name as text that can travel: unprintable characters and undecodable bytes are escaped."""
    if path.isprintable() and not any("\ud800" <= each <= "\udfff" for each in path):
        return path
    return ascii(path)


def problem_of(error: OSError) -> str:
    """Return an error of the system's as text, with the file that it is about."""
    where = f": {shown(os.fsdecode(error.filename))}" if isinstance(error.filename, (str, bytes)) else ""
    return f"{error.strerror or error}{where}"


def kind_of(mode: int) -> str:
    """Return what a file is that is not a regular one."""
    return next((name for test, name in KINDS if test(mode)), "a file of an unknown kind")


class Root:
    """The folder that the agent sees as its files."""

    def __init__(self, path: str) -> None:
        self.path = os.path.realpath(path)

    def open_parent(self, path: str, *, make: bool = False) -> tuple[int, str]:  # noqa: C901  # one walk
        """Return the folder that holds `path`, opened, and its name there, links followed; `make` creates folders.

        The name is `.` for the root itself. Raises Refused for what leads out, OSError.
        """
        waiting = self._parts(path)
        opened: list[int] = [os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)]
        links = 0
        try:
            while waiting:
                name = waiting.pop(0)
                if name == "..":
                    if len(opened) == 1:
                        raise Refused(f"{shown(path)} leads out of the workspace; name a file in it")
                    os.close(opened.pop())
                    continue
                target = _link_target(name, opened[-1])
                if target is not None:
                    links += 1
                    if links > LINKS_MAX:
                        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                    if os.path.isabs(target):
                        target = self._inner(target, path)
                        while len(opened) > 1:
                            os.close(opened.pop())
                    waiting[:0] = _split(target)
                    continue
                if not waiting:
                    return os.dup(opened[-1]), name
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, 0o777, dir_fd=opened[-1])
                opened.append(os.open(name, _FOLDER, dir_fd=opened[-1]))
            return os.dup(opened[-1]), "."
        finally:
            for each in opened:
                os.close(each)

    def open_folder(self, path: str) -> int:
        """Return a folder, opened. Raises Refused, OSError."""
        parent, name = self.open_parent(path)
        try:
            return os.open(name, _FOLDER, dir_fd=parent)
        finally:
            os.close(parent)

    def open_file(self, path: str) -> int:
        """Return a regular file, opened for reading. Raises Refused for any other kind, OSError."""
        parent, name = self.open_parent(path)
        try:
            mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
            if not stat.S_ISREG(mode):  # opening a device can have an effect
                raise Refused(f"{shown(path)} is {kind_of(mode)}")
            opened = os.open(name, _READ, dir_fd=parent)
        finally:
            os.close(parent)
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            os.close(opened)
            raise Refused(f"{shown(path)} is no regular file")
        return opened

    def _parts(self, path: str) -> list[str]:
        if "\0" in path:
            raise Refused(f"a path cannot hold the character NUL: {shown(path[:200])}")
        if len(path) > PATH_CHARS_MAX:
            raise Refused(f"the path has {len(path):,} characters, at most {PATH_CHARS_MAX:,} are allowed")
        return _split(self._inner(path, path) if os.path.isabs(path) else path)

    def _inner(self, absolute: str, path: str) -> str:
        """Return an absolute path relative to the root. Raises Refused for one outside."""
        if absolute == self.path:
            return "."
        if not absolute.startswith(self.path.rstrip("/") + "/"):
            raise Refused(f"{shown(path)} leads out of the workspace; name a file in it")
        return absolute[len(self.path.rstrip("/")) + 1 :]


def _split(path: str) -> list[str]:
    return [each for each in path.split("/") if each not in ("", ".")]


def _link_target(name: str, parent: int) -> str | None:
    try:
        return os.readlink(name, dir_fd=parent)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT):  # no link; or nothing, which its opening reports
            return None
        raise
