"""The files that come with a user's message: read and checked before anything is sent, then stored."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from os import PathLike
from typing import Final, TypeAlias

from holdfast.core.base.errors import InvalidInput
from holdfast.core.conversation.attachments import (
    ATTACHMENT_BYTES_MAX,
    ATTACHMENTS_MAX,
    KIND_BYTES_MAX,
    KIND_NAMES,
    PDF_TYPE,
    SENT_BYTES_MAX,
    Attachment,
    framed_name,
    kind_of,
    legal_file_name,
)
from holdfast.core.tools.tool_context import FilePath
from holdfast.core.wire.record_store import AttachmentStore
from holdfast.runtime.files.attachments import content_of, ending_of, read_file
from holdfast.runtime.files.file_types import kind_by_name, marked_type, pages_of, text_of, type_by_name

SHOWN_CHARS_MAX: Final = 120
"""How much of a file's name errors show."""

TAKEN: Final = (
    "PDF, PNG, JPEG, GIF, WebP, WAV, MP3, and UTF-8 text whose name says so (.txt, .md, .csv, .json, .py, ...)"
)
"""What can come with a message."""


@dataclass(frozen=True, slots=True)
class MessageFile:
    """A file for a message that has been read and can be sent to a model."""

    attachment: Attachment
    data: bytes


GivenFile: TypeAlias = MessageFile | Attachment | str | FilePath | bytes
"""A file for a message: its path or its bytes, or one that is read or stored already."""


def message_file(content: bytes | str | FilePath, name: str | None = None) -> MessageFile:
    """Return a file by its bytes or its path. Its media type is found by its content, a text's by its name's ending.

    `name` is what the model is told that it is called, by default the path's last part. Raises InvalidInput for what no
    model takes, and for what cannot be read.
    """
    file = content_of(content)
    data, own_name = (file, None) if isinstance(file, bytes) else read_file(file)
    given = own_name if name is None else name
    shown = "the file" if given is None else repr(given[-SHOWN_CHARS_MAX:])
    if not data:
        raise InvalidInput(f"{shown} is empty; attach a file with content")
    media_type = _media_type(data, given or "", shown)
    kind = kind_of(media_type)
    if kind is None:
        raise InvalidInput(_unknown(shown))
    if len(data) > KIND_BYTES_MAX[kind]:
        # no more than one byte beyond the bound was read
        size = f"more than {ATTACHMENT_BYTES_MAX:,}" if len(data) > ATTACHMENT_BYTES_MAX else f"{len(data):,}"
        allowed = f"{shown} has {size} bytes, of {KIND_NAMES[kind]} at most {KIND_BYTES_MAX[kind]:,} are sent"
        raise InvalidInput(f"{allowed}; attach less of it")
    return MessageFile(
        Attachment(
            name=_name(given, media_type),
            media_type=media_type,
            size=len(data),
            digest=sha256(data).hexdigest(),
            pages=pages_of(data) if media_type == PDF_TYPE else None,
        ),
        data,
    )


def message_files(files: Iterable[GivenFile]) -> tuple[MessageFile | Attachment, ...]:
    """Return the files of one message, read and checked. One that comes twice counts once. Raises InvalidInput."""
    _check_several(files)
    read: list[MessageFile | Attachment] = []
    size, digests = 0, set[str]()
    for each in files:
        if len(read) >= ATTACHMENTS_MAX:
            raise InvalidInput(f"these are more than {ATTACHMENTS_MAX} files; a message has {ATTACHMENTS_MAX} at most")
        file = each if isinstance(each, MessageFile | Attachment) else message_file(each)
        attachment = file if isinstance(file, Attachment) else file.attachment
        if attachment.kind is None:
            raise InvalidInput(_unknown(repr(attachment.name)))
        size += 0 if attachment.digest in digests else attachment.size
        digests.add(attachment.digest)
        if size > SENT_BYTES_MAX:
            text = f"with {attachment.name!r} the files of this message take {size:,} bytes"
            raise InvalidInput(f"{text}, at most {SENT_BYTES_MAX:,} are sent; send them in several messages")
        read.append(file)
    return tuple(read)


async def stored_files(files: Iterable[GivenFile], store: AttachmentStore) -> tuple[Attachment, ...]:
    """Return the files of one message, stored. Raises InvalidInput before any is; StorageFailed."""
    if files == ():  # threads may be taken, by files that are slow to read
        return ()
    read = await asyncio.to_thread(message_files, files)
    new = {each.attachment.digest: each.data for each in read if isinstance(each, MessageFile)}
    await asyncio.gather(*(store.write_attachment(data) for data in new.values()))
    return tuple(each if isinstance(each, Attachment) else each.attachment for each in read)


def _check_several(files: object) -> None:
    """Raise InvalidInput for one file where several are meant: a path would be taken letter by letter."""
    if not isinstance(files, Iterable) or isinstance(files, str | bytes | PathLike):
        kind = type(files).__name__
        raise InvalidInput(f"attachments are a list of files, not {kind}; put a single file into a list")


def _media_type(data: bytes, name: str, shown: str) -> str:
    """Return the media type of the content, where the name does not say otherwise. Raises InvalidInput."""
    marked, named = marked_type(data), kind_by_name(name)
    if marked is not None:
        return marked
    if named == "text":
        if text_of(data) is None:
            raise InvalidInput(f"{shown} is named like a text, but its content is not UTF-8; convert or rename it")
        return type_by_name(name) or ""
    if named is not None:
        what = KIND_NAMES[named].removesuffix("s")
        raise InvalidInput(f"{shown} is named like a {what}, but its content is not one; convert or rename it")
    raise InvalidInput(_unknown(shown))


def _unknown(shown: str) -> str:
    return f"{shown} is of a kind that no model takes; attach {TAKEN}"


def _name(given: str | None, media_type: str) -> str:
    """Return the name by which the model reads of a file: one line, and nothing that would end a tag around it."""
    name = framed_name(" ".join(legal_file_name(given or "").split()))
    return name if re.search(r"[^\W_]", name) else f"file{ending_of(media_type)}"
