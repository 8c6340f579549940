"""`AttachedFiles`: the files that one call attaches, checked as they come and stored when it has ended well."""

from __future__ import annotations

import asyncio
import mimetypes
import os
import stat
from hashlib import sha256
from os import PathLike
from pathlib import Path
from threading import Lock
from typing import Final, cast

from pydantic import ValidationError

from holdfast.core.base.errors import HoldfastError, InvalidInput, ObjectMissing, StorageFailed
from holdfast.core.base.frozen import replace
from holdfast.core.base.safe_text import clamped, printable
from holdfast.core.base.validation_errors import problems_text
from holdfast.core.conversation.attachments import (
    ATTACHED_BYTES_MAX,
    ATTACHMENT_BYTES_MAX,
    ATTACHMENTS_MAX,
    PDF_TYPE,
    UNKNOWN_MEDIA_TYPE,
    Attachment,
    problem_with_file_name,
)
from holdfast.core.tools.tool_context import FilePath
from holdfast.core.tools.tool_results import ToolReply, bounded_result
from holdfast.core.wire.record_store import AttachmentStore
from holdfast.runtime.files.file_types import pages_of

STORING_SECONDS_MAX: Final = 15.0
"""How long storing a call's files may take; after that the model is told that they were not kept."""

MARGIN_SECONDS: Final = 2.0
"""How much of a call's time must remain when its files are stored; a quarter of it where there is less."""

CAUSE_CHARS_MAX: Final = 300

PATH_SHOWN_CHARS_MAX: Final = 300
"""How much of a path, its end, errors show."""

READ_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC

MEMORY_BYTES_MAX: Final = 256 * 1024 * 1024
"""The most that an in-process run without a record store keeps of its tools' files."""


def _media_types() -> mimetypes.MimeTypes:
    """Return the types by name that Python itself knows, the same on every machine, and those that it lacks."""
    types = mimetypes.MimeTypes()
    for media_type, ending in (("audio/wav", ".wav"), ("image/webp", ".webp")):
        types.add_type(media_type, ending)
    return types


_TYPES: Final = _media_types()


