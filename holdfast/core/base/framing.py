"""Frames: several byte strings packed into one, as a snapshot arrives with its parts. Does not read their contents."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from holdfast.core.base.errors import StateInvalid

LENGTH_BYTES: Final = 8
"""Before each frame stands its length, as an unsigned big-endian number of so many bytes."""


def framed(frames: Iterable[bytes]) -> bytes:
    """Return the frames as one byte string."""
    return b"".join(piece for frame in frames for piece in (len(frame).to_bytes(LENGTH_BYTES, "big"), frame))


def frames_of(data: bytes) -> tuple[bytes, ...]:
    """Return the frames that `framed` packed. Raises StateInvalid for anything else."""
    frames: list[bytes] = []
    place = 0
    while place < len(data):
        start = place + LENGTH_BYTES
        place = start + int.from_bytes(data[place:start], "big")
        if place > len(data):
            raise StateInvalid(f"a frame of a kept state ends at byte {place} of {len(data)}; its store was changed")
        frames.append(data[start:place])
    return tuple(frames)
