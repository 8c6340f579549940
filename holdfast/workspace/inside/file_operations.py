"""Reading, writing, editing and listing files below the root. Runs inside: Python 3.9, the standard library alone."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import Any

from holdfast.workspace.inside.frames import CONTENT, write_frame
from holdfast.workspace.inside.paths import Refused, Root, kind_of, shown

READ_BYTES_MAX = 4 * 1024 * 1024
"""The most of a file that one reading passes on."""

PIECE_BYTES = 64 * 1024
"""How much of a line is read at once: a file can be one line."""

EDITED_BYTES_MAX = 16 * 1024 * 1024
"""The largest file that can be edited by a replacement, and that may become of it."""

ENTRIES_MAX = 2_000
"""The most names that one listing shows."""

DEPTH_MAX = 32
"""How deep folders are listed and searched."""

BINARY_CHECK_BYTES = 8 * 1024


def read(root: Root, _runtime: str, request: dict[str, Any], _body: bytes) -> dict[str, Any]:
    """Pass on the lines of a text file from line `first` on, at most `lines`; or with `raw` its bytes."""
    with os.fdopen(root.open_file(request["path"]), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if request.get("raw"):
            if size > int(request["bytes_max"]):
                raise Refused(f"{shown(request['path'])} has {size:,} bytes, at most {request['bytes_max']:,} are read")
            write_frame(CONTENT, file.read(int(request["bytes_max"])))
            return {"size": size}
        if b"\0" in file.read(BINARY_CHECK_BYTES):
            return {"size": size, "binary": True}
        file.seek(0)
        first, most = int(request.get("first") or 1), int(request.get("lines") or 2**31)
        number, sent, last, more, begins = 0, 0, 0, False, True
        while line := file.readline(PIECE_BYTES):
            number += begins
            if number >= first:
                if number >= first + most or sent + len(line) > READ_BYTES_MAX:
                    more = True
                    break
                write_frame(CONTENT, line)
                sent += len(line)
                last = number
            begins = line.endswith(b"\n")
        return {"size": size, "first": first, "last": last, "more": more, "cut": more and not begins and last == number}


def write(root: Root, _runtime: str, request: dict[str, Any], body: bytes) -> dict[str, Any]:
    """Write the body to a file, whole or not at all; folders on the way are made."""
    return {"size": len(body), "made": _replace(root, request["path"], body)}


def edit(root: Root, _runtime: str, request: dict[str, Any], body: bytes) -> dict[str, Any]:
    """Replace the text `old` of a file, which must be there once (or with `all`, at least once), by the body."""
    path, old = request["path"], request["old"].encode("utf-8", "surrogateescape")
    with os.fdopen(root.open_file(path), "rb") as file:
        content = file.read(EDITED_BYTES_MAX + 1)
    if len(content) > EDITED_BYTES_MAX:
        raise Refused(f"{shown(path)} has more than {EDITED_BYTES_MAX:,} bytes; change it by a command")
    if not old:
        raise Refused("the text to replace is empty; give a part of the file, or write the whole file")
    count = content.count(old)
    if not count:
        raise Refused(
            f"the text to replace is not in {shown(path)}; read the file and give it exactly, blanks included"
        )
    if count > 1 and not request.get("all"):
        raise Refused(f"the text to replace is {count} times in {shown(path)}; give more of its surroundings")
    size = len(content) + count * (len(body) - len(old))
    if size > EDITED_BYTES_MAX:
        raise Refused(
            f"{shown(path)} would have {size:,} bytes, more than {EDITED_BYTES_MAX:,}; change it by a command"
        )
    _replace(root, path, content.replace(old, body))
    return {"replaced": count, "line": content[: content.index(old)].count(b"\n") + 1}


def _replace(root: Root, path: str, content: bytes) -> bool:
    """Write a file by way of another that takes its place; return whether it is new."""
    parent, name = root.open_parent(path, make=True)
    try:
        if name == ".":
            raise Refused(f"{shown(path)} is a folder; name a file in it")
        try:
            before = os.stat(name, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            mode = None
        else:
            if not stat.S_ISREG(before.st_mode):
                raise Refused(f"{shown(path)} is {kind_of(before.st_mode)}; it is not replaced")
            mode = stat.S_IMODE(before.st_mode) & 0o777
        unfinished = f".holdfast-{os.getpid()}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        opened = os.open(unfinished, flags, 0o666, dir_fd=parent)
        try:
            with os.fdopen(opened, "wb") as file:
                file.write(content)
                if mode is not None:
                    os.fchmod(file.fileno(), mode)
            os.rename(unfinished, name, src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:
            os.unlink(unfinished, dir_fd=parent)
            raise
        return mode is None
    finally:
        os.close(parent)


def list_files(root: Root, _runtime: str, request: dict[str, Any], _body: bytes) -> dict[str, Any]:
    """Return the entries of a folder, or of all below it, each with its kind and size."""
    entries: list[dict[str, Any]] = []
    depth = DEPTH_MAX if request.get("recursive") else 1
    folder = root.open_folder(request.get("path") or ".")
    try:
        for place, facts, target in walk(folder, depth):
            if len(entries) == ENTRIES_MAX:
                return {"entries": entries, "more": True}
            entry: dict[str, Any] = {"path": shown(place), "size": facts.st_size}
            if not stat.S_ISREG(facts.st_mode):
                entry["kind"] = kind_of(facts.st_mode).split(" ", 1)[1]
                entry["target"] = shown(target)
            entries.append(entry)
    finally:
        os.close(folder)
    return {"entries": entries, "more": False}


def walk(
    folder: int, depth: int, above: str = "", closed: set[str] | None = None
) -> Iterator[tuple[str, os.stat_result, str]]:
    """Yield what is below an opened folder, sorted by name: path, facts, and where a link points. Follows no link.

    Folders that may not be looked into are added to `closed`.
    """
    for name in sorted(os.listdir(folder)):
        place = above + name
        try:
            facts = os.stat(name, dir_fd=folder, follow_symlinks=False)
            target = os.readlink(name, dir_fd=folder) if stat.S_ISLNK(facts.st_mode) else ""
            yield place, facts, target
            if depth > 1 and stat.S_ISDIR(facts.st_mode):
                below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
                try:
                    os.stat(".", dir_fd=below)  # one that may be listed, but not searched, is closed, too
                    yield from walk(below, depth - 1, place + "/", closed)
                finally:
                    os.close(below)
        except FileNotFoundError:  # gone meanwhile
            continue
        except PermissionError:
            if closed is not None:
                closed.add(place)