class AttachedFiles:
    """The files of one call, in the order in which they were attached. Any thread may add some."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._files: list[tuple[Attachment, bytes]] = []
        self._bytes = 0
        self._notes: list[str] = []
        self._closed = False

    def add(
        self, content: bytes | str | FilePath, name: str | None = None, media_type: str | None = None
    ) -> Attachment:
        """Take a file, given by its bytes or its path. Raises InvalidInput for one that cannot be kept."""
        given = content_of(content)
        data, own_name = (given, None) if isinstance(given, bytes) else read_file(given)
        name = own_name if name is None else name
        with self._lock:
            if self._closed:
                raise InvalidInput("the call has ended; attach files before the tool returns")
            attachment = _described(data, name, media_type, len(self._files) + 1)
            if len(self._files) >= ATTACHMENTS_MAX:
                raise InvalidInput(f"{attachment.name!r} is one file too many: one call attaches {ATTACHMENTS_MAX}")
            if self._bytes + len(data) > ATTACHED_BYTES_MAX:
                text = f"with {attachment.name!r} the files of this call take {self._bytes + len(data):,} bytes"
                raise InvalidInput(f"{text}, at most {ATTACHED_BYTES_MAX:,} are kept")
            self._files.append((attachment, data))
            self._bytes += len(data)
        return attachment

    def note(self, problem: str) -> None:
        """Have the reply say why a file is left out."""
        with self._lock:
            if len(self._notes) < ATTACHMENTS_MAX:
                self._notes.append(problem)

    async def kept(self, reply: ToolReply, store: AttachmentStore | None, seconds_left: float) -> ToolReply:
        """Store the files and return the reply with them. Never raises: the call has had its effect.

        Where they cannot be stored within the time that the call has left, the reply says so.
        """
        with self._lock:
            files, self._files, self._closed = self._files, [], True
        for problem in self._notes:
            reply = _with_note(reply, problem)
        if not files:
            return reply
        if store is None:
            return _without(reply, files, "nothing here stores files")
        try:
            async with asyncio.timeout(min(seconds_left - min(MARGIN_SECONDS, seconds_left / 4), STORING_SECONDS_MAX)):
                await asyncio.gather(*(store.write_attachment(data) for _, data in files))
        except TimeoutError:
            return _without(reply, files, "the storage took too long")
        except Exception as error:  # noqa: BLE001  # the call must not be repeated for any storage error
            return _without(reply, files, str(error) if isinstance(error, HoldfastError) else type(error).__name__)
        return replace(reply, attachments=tuple(attachment for attachment, _ in files))


class MemoryAttachments:
    """The files of in-process runs without a record store: they last as long as this does."""

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}

    async def write_attachment(self, data: bytes) -> str:
        """Keep a file. Raises StorageFailed when there are MEMORY_BYTES_MAX already."""
        digest = sha256(data).hexdigest()
        if digest not in self._files and sum(map(len, self._files.values())) + len(data) > MEMORY_BYTES_MAX:
            raise StorageFailed(f"more than {MEMORY_BYTES_MAX:,} bytes of files; give the driver `records`")
        self._files[digest] = data
        return digest

    async def read_attachment(self, digest: str) -> bytes:
        """Return a file. Raises ObjectMissing."""
        if digest not in self._files:
            raise ObjectMissing(f"there is no file {digest[:80]} in this process")
        return self._files[digest]


def attachment_store(records: object) -> AttachmentStore:
    """Return where an in-process run keeps files: its record store if that can, else memory."""
    return records if isinstance(records, AttachmentStore) else MemoryAttachments()


def read_file(path: Path) -> tuple[bytes, str]:
    """Return the bytes of a file, at most one more than are kept, and its name. Raises InvalidInput."""
    where = printable(str(path))[-PATH_SHOWN_CHARS_MAX:]
    try:
        _refuse_special(where, path.stat())  # to open a device may do something
        # without O_NONBLOCK a pipe that has taken the file's place would wait for its other end
        with open(os.open(path, READ_FLAGS), "rb") as file:  # noqa: PTH123  # of a descriptor
            _refuse_special(where, os.fstat(file.fileno()))
            data: bytes | None = file.read(ATTACHMENT_BYTES_MAX + 1)
            return data or b"", path.name  # some files of the kernel have nothing yet
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise InvalidInput(f"{where} cannot be attached: {why}") from None


def content_of(content: object) -> bytes | Path:
    """Return a file as it was given: its bytes or its path. Raises InvalidInput for anything else."""
    kind = type(content).__name__
    if isinstance(content, bytes):
        return content
    if isinstance(content, str | PathLike):
        try:
            return Path(cast("str | PathLike[str]", content))
        except TypeError:  # a path of bytes
            pass
    raise InvalidInput(f"a file is given by its path or its bytes, not by {kind}")


def _refuse_special(where: str, of: os.stat_result) -> None:
    if not (stat.S_ISREG(of.st_mode) or stat.S_ISDIR(of.st_mode)):
        raise InvalidInput(f"{where} is not a regular file; attach a file or bytes")


def _described(data: bytes, name: str | None, media_type: str | None, number: int) -> Attachment:
    if len(data) > ATTACHMENT_BYTES_MAX:
        text = f"{name or 'the file'!r} has {len(data):,} bytes or more, at most {ATTACHMENT_BYTES_MAX:,} are kept"
        raise InvalidInput(f"{text}; keep it elsewhere and give its address")
    if media_type is None:
        guess, packed_by = _TYPES.guess_type(name, strict=False) if name else (None, None)
        media_type = UNKNOWN_MEDIA_TYPE if guess is None or packed_by else guess
    if name is None:
        name = f"file-{number}{ending_of(media_type)}"
    if problem := problem_with_file_name(name):
        raise InvalidInput(f"the file cannot be attached: {problem}")
    try:
        return Attachment(
            name=name,
            media_type=media_type,
            size=len(data),
            digest=sha256(data).hexdigest(),
            pages=pages_of(data) if media_type == PDF_TYPE else None,
        )
    except ValidationError as error:
        raise InvalidInput(f"the file cannot be attached: {problems_text(error)}") from None


def ending_of(media_type: str) -> str:
    """Return what the names of such files end with, such as `.png`; empty where that is not known."""
    return _TYPES.guess_extension(media_type, strict=False) or ""


def _without(reply: ToolReply, files: list[tuple[Attachment, bytes]], why: str) -> ToolReply:
    names = ", ".join(attachment.name for attachment, _ in files)
    return _with_note(reply, f"{names}: {why}")


def _with_note(reply: ToolReply, problem: str) -> ToolReply:
    """Return the reply with a line about what was not kept; a text that was JSON goes on as the structure."""
    note = f"[not kept: {' '.join(clamped(problem, CAUSE_CHARS_MAX).split())}]"
    structured = reply.text if reply.result_type == "json" else reply.structured
    text = bounded_result(f"{reply.text}\n{note}")
    return replace(reply, text=text, result_type="text", structured=structured)
