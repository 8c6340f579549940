"""Finds references to stored objects in bytes and in Temporal's messages. Reads nothing itself.

A reference is the SHA-256 of a content, in hexadecimal digits. Whatever looks like one counts as one: a transcript's
digest keeps no object, and a reference in a field that is new tomorrow keeps its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadCodec

from holdfast.core.base.errors import PayloadRefused
from holdfast.storage.bound_codec import is_encrypted
from holdfast.storage.keys import KEY_FILE

DIGEST_CHARS: Final = 64

_HEX: Final = re.compile(rb"[0-9a-f]{64,}")


def digests_in(data: bytes) -> set[bytes]:
    """Return every SHA-256 in `data`, as its 32 bytes; of a longer run of digits, each that it may hold."""
    found: set[bytes] = set()
    for match in _HEX.finditer(data):
        digits = match[0].decode()
        found.update(
            bytes.fromhex(digits[start : start + DIGEST_CHARS]) for start in range(len(digits) - DIGEST_CHARS + 1)
        )
    return found


def payloads_in(message: Message) -> Iterator[Payload]:
    """Yield the payloads of a message of Temporal's, at any depth."""
    if isinstance(message, Payload):
        yield message
        return
    for field, value in message.ListFields():
        if field.type != FieldDescriptor.TYPE_MESSAGE:
            continue
        if not field.is_repeated:
            yield from payloads_in(value)
        else:
            # a map's values, where they are messages; its keys never are
            items = value.values() if hasattr(value, "values") else value
            for each in items:
                if isinstance(each, Message):
                    yield from payloads_in(each)


class ReferenceReader:
    """Finds the references in what is encoded; `codec` is that of the namespace and the store, if they have one."""

    def __init__(self, codec: PayloadCodec | None) -> None:
        # not bound to a run or an object: a parent's history also holds what was encoded for its child
        self._codec = codec

    async def in_message(self, message: Message) -> set[bytes]:
        """Return the references in a message of Temporal's. Raises PayloadRefused where a key is missing."""
        found = digests_in(message.SerializeToString())
        for payload in payloads_in(message):
            if is_encrypted(payload):
                found |= digests_in(await self._decoded(payload))
        return found

    async def in_object(self, data: bytes) -> set[bytes]:
        """Return the references in a stored object. Raises PayloadRefused where a key is missing."""
        return digests_in(await self.content(data))

    async def content(self, data: bytes) -> bytes:
        """Return the content of a stored object; of what is no payload, the bytes. Raises PayloadRefused."""
        try:
            payload = Payload.FromString(data)
        except DecodeError:
            return data
        if not is_encrypted(payload):
            return payload.data or data
        return (await self._opened(payload)).data

    async def _decoded(self, payload: Payload) -> bytes:
        return (await self._opened(payload)).SerializeToString()

    async def _opened(self, payload: Payload) -> Payload:
        if self._codec is None:
            key = payload.metadata.get("key", b"")[:100].decode(errors="replace")
            raise PayloadRefused(
                f"a payload is encrypted with the key {key!r}, and there is no key file; set {KEY_FILE}"
            )
        [opened] = await self._codec.decode([payload])
        return opened
