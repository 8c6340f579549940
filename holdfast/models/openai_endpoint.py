"""`OpenAIEndpoint`: what the APIs that the official openai client speaks have in common. Retries nothing."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from openai import AsyncOpenAI, DefaultAsyncHttpxClient, Timeout

from holdfast.core.agent.definition import LLM
from holdfast.core.agent.model import AnswerPart, Model, ModelRequest
from holdfast.core.agent.usage_estimates import input_bound
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.retries import MODEL_SECONDS_MAX
from holdfast.core.base.usage import NOTHING_USED, Usage
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.models.answer_transfer import CONNECT_SECONDS, HttpBody, received, report, report_rest
from holdfast.models.endpoint import ProviderSettings
from holdfast.models.event_stream import AnswerStream
from holdfast.models.http_errors import refuse_errors
from holdfast.models.options import options_problem
from holdfast.models.output_limits import StatedLimits
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
        self._limits = StatedLimits()
        # Local servers need no key, but the client requires one; it must not fall back to the environment.
        key = settings.api_key or ("unused" if settings.base_url else None)
        self._client: AsyncOpenAI | None = None
        if key is not None:
            # the silences within an answer are timed in `answer_transfer`
            timeout = Timeout(MODEL_SECONDS_MAX, connect=settings.timeouts.connect_seconds or CONNECT_SECONDS)
            hooks: dict[str, list[Callable[..., Any]]] = {"request": [trace_sending], "response": [refuse_errors]}
            transport = DefaultAsyncHttpxClient(event_hooks=hooks, verify=trusted_certificates())
            self._client = AsyncOpenAI(
                api_key=key,
                base_url=settings.base_url or settings.api.base_url,
                max_retries=0,
                timeout=timeout,
                http_client=transport,
                default_headers=settings.headers,
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
            if (answer := self._answer_in(error, request, stream.usage)) is not None:
                return answer
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
    def _sent(
        self, client: AsyncOpenAI, model: str, request: ModelRequest, output_max: int | None
    ) -> AbstractAsyncContextManager[HttpBody]:
        """Return `request` as the client sends it; entered, it waits for the answer's headers."""
        ...

    @abstractmethod
    def _read(self, answer: object, request: ModelRequest, output_max: int | None) -> InferenceResponse:
        """Return the answer that a stream's JSON is. Raises UnusableAnswer and ErrorInAnswer."""
        ...

    def _answer_in(self, error: Exception, request: ModelRequest, reported: Usage | None) -> InferenceResponse | None:  # noqa: ARG002  # an API's own
        """Return the answer that an error is in truth; none for an error that is one."""
        return None

    async def _answer(self, request: ModelRequest, stream: AnswerStream) -> InferenceResponse:
        client = self._client
        if client is None:
            raise InvalidInput(NO_ENDPOINT)
        model = request.llm.model or self.settings.model
        if model is None:
            raise InvalidInput(NO_MODEL)
        bound = self._limits.first(model, request.max_output_tokens, lambda: input_bound(request))

        async def ask(output_max: int | None) -> InferenceResponse:
            sent = self._sent(client, model, request, output_max)
            await received(sent, stream, streamed=request.llm.stream, timeouts=self.settings.timeouts)
            # our own reading: the client's types are not validated
            return self._read(stream.end(), request, output_max)

        response = await self._limits.answer(model, bound, ask)
        if stream.plain:
            part = AnswerPart(response.text, response.reasoning, stream.usage, response.model, response.response_id)
            report(request, part)
        return response

    def problem(self, llm: LLM) -> str:
        """Return why no run can ask this endpoint with `llm`; empty where one can."""
        return options_problem(llm, self.settings.api)

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
