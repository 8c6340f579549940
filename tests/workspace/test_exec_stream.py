"""The output of a command as Docker carries it: pieces, an end, and a connection that breaks."""

from __future__ import annotations

import socket

import pytest

from holdfast.workspace.docker.exec_stream import HEADER, PIECE_BYTES_MAX, STDERR, STDOUT, ExecStream


async def received(sent: bytes) -> list[tuple[int, bytes]]:
    ours, theirs = socket.socketpair()
    stream = await ExecStream.open("exec", ours)
    theirs.sendall(sent)
    theirs.close()
    try:
        return [piece async for piece in stream.pieces()]
    finally:
        await stream.close()


async def test_pieces_come_with_the_number_of_their_stream() -> None:
    sent = HEADER.pack(STDOUT, 3) + b"out" + HEADER.pack(STDERR, 0) + HEADER.pack(STDERR, 3) + b"err"
    assert await received(sent) == [(STDOUT, b"out"), (STDERR, b""), (STDERR, b"err")]
    assert await received(b"") == []


@pytest.mark.parametrize("sent", [b"\1\0\0", HEADER.pack(STDOUT, 5) + b"hal", HEADER.pack(STDOUT, PIECE_BYTES_MAX + 1)])
async def test_a_connection_that_breaks_is_an_error_and_no_end(sent: bytes) -> None:
    with pytest.raises(ConnectionError):
        await received(sent)


async def test_closing_is_seen_at_the_other_end() -> None:
    ours, theirs = socket.socketpair()
    stream = await ExecStream.open("exec", ours)
    await stream.write(b"request")
    await stream.close()
    theirs.settimeout(60)
    assert theirs.recv(100) == b"request"
    assert theirs.recv(100) == b""
    theirs.close()
