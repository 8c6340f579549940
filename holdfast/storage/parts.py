"""`EncodedParts`: long content under its digest, in parts, so that a piece is read without the rest.

    FOLDER/REF.0, FOLDER/REF.1, ...   the parts, RESULT_PART_BYTES each except for a shorter last one
    FOLDER/REF.parts                  the size in bytes and each part's SHA-256; written after the parts

REF is the beginning of the SHA-256 of FOLDER/REF.parts, so it verifies that what is read is what was written. Each
object is a Temporal payload, encoded by the codec if there is one, and bound to its name if the codec can bind.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

from google.protobuf.message import DecodeError
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadCodec

from holdfast.core.base.errors import PayloadRefused, StorageFailed
from holdfast.core.base.stored_forms import RESULT_PARTS
from holdfast.storage.bound_codec import codec_for_object, is_encrypted
from holdfast.storage.keys import KEY_FILE
from holdfast.storage.lru_cache import digest_of
from holdfast.storage.object_store import Objects

RESULT_PART_BYTES: Final = 1024 * 1024
"""The size of a part: reading on in an encrypted result decrypts only one or two."""

ENCODING: Final = b"binary/plain"

AT_ONCE_MAX: Final = 8


REF_CHARS: Final = 24
"""How many digits of a SHA-256 are a reference: too many to find other content for, few enough for a model to copy."""


class PartList(BaseModel):
    """The content of FOLDER/REF.parts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    size: Annotated[int, Field(ge=0)]
    digests: tuple[str, ...]


class EncodedParts:
    """Content in one store that is read in pieces, each verified against its digest."""

    def __init__(self, objects: Objects, codec: PayloadCodec | None = None) -> None:
        self._objects = objects
        self._codec = codec

    async def write(self, folder: str, data: bytes) -> str:
        """Write `data` to `folder` and return its reference. Raises StorageFailed."""
        pieces = [data[start : start + RESULT_PART_BYTES] for start in range(0, len(data), RESULT_PART_BYTES)]
        digests = await asyncio.to_thread(lambda: tuple(map(digest_of, pieces)))
        listed = PartList(size=len(data), digests=digests).model_dump_json().encode()
        ref = digest_of(listed)[:REF_CHARS]
        at_once = asyncio.Semaphore(AT_ONCE_MAX)

        async def write(number: int, piece: bytes) -> None:
            async with at_once:
                await self._write(f"{folder}/{ref}.{number}", piece)

        await asyncio.gather(*(write(number, piece) for number, piece in enumerate(pieces)))
        await self._write(f"{folder}/{ref}.parts", listed)
        return ref

    async def read_range(self, folder: str, ref: str, start: int, end: int) -> tuple[bytes, int]:
        """Return the bytes of `ref` from `start` to `end` (none beyond its end), and its whole size.

        Raises ObjectMissing, StorageFailed (also for changed content), and what the codec raises.
        """
        listed = await self._read(f"{folder}/{ref}.parts", ref)
        parts = self._listed(f"{folder}/{ref}.parts", listed)
        end = min(end, parts.size)
        if start >= end:
            return b"", parts.size
        first, last = start // RESULT_PART_BYTES, (end - 1) // RESULT_PART_BYTES
        numbers = range(first, last + 1)
        data = b"".join([await self._read(f"{folder}/{ref}.{each}", parts.digests[each]) for each in numbers])
        return data[start - first * RESULT_PART_BYTES : end - first * RESULT_PART_BYTES], parts.size

    async def _write(self, name: str, data: bytes) -> None:
        payload = Payload(metadata={"encoding": ENCODING}, data=data)
        if self._codec is not None:
            [payload] = await codec_for_object(self._codec, name).encode([payload])
        await self._objects.write(name, payload.SerializeToString(deterministic=True))

    async def _read(self, name: str, digest: str) -> bytes:
        """Return the content of `name`, whose SHA-256 must begin with `digest`."""
        data = await self._objects.read(name)
        if not data:
            raise self._damaged(name, "it is empty")
        try:
            payload = Payload.FromString(data)
        except DecodeError:
            raise self._damaged(name, "it is no payload") from None
        if self._codec is not None:
            [payload] = await codec_for_object(self._codec, name).decode([payload])
        elif is_encrypted(payload):
            problem = f"the object {name} in {self._objects.url} is encrypted, and this process has no key file"
            raise PayloadRefused(f"{problem}; set {KEY_FILE}")
        if not digest_of(payload.data).startswith(digest):
            raise self._damaged(name, "its content has another digest")
        return payload.data

    def _listed(self, name: str, data: bytes) -> PartList:
        try:
            return PartList.model_validate_json(data)
        except ValidationError:
            RESULT_PARTS.check(data, f"the object {name} in {self._objects.url}")
            raise self._damaged(name, "it is no list of parts") from None

    def _damaged(self, name: str, why: str) -> StorageFailed:
        return StorageFailed(f"the object {name} in {self._objects.url} is damaged: {why}; restore it from a backup")
