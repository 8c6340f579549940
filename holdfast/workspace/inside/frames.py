"""The bytes between a worker and the program in a workspace. Runs inside: Python 3.9, the standard library alone.

A request is a JSON header and a body, each behind its length in four bytes. The answer is frames, each a letter, a
length in four bytes, and so many bytes: `O` output of a command as it comes, `B` content that belongs to the result,
and `R`, the result as JSON, which is the last; a long one takes several.
"""

from __future__ import annotations

import json
import os
import struct
from typing import Any

OUTPUT, CONTENT, RESULT = b"O", b"B", b"R"

FRAME_BYTES_MAX = 1024 * 1024
"""The longest frame that is written; a reader of one may refuse more."""

HEADER_BYTES_MAX = 4 * 1024 * 1024
"""The longest header of a request: its texts are arguments of a tool, 200,000 characters of up to 12 bytes in JSON."""

BODY_BYTES_MAX = 256 * 1024 * 1024
"""The longest body of a request: a whole snapshot."""

INPUT, ANSWERS = 0, 1


class Gone(Exception):
    """The caller has closed its end."""


def read_exactly(size: int) -> bytes:
    """Return the next `size` bytes of standard input; raises Gone at its end."""
    pieces: list[bytes] = []
    while size > 0:
        piece = os.read(INPUT, min(size, FRAME_BYTES_MAX))
        if not piece:
            raise Gone
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def read_request() -> tuple[dict[str, Any], bytes]:
    """Return the header and the body of the one request. Raises Gone, and ValueError for what is none."""
    header, body = (_read_block(most) for most in (HEADER_BYTES_MAX, BODY_BYTES_MAX))
    value: dict[str, Any] = json.loads(header)
    if not isinstance(value, dict):  # pyright: ignore[reportUnnecessaryIsInstance]  # anything can come
        raise ValueError("the request's header is no JSON object")  # noqa: TRY004  # what is no request
    return value, body


def _read_block(most: int) -> bytes:
    (size,) = struct.unpack(">I", read_exactly(4))
    if size > most:
        raise ValueError(f"a part of the request has {size} bytes, at most {most} are allowed")
    return read_exactly(size)


def write_frame(kind: bytes, data: bytes) -> None:
    """Write one frame, or more if `data` is long. Raises Gone where nobody reads."""
    for start in range(0, max(1, len(data)), FRAME_BYTES_MAX):
        piece = data[start : start + FRAME_BYTES_MAX]
        left = memoryview(kind + struct.pack(">I", len(piece)) + piece)
        while left:
            try:
                left = left[os.write(ANSWERS, left) :]
            except OSError:
                raise Gone from None


def write_result(result: dict[str, Any]) -> None:
    """Write the last frame, or frames."""
    write_frame(RESULT, json.dumps(result).encode())


def request_head(header: dict[str, Any], body_size: int) -> bytes:
    """Return what comes before the body of a request, for whoever sends it."""
    head = json.dumps(header).encode()
    return struct.pack(">I", len(head)) + head + struct.pack(">I", body_size)


def request_bytes(header: dict[str, Any], body: bytes = b"") -> bytes:
    """Return a whole request."""
    return request_head(header, len(body)) + body
