"""Messages over standard input: whole, bounded, up to the end."""

from __future__ import annotations

import asyncio
import os

import pytest

from holdfast.mcp_serve.stdio import LINE_BYTES_MAX, stdin_lines


async def lines_of(data: bytes) -> list[str]:
    reading, writing = os.pipe()

    def write() -> None:
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(data)

    try:
        writer = asyncio.create_task(asyncio.to_thread(write))
        lines = [line async for line in stdin_lines(reading)]
        await writer
    finally:
        os.close(reading)
    return lines


async def test_each_line_is_a_message_and_the_last_needs_no_end() -> None:
    assert await lines_of(b'{"a": 1}\n\n  \n{"b": "\xc3\xa9"}\r\n{"c": 3}') == ['{"a": 1}', '{"b": "é"}\r', '{"c": 3}']


async def test_a_line_over_the_bound_is_dropped_and_the_next_one_read(capsys: pytest.CaptureFixture[str]) -> None:
    longest, longer = b"x" * LINE_BYTES_MAX, b"y" * (3 * LINE_BYTES_MAX)
    lines = await lines_of(longest + b"\n" + longer + b"\nafter\n" + longest + b"y\nlast\n")
    assert [len(lines[0]), *lines[1:]] == [LINE_BYTES_MAX, "after", "last"]
    assert capsys.readouterr().err.count("dropped a message") == 2
