"""Receives the body of an answer within its times, and tells the listener what is known of it. Knows no API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, suppress
from typing import Final, Protocol

from holdfast.core.agent.model import AnswerPart, ModelRequest
from holdfast.core.base.retries import MODEL_SECONDS_MAX
from holdfast.models.event_stream import AnswerStream
from holdfast.models.provider_errors import is_broken_connection
from holdfast.models.routes import Timeouts

CONNECT_SECONDS: Final = 10.0
"""How long a connection, TLS included, may take."""

FIRST_BYTE_SECONDS: Final = 300.0
"""How long an endpoint may be silent before it begins to answer: a local one reads the whole prompt in that time."""

SILENCE_SECONDS: Final = 120.0
"""The longest silence within an answer that streams; hidden reasoning makes pauses of a minute."""

TRAILER_SECONDS: Final = 5.0
"""How long to wait for the usage once the answer is complete."""

DRAIN_SECONDS: Final = 0.1
"""How long to wait for the end of the body after the answer: only then can the connection be reused."""


class HttpBody(Protocol):
    """The part of the client's response that we use."""

    def iter_bytes(self) -> AsyncIterator[bytes]:
        """Return the body as it arrives."""
        ...


def report(request: ModelRequest, part: AnswerPart) -> None:
    """Tell the request's listener, if it has one."""
    if request.listener is not None:
        request.listener(part)


def report_rest(request: ModelRequest, stream: AnswerStream) -> None:
    """Report the bytes of an interrupted answer that were not reported yet."""
    if not stream.plain and stream.pending_bytes:
        report(request, AnswerPart(call_bytes=stream.pending_bytes))


async def received(
    sent: AbstractAsyncContextManager[HttpBody], stream: AnswerStream, *, streamed: bool, timeouts: Timeouts
) -> None:
    """Feed `stream` what is answered to `sent`, for MODEL_SECONDS_MAX at most. Raises the client's errors."""
    ends_at = asyncio.get_running_loop().time() + MODEL_SECONDS_MAX
    # the client's read timeout counts between bytes, so keep-alives would prolong it for ever
    first = timeouts.first_byte_seconds or FIRST_BYTE_SECONDS
    limit = asyncio.timeout(first if streamed else MODEL_SECONDS_MAX)
    try:
        async with limit, sent as http_response:
            silence = timeouts.silence_seconds or SILENCE_SECONDS
            await _receive(http_response.iter_bytes(), stream, limit, ends_at, silence)
    except Exception as error:
        if not (stream.complete and is_broken_connection(error)):  # else at most the usage is missing
            raise


async def _receive(
    chunks: AsyncIterator[bytes], stream: AnswerStream, limit: asyncio.Timeout, until: float, silence: float
) -> None:
    """Feed `stream` the chunks; each of them extends `limit`, though never beyond `until`."""
    now = asyncio.get_running_loop().time
    async for chunk in chunks:
        stream.feed(chunk)
        if stream.done:
            # a server may keep the connection open behind the answer's end
            break
        # the usage comes behind the answer's end or never: not worth a silence of minutes
        longest = MODEL_SECONDS_MAX if stream.plain else TRAILER_SECONDS if stream.complete else silence
        limit.reschedule(min(until, now() + longest))
    if stream.done:
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                async for _ in chunks:
                    pass
