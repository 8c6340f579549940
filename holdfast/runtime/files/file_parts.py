"""Puts the bytes of stored files into the messages of one model call, in-process and inside an activity alike."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from holdfast.core.agent.policies import ContextPolicy
from holdfast.core.base.errors import ObjectDamaged, ObjectMissing
from holdfast.core.base.frozen import replace, trusted
from holdfast.core.conversation.attachments import (
    KIND_BYTES_MAX,
    SENT_BYTES_MAX,
    Attachment,
    FileKind,
    not_shown,
    why_left_out,
)
from holdfast.core.conversation.messages import (
    FilePart,
    ImagePart,
    Message,
    Part,
    StoredFilePart,
    StoredImagePart,
    StoredPart,
    TextPart,
)
from holdfast.core.wire.record_store import AttachmentStore
from holdfast.runtime.files.file_types import is_what_it_says

FILES_MAX: Final = 20
"""The most stored files of one request, the latest: some APIs take no more pictures."""

_Key = tuple[str, str, str]
"""A file as it is shown: the same bytes can have several names."""


async def with_files(
    messages: Sequence[Message],
    store: AttachmentStore | None,
    policy: ContextPolicy,
    takes: Callable[[], Collection[FileKind]],
) -> Sequence[Message]:
    """Return the messages with their stored files, the latest within FILES_MAX and SENT_BYTES_MAX.

    A line of text stands in place of each other file, of those of results that the `policy` does not show, and of the
    kinds that the model does not take. `takes` returns those that it does; it is called only where there are files.
    Raises StorageFailed.
    """
    holding = [message for message in messages if _stored([message])]
    if not holding:
        return messages
    taken = {*takes(), "text"}
    latest = _latest(part.attachment for part in _stored(holding) if store is not None and _is_shown(part, policy))
    reasons = {key: why for key, file in latest.items() if (why := _not_taken(file, taken))}
    read = {key: file for key, file in latest.items() if key not in reasons}
    parts = await asyncio.gather(*(_read(store, file) for file in read.values()))
    resolved: dict[_Key, tuple[Part, ...]] = {key: (_placeholder(latest[key], why),) for key, why in reasons.items()}
    resolved |= zip(read, parts, strict=True)
    return tuple(_resolved(message, resolved, policy) if _stored([message]) else message for message in messages)


def _stored(messages: Iterable[Message]) -> list[StoredImagePart | StoredFilePart]:
    parts = (part for message in messages if not isinstance(message.content, str) for part in message.content)
    return [part for part in parts if isinstance(part, StoredPart)]


def _is_shown(part: StoredImagePart | StoredFilePart, policy: ContextPolicy) -> bool:
    """Return whether the policy shows a file; those of users are always shown."""
    if isinstance(part, StoredImagePart):
        return policy.images
    return policy.files or not part.of_result


def _key(file: Attachment) -> _Key:
    return file.digest, file.name, file.media_type


def _latest(files: Iterable[Attachment]) -> dict[_Key, Attachment]:
    """Return the latest files within the bounds; the bytes of one that is there twice count once."""
    chosen: dict[_Key, Attachment] = {}
    size, digests = 0, set[str]()
    for each in reversed([*files]):
        if _key(each) in chosen:
            continue
        size += 0 if each.digest in digests else each.size
        digests.add(each.digest)
        if len(chosen) >= FILES_MAX or size > SENT_BYTES_MAX:
            break
        chosen[_key(each)] = each
    return chosen


def _not_taken(file: Attachment, taken: Collection[str]) -> str:
    """Return why the model is not sent a file of that kind; empty where it can be."""
    kind = file.kind
    return "" if kind is None or kind in taken else why_left_out(kind)


async def _read(store: AttachmentStore | None, file: Attachment) -> tuple[Part, ...]:
    """Return the file for the model, or a text about why it cannot be shown."""
    kind = file.kind
    if store is None or kind is None or not 0 < file.size <= KIND_BYTES_MAX[kind]:
        return (_placeholder(file, "it cannot be shown"),)
    try:
        data = await store.read_attachment(file.digest)
    except ObjectMissing:
        return (_placeholder(file, "the record store does not have it any more"),)
    except ObjectDamaged:
        return (_placeholder(file, "the record store has it damaged"),)
    if len(data) > file.size:  # what is sent is bounded, and counted, by the sizes that the state has
        return (_placeholder(file, f"it has {len(data):,} bytes, not {file.size:,}"),)
    if not is_what_it_says(data, file.media_type):
        return (_placeholder(file, f"its data is no {file.media_type}"),)
    encoded = base64.b64encode(data).decode()
    if kind == "images":
        return (trusted(ImagePart, url=f"data:{file.media_type};base64,{encoded}"),)
    return (trusted(FilePart, name=file.name, media_type=file.media_type, data=encoded, pages=file.pages),)


def _resolved(message: Message, read: Mapping[_Key, tuple[Part, ...]], policy: ContextPolicy) -> Message:
    parts = (part for part in message.content if not isinstance(part, str))
    return replace(message, content=tuple(shown for part in parts for shown in _shown(part, read, policy)))


def _shown(part: Part, read: Mapping[_Key, tuple[Part, ...]], policy: ContextPolicy) -> tuple[Part, ...]:
    """Return what the model is sent for a part. A user's picture, PDF or sound has a line with its name before it."""
    if not isinstance(part, StoredPart):
        return (part,)
    file = part.attachment
    shown = read.get(_key(file)) if _is_shown(part, policy) else None
    if shown is None:
        return (_placeholder(file, "not shown any more"),)
    is_named = isinstance(shown[0], TextPart) or file.kind == "text"
    if is_named or isinstance(part, StoredImagePart) or part.of_result:
        return shown
    return (trusted(TextPart, text=file.line), *shown)


def _placeholder(file: Attachment, why: str) -> TextPart:
    what = "picture" if file.is_picture else "file"
    return trusted(TextPart, text=not_shown(file.name, why, what=what))
