"""Writes a file that a person has named: whole or not at all, and over another one only by `--force`."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

from holdfast.core.base.errors import Conflict, InvalidInput


def writable(output: str, *, force: bool) -> Path:
    """Return the file, which can be written as far as one can see. Raises InvalidInput, Conflict."""
    file = Path(output)
    if not file.parent.is_dir():
        raise InvalidInput(f"there is no folder {str(file.parent)!r} to write {file.name!r} into; create it first")
    if file.is_dir():
        raise InvalidInput(f"{output!r} is a folder; name a file in it")
    if file.exists() and not force:
        raise _exists(file)
    return file


def _exists(file: Path) -> Conflict:
    return Conflict(f"the file {str(file)!r} already exists; choose another name, or overwrite it with --force")


def write(file: Path, data: bytes, *, force: bool) -> None:
    """Write the file whole or not at all: beside its place first. Raises InvalidInput, Conflict."""
    file = file.resolve()  # a link stays, what it leads to is written
    if file.exists() and not file.is_file():
        raise InvalidInput(f"{str(file)!r} is not a regular file; name another one")
    try:
        with NamedTemporaryFile(dir=file.parent, prefix=f".{file.name}.", delete=False) as part:
            path = Path(part.name)
            try:
                part.write(data)
                part.flush()
                _put(path, file, force=force)
            finally:
                path.unlink(missing_ok=True)
    except FileExistsError:
        raise _exists(file) from None
    except OSError as error:
        raise InvalidInput(
            f"{str(file)!r} cannot be written: {error.strerror or error}; choose another place"
        ) from None


def _put(path: Path, file: Path, *, force: bool) -> None:
    path.chmod(0o666 & ~_umask())
    if not force:
        with suppress(PermissionError):  # a file system without hard links
            os.link(path, file)
            return
    path.replace(file)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
