"""Puts the bytes of stored pictures into the messages of one model call, in-process and inside an activity alike."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from holdfast.core.base.errors import ObjectDamaged, ObjectMissing
from holdfast.core.base.frozen import replace, trusted
from holdfast.core.conversation.attachments import PICTURE_BYTES_MAX, Attachment
from holdfast.core.conversation.messages import ImagePart, Message, Part, StoredImagePart, TextPart
from holdfast.core.wire.record_store import AttachmentStore

PICTURES_MAX: Final = 20
"""The most stored pictures of one request, the latest: some APIs take no more."""

PICTURES_BYTES_MAX: Final = 14_000_000
"""The most that they take together, in bytes: some APIs take requests of 20 MB, and base64 adds a third."""

MAGIC: Final[Mapping[str, tuple[bytes, ...]]] = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
}
"""How the files of each type begin: an API refuses the whole request for a picture that is none."""


async def with_pictures(
    messages: Sequence[Message], store: AttachmentStore | None, *, shown: bool
) -> Sequence[Message]:
    """Return the messages with their stored pictures, the latest within PICTURES_MAX and PICTURES_BYTES_MAX.

    A text stands in place of each other one, and of all of them unless `shown`. Raises StorageFailed.
    """
    holding = [message for message in messages if _pictures([message])]
    if not holding:
        return messages
    wanted = _latest(_pictures(holding)) if shown and store is not None else {}
    read = dict(zip(wanted, await asyncio.gather(*(_read(store, each) for each in wanted.values())), strict=True))
    return tuple(_resolved(message, read) if _pictures([message]) else message for message in messages)


def _pictures(messages: Iterable[Message]) -> list[Attachment]:
    parts = (part for message in messages if not isinstance(message.content, str) for part in message.content)
    return [part.attachment for part in parts if isinstance(part, StoredImagePart)]


def _latest(pictures: Sequence[Attachment]) -> dict[str, Attachment]:
    """Return the latest pictures within the bounds, by digest."""
    chosen: dict[str, Attachment] = {}
    size = 0
    for each in reversed(pictures):
        if each.digest in chosen:
            continue
        size += each.size
        if len(chosen) >= PICTURES_MAX or size > PICTURES_BYTES_MAX:
            break
        chosen[each.digest] = each
    return chosen


async def _read(store: AttachmentStore | None, picture: Attachment) -> Part:
    """Return the picture for the model, or a text about why it cannot be shown."""
    if store is None or picture.size > PICTURE_BYTES_MAX or not picture.is_picture:
        return _placeholder(picture, "it cannot be shown")
    try:
        data = await store.read_attachment(picture.digest)
    except ObjectMissing:
        return _placeholder(picture, "the record store does not have it any more")
    except ObjectDamaged:
        return _placeholder(picture, "the record store has it damaged")
    if not _begins_as(data, picture.media_type):
        return _placeholder(picture, f"its data is no {picture.media_type}")
    encoded = base64.b64encode(data).decode()
    return trusted(ImagePart, url=f"data:{picture.media_type};base64,{encoded}")


def _begins_as(data: bytes, media_type: str) -> bool:
    # sounds and films are RIFF files, too
    return data.startswith(MAGIC[media_type]) and (media_type != "image/webp" or data[8:12] == b"WEBP")


def _resolved(message: Message, read: Mapping[str, Part]) -> Message:
    parts = tuple(
        read.get(part.attachment.digest) or _placeholder(part.attachment, "not shown any more")
        if isinstance(part, StoredImagePart)
        else part
        for part in message.content
        if not isinstance(part, str)
    )
    return replace(message, content=parts)


def _placeholder(picture: Attachment, why: str) -> TextPart:
    return trusted(TextPart, text=f"[picture {picture.name}: {why}]")
