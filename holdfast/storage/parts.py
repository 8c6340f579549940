"""`EncodedParts`: long bytes under a name, encoded part by part, so that a piece of them is read without the rest.

    NAME.0, NAME.1, ...   the parts, RESULT_PART_BYTES each and a last one that is shorter
    NAME.size             how many bytes there are, written after them

Each is a Temporal payload that has gone through the codec, bound to its name where the codec can do that.
"""

from __future__ import annotations

import asyncio
from typing import Final

from google.protobuf.message import DecodeError
from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadCodec

from holdfast.core.errors import StorageFailed
from holdfast.core.limits import RESULT_PART_BYTES
from holdfast.storage.binding import codec_for_object
from holdfast.storage.objects import Objects

ENCODING: Final = b"binary/plain"

AT_ONCE_MAX: Final = 8


class EncodedParts:
    """What `Objects` is for plain bytes, as far as long results need it."""

    def __init__(self, objects: Objects, codec: PayloadCodec) -> None:
        self._objects = objects
        self._codec = codec

    async def write(self, name: str, data: bytes) -> None:
        """Keep `data` under `name`. Raises StorageFailed."""
        at_once = asyncio.Semaphore(AT_ONCE_MAX)

        async def write(number: int) -> None:
            async with at_once:
                start = number * RESULT_PART_BYTES
                await self._write(f"{name}.{number}", data[start : start + RESULT_PART_BYTES])

        await asyncio.gather(*map(write, range(-(-len(data) // RESULT_PART_BYTES))))
        await self._write(f"{name}.size", str(len(data)).encode())

    async def read_range(self, name: str, start: int, end: int) -> tuple[bytes, int]:
        """Return the bytes from `start` to `end` of what is kept under `name` (none beyond its end), and its size.

        Raises ObjectMissing, StorageFailed, and whatever the codec refuses.
        """
        size = int(await self._read(f"{name}.size"))
        end = min(end, size)
        if start >= end:
            return b"", size
        first, last = start // RESULT_PART_BYTES, (end - 1) // RESULT_PART_BYTES
        found = b"".join([await self._read(f"{name}.{number}") for number in range(first, last + 1)])
        return found[start - first * RESULT_PART_BYTES : end - first * RESULT_PART_BYTES], size

    async def _write(self, name: str, data: bytes) -> None:
        payload = Payload(metadata={"encoding": ENCODING}, data=data)
        [encoded] = await codec_for_object(self._codec, name).encode([payload])
        await self._objects.write(name, encoded.SerializeToString(deterministic=True))

    async def _read(self, name: str) -> bytes:
        data = await self._objects.read(name)
        try:
            encoded = Payload.FromString(data)
        except DecodeError:
            told = f"the object {name} in {self._objects.url} is damaged: it is no payload"
            raise StorageFailed(f"{told}; restore it from a backup") from None
        [payload] = await codec_for_object(self._codec, name).decode([encoded])
        return payload.data
