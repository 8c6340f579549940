"""`BackgroundCall`: a response that the provider makes in the background, followed to its end over many connections.

The rules are those of https://developers.openai.com/api/docs/guides/background: a stream can be taken up again behind
the last event while the response is a few minutes old; after that, and without streaming, it is polled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import Final

from openai import AsyncOpenAI, Omit, omit
from openai.types.responses import ResponseIncludable

from holdfast.core.agent.model import AnswerPart, ModelRequest
from holdfast.core.base.retries import MODEL_SECONDS_MAX, BackOff
from holdfast.core.base.usage import Usage
from holdfast.core.wire.endpoint_refusals import refusal
from holdfast.models.answer_errors import AnswerGone, UnusableAnswer
from holdfast.models.answer_transfer import HttpBody, received, report
from holdfast.models.event_stream import fields_of, parsed
from holdfast.models.http_errors import ErrorStatus
from holdfast.models.http_model import HEADERS
from holdfast.models.openai_responses.response_object import NO_RESPONSE, UNDER_WAY, reported
from holdfast.models.openai_responses.response_stream import StreamedResponse
from holdfast.models.routes import Timeouts

POLLS: Final = BackOff(first_seconds=0.5, longest_seconds=5.0)
"""Between two looks at a response that is not streamed."""

POLL_SECONDS_MAX: Final = 30.0
"""How long one look may take."""

FAILURES_MAX: Final = 5
"""How many connections in a row may bring nothing before the attempt fails. The next one resumes the response."""

GONE: Final = (404, 410)
"""The statuses of a request for a response that the provider does not have any more."""


class BackgroundCall:
    """One attempt at a response in the background. What it has begun is `StreamedResponse.lives_on`."""

    def __init__(
        self,
        client: AsyncOpenAI,
        request: ModelRequest,
        stream: StreamedResponse,
        timeouts: Timeouts,
        include: list[ResponseIncludable] | Omit,
    ) -> None:
        self._client, self._request, self._stream = client, request, stream
        self._timeouts, self._include = timeouts, include
        self._failures = 0

    async def body(self, send: Callable[[], AbstractAsyncContextManager[HttpBody]]) -> object:
        """Return the response's JSON once it has ended; `send` asks for it, unless an earlier attempt has.

        Raises as `received` does, TimeoutError after MODEL_SECONDS_MAX, and AnswerGone.
        """
        resume = self._request.resume
        async with asyncio.timeout(MODEL_SECONDS_MAX):
            if resume is None:
                whole = await self._begun(send)
            else:
                self._stream.resume(resume.response_id)
                report(self._request, AnswerPart(response_id=resume.response_id, unseen=True, lives_on=True))
                whole = await self._streamed() if self._request.llm.stream else None
            return await self._polled() if whole is None else whole

    async def _begun(self, send: Callable[[], AbstractAsyncContextManager[HttpBody]]) -> object | None:
        """Ask, and return the whole response; none for one that goes on at the provider and does not stream here."""
        stream = self._stream
        try:
            await received(send(), stream, streamed=self._request.llm.stream, timeouts=self._timeouts)
            whole = stream.end()
        except Exception:
            if not stream.lives_on:
                raise
            return await self._streamed()
        if not stream.lives_on:
            return whole
        report(self._request, AnswerPart(response_id=stream.response_id, unseen=True, lives_on=True))
        return None

    async def _streamed(self) -> object | None:
        """Take the stream up behind its last event, as often as it breaks; none where it cannot be."""
        stream, id_ = self._stream, self._stream.response_id
        while self._failures < FAILURES_MAX:
            before = stream.last_event
            report(self._request, AnswerPart(unseen=True))  # what is made until then is not seen
            stream.reopen()
            sent = self._client.responses.with_streaming_response.retrieve(
                id_,
                stream=True,
                starting_after=before if before >= 0 else omit,
                include=self._include,
                extra_headers=HEADERS,
            )
            try:
                await received(sent, stream, streamed=True, timeouts=self._timeouts)
                whole = stream.end()
            except ErrorStatus as error:
                self._check_refusal(error)
                if not _is_temporary(error):  # too old to be streamed, or not begun as a stream
                    return None
            except UnusableAnswer:
                if not stream.lives_on:
                    raise
                return None
            except Exception:
                if not stream.lives_on:
                    raise
            else:
                return None if stream.plain and stream.lives_on else whole
            self._failures = 0 if stream.last_event > before else self._failures + 1
            await asyncio.sleep(POLLS.wait_seconds(self._failures + 1))
        return None

    async def _polled(self) -> object:
        """Look at the response until it has ended."""
        looks = self._failures = 0
        while True:
            try:
                whole = await self._look()
            except Exception as error:
                if isinstance(error, ErrorStatus):
                    self._check_refusal(error)
                self._failures += 1
                if self._failures >= FAILURES_MAX or (isinstance(error, ErrorStatus) and not _is_temporary(error)):
                    raise
            else:
                self._failures = 0
                if fields_of(whole).get("status") not in UNDER_WAY:
                    self._end(whole)
                    return whole
            looks += 1
            await asyncio.sleep(POLLS.wait_seconds(looks))

    async def _look(self) -> object:
        sent = self._client.responses.with_streaming_response.retrieve(
            self._stream.response_id, include=self._include, extra_headers=HEADERS
        )
        return await _whole(sent, self._timeouts, POLL_SECONDS_MAX)

    def _check_refusal(self, error: ErrorStatus) -> None:
        """Raise for a response that is not there any more: it is over, whatever became of it."""
        if error.status in GONE:
            report(self._request, AnswerPart(unseen=True, lives_on=False))
            raise AnswerGone from error

    def _end(self, whole: object) -> None:
        self._stream.usage = reported(fields_of(whole).get("usage"))
        report(self._request, AnswerPart(usage=self._stream.usage, unseen=True, lives_on=False))


async def cancelled(client: AsyncOpenAI, response_id: str, timeouts: Timeouts) -> Usage | None:
    """Cancel a response at the provider; return its usage where that is reported.

    Raises the client's errors; UnusableAnswer for a response that goes on all the same.
    """
    sent = client.responses.with_streaming_response.cancel(response_id, extra_headers=HEADERS)
    response = fields_of(await _whole(sent, timeouts, POLL_SECONDS_MAX))
    if response.get("status") in UNDER_WAY:
        raise UnusableAnswer("the response is not cancelled")
    return reported(response.get("usage"))


async def _whole(sent: AbstractAsyncContextManager[HttpBody], timeouts: Timeouts, seconds_max: float) -> object:
    """Return a response as it is now, of any status. Raises UnusableAnswer for what is none."""
    reader = _Look(streamed=False)
    async with asyncio.timeout(seconds_max):
        await received(sent, reader, streamed=False, timeouts=timeouts)
    whole = reader.end()
    if not isinstance(fields_of(whole).get("status"), str):
        raise UnusableAnswer(NO_RESPONSE)
    return whole


class _Look(StreamedResponse):
    """The body of a response that need not have ended."""

    def _whole(self, body: bytes) -> object:
        return parsed(body)


def _is_temporary(error: ErrorStatus) -> bool:
    """Return whether the same request may succeed later."""
    return refusal(error.status, error.words, error.headers, datetime.now(UTC)).again
