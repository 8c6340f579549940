"""`OpenAIEndpoint`: what the APIs that the official openai client speaks have in common. Retries nothing."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from openai import AsyncOpenAI, DefaultAsyncHttpxClient, Timeout

from holdfast.core.agent.model import AnswerPart, Model, ModelRequest
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.retries import MODEL_SECONDS_MAX
from holdfast.core.base.usage import NOTHING_USED
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.models.answer_transfer import CONNECT_SECONDS, HttpBody, received, report, report_rest
from holdfast.models.endpoint import ProviderSettings
from holdfast.models.event_stream import AnswerStream
from holdfast.models.http_errors import refuse_errors
from holdfast.models.provider_errors import provider_failure
from holdfast.models.request_sent import calling_when_sent, trace_sending
from holdfast.runtime.trusted_certificates import trusted_certificates

NO_ENDPOINT: Final = (
    "no model endpoint is set: set OPENAI_API_KEY (or OPENAI_BASE_URL) where the worker or LocalDriver starts, "
    "and start it again"
)
NO_MODEL: Final = (
    "no model is named: set llm.model in the agent's definition, or HOLDFAST_MODEL where the worker or LocalDriver "
    "starts, and start it again"
)

HEADERS: Final = {"Accept-Encoding": "identity"}
"""Received bytes are counted as they are: no compressed bombs."""


class OpenAIEndpoint(Model):
    """An endpoint that the official client calls, with its retries off. An API says what is sent, and reads answers."""

    def __init__(self, settings: ProviderSettings | None = None) -> None:
        """Without `settings`, those of the environment count. Raises InvalidInput for unusable ones."""
        self.settings = settings = settings or ProviderSettings.from_environment()
        # Local servers need no key, but the client requires one; it must not fall back to the environment.
        key = settings.api_key or ("unused" if settings.base_url else None)
        self._client: AsyncOpenAI | None = None
        if key is not None:
            # the silences within an answer are timed in `_receive`
            timeout = Timeout(MODEL_SECONDS_MAX, connect=CONNECT_SECONDS)
            hooks: dict[str, list[Callable[..., Any]]] = {"request": [trace_sending], "response": [refuse_errors]}
            transport = DefaultAsyncHttpxClient(event_hooks=hooks, verify=trusted_certificates())
            self._client = AsyncOpenAI(
                api_key=key, base_url=settings.base_url, max_retries=0, timeout=timeout, http_client=transport
            )

    async def __call__(self, request: ModelRequest) -> InferenceResponse:
        """Return the endpoint's answer; raise ModelFailure as `provider_errors` lists them."""
        stream = self._stream(request)
        # until the transport sends it a failure is free: no name, no connection, no TLS
        report(request, AnswerPart(sent=False))
        try:
            with calling_when_sent(lambda: report(request, AnswerPart(unseen=not request.llm.stream))):
                return await self._answer(request, stream)
        except asyncio.CancelledError:
            report_rest(request, stream)
            raise
        except Exception as error:
            report_rest(request, stream)
            # usage that came before the break is reported, and better than a bound
            failure = provider_failure(error, self.settings, stream.usage or NOTHING_USED)
            if failure is None:
                raise
            raise failure from None  # the cause may hold the request with its key

    @abstractmethod
    def _stream(self, request: ModelRequest) -> AnswerStream:
        """Return what reads the answer to `request` while it arrives."""
        ...

    @abstractmethod
    def _sent(self, client: AsyncOpenAI, model: str, request: ModelRequest) -> AbstractAsyncContextManager[HttpBody]:
        """Return `request` as the client sends it; entered, it waits for the answer's headers."""
        ...

    @abstractmethod
    def _read(self, answer: object, request: ModelRequest) -> InferenceResponse:
        """Return the answer that a stream's JSON is. Raises UnusableAnswer and ErrorInAnswer."""
        ...

    async def _answer(self, request: ModelRequest, stream: AnswerStream) -> InferenceResponse:
        if self._client is None:
            raise InvalidInput(NO_ENDPOINT)
        model = request.llm.model or self.settings.model
        if model is None:
            raise InvalidInput(NO_MODEL)
        await received(self._sent(self._client, model, request), stream, streamed=request.llm.stream)
        # our own reading: the client's types are not validated
        response = self._read(stream.end(), request)
        if stream.plain:
            part = AnswerPart(response.text, response.reasoning, stream.usage, response.model, response.response_id)
            report(request, part)
        return response

    @property
    def missing(self) -> str:
        """What runs will fail for, shown before any does; empty when nothing is missing."""
        if self._client is None:
            return NO_ENDPOINT
        return "" if self.settings.model else f"{NO_MODEL} (agents that name one are fine)"

    async def close(self) -> None:
        """Close the connections."""
        if self._client:
            await self._client.close()
