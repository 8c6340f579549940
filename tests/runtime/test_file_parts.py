"""The files of one model call: resolved by digest, the latest within bounds, words in place of the rest."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import pytest

from holdfast.core.agent.policies import ContextPolicy
from holdfast.core.base.errors import StorageFailed
from holdfast.core.conversation.attachments import FILE_KINDS, PICTURE_BYTES_MAX, SENT_BYTES_MAX, Attachment
from holdfast.core.conversation.messages import FilePart, ImagePart, Message, Part, TextPart, user_message
from holdfast.core.conversation.result_files import results_message
from holdfast.core.wire.record_store import AttachmentStore
from holdfast.runtime.files.attachments import MemoryAttachments
from holdfast.runtime.files.file_parts import FILES_MAX, with_files
from holdfast.storage.records import Records
from tests.pictures import PNG


def picture(data: bytes, name: str = "a.png", media_type: str = "image/png", size: int | None = None) -> Attachment:
    digest = sha256(data).hexdigest()
    return Attachment(name=name, media_type=media_type, size=len(data) if size is None else size, digest=digest)


def shown(message: Message) -> list[str]:
    """What stands in the parts behind the first."""
    assert not isinstance(message.content, str)
    return [_part(part) for part in message.content[1:]]


def _part(part: Part) -> str:
    match part:
        case ImagePart():
            return part.url
        case TextPart():
            return part.text
        case FilePart():
            return f"{part.name} {part.media_type} {part.data}"
        case _:
            return "stored"


def picture_message(pictures: tuple[Attachment, ...]) -> Message:
    return results_message(pictures, ())


async def with_pictures(
    messages: Sequence[Message], store: AttachmentStore | None, *, shown: bool
) -> Sequence[Message]:
    return await with_files(messages, store, ContextPolicy(images=shown), lambda: FILE_KINDS)


async def test_a_picture_is_read_by_its_digest_and_messages_without_any_stay_as_they_are() -> None:
    store = MemoryAttachments()
    await store.write_attachment(PNG)
    plain = (user_message("hello"),)
    assert await with_pictures(plain, store, shown=True) is plain
    [first, second] = await with_pictures((*plain, picture_message((picture(PNG),))), store, shown=True)
    assert first is plain[0]
    assert shown(second) == [f"data:image/png;base64,{base64.b64encode(PNG).decode()}"]


async def test_a_damaged_picture_costs_the_picture_and_no_run(tmp_path: Path) -> None:
    digest = await Records.in_folder(tmp_path).write_attachment(PNG)
    (tmp_path / "attachments" / digest[:2] / digest).write_bytes(b"damaged")
    [message] = await with_pictures([picture_message((picture(PNG),))], Records.in_folder(tmp_path), shown=True)
    assert shown(message) == ["[picture a.png: the record store has it damaged]"]


async def test_words_stand_in_place_of_what_cannot_be_shown() -> None:
    store = MemoryAttachments()
    await store.write_attachment(b"no picture")
    lost, fake = picture(b"lost"), picture(b"no picture", "fake.png")
    big = picture(b"big", "big.png", size=PICTURE_BYTES_MAX + 1)
    [message] = await with_pictures([picture_message((lost, fake, big))], store, shown=True)
    assert shown(message) == [
        "[picture a.png: the record store does not have it any more]",
        "[picture fake.png: its data is no image/png]",
        "[picture big.png: it cannot be shown]",
    ]
    [message] = await with_pictures([picture_message((picture(b"no picture", size=1),))], store, shown=True)
    assert shown(message) == ["[picture a.png: it has 10 bytes, not 1]"], "what is sent is bounded by what was said"
    for given, wanted in ((store, False), (None, True)):
        [message] = await with_pictures([picture_message((lost,))], given, shown=wanted)
        assert shown(message) == ["[picture a.png: not shown any more]"]


async def test_a_sound_is_no_picture_although_both_begin_alike() -> None:
    store, sound, webp = MemoryAttachments(), b"RIFF\x24\0\0\0WAVEfmt ", b"RIFF\x24\0\0\0WEBPVP8 "
    await store.write_attachment(sound)
    await store.write_attachment(webp)
    files = picture(sound, "a.webp", "image/webp"), picture(webp, "b.webp", "image/webp")
    [message] = await with_pictures([picture_message(files)], store, shown=True)
    encoded = base64.b64encode(webp).decode()
    assert shown(message) == ["[picture a.webp: its data is no image/webp]", f"data:image/webp;base64,{encoded}"]


async def test_the_latest_pictures_are_shown_by_number_and_by_size() -> None:
    store = MemoryAttachments()
    pictures: list[Attachment] = []
    for number in range(FILES_MAX + 2):
        data = PNG + bytes([number])
        await store.write_attachment(data)
        pictures.append(picture(data, f"{number}.png"))
    messages = [picture_message((each,)) for each in pictures]
    texts = [shown(each)[0] for each in await with_pictures(messages, store, shown=True)]
    assert texts[:2] == ["[picture 0.png: not shown any more]", "[picture 1.png: not shown any more]"]
    assert all(each.startswith("data:image/png;base64,") for each in texts[2:])

    count = SENT_BYTES_MAX // PICTURE_BYTES_MAX
    many = [each.model_copy(update={"size": PICTURE_BYTES_MAX}) for each in pictures[: count + 1]]
    messages = [picture_message((each,)) for each in many]
    texts = [shown(each)[0] for each in await with_pictures(messages, store, shown=True)]
    assert [each.startswith("data:") for each in texts] == [False, *[True] * count]


async def test_a_store_that_fails_fails_the_attempt() -> None:
    class Away(MemoryAttachments):
        async def read_attachment(self, digest: str) -> bytes:
            raise StorageFailed(f"{digest} cannot be read")

    with pytest.raises(StorageFailed):
        await with_pictures([picture_message((picture(PNG),))], Away(), shown=True)
