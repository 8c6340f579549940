"""`Anthropic`: Anthropic's Messages API as a `Model`. Translates requests and answers; retries nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from anthropic import APIConnectionError, AsyncAnthropic, DefaultAsyncHttpxClient, Timeout

from holdfast.core.agent.definition import LLM
from holdfast.core.agent.model import AnswerPart, Model, ModelRequest
from holdfast.core.agent.usage_estimates import input_bound
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.retries import MODEL_SECONDS_MAX
from holdfast.core.base.usage import NOTHING_USED
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.models.answer_errors import ErrorInAnswer
from holdfast.models.answer_transfer import CONNECT_SECONDS, received, report, report_rest
from holdfast.models.anthropic.message import read_message
from holdfast.models.anthropic.message_stream import MessageStream
from holdfast.models.anthropic.request_body import OUTPUT_TOKENS, Thinking, request_body
from holdfast.models.endpoint import ProviderSettings
from holdfast.models.event_stream import fields_of
from holdfast.models.http_errors import ErrorStatus, refuse_errors
from holdfast.models.model_apis import ANTHROPIC
from holdfast.models.options import options_problem
from holdfast.models.output_limits import StatedLimits
from holdfast.models.provider_errors import provider_failure
from holdfast.models.request_sent import calling_when_sent, trace_sending
from holdfast.runtime.trusted_certificates import trusted_certificates

NO_ENDPOINT: Final = (
    "no model endpoint is set: set ANTHROPIC_API_KEY (or ANTHROPIC_BASE_URL) where the worker or LocalDriver starts, "
    "and start it again"
)
NO_MODEL: Final = (
    "no model is named: set llm.model in the agent's definition, or HOLDFAST_MODEL where the worker or LocalDriver "
    "starts, and start it again"
)

ERROR_STATUS: Final[Mapping[object, int]] = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""The status of each type of error (https://docs.claude.com/en/api/errors): within a stream the type comes alone."""


class Anthropic(Model):
    """Calls Anthropic's Messages API, or another endpoint that speaks it, with the official client and no retries.

    `thinking` is how models think for agents that do not say it: `"adaptive"`, or at most so many tokens. `cache` marks
    the conversation for the provider's cache.
    """

    def __init__(
        self, settings: ProviderSettings | None = None, *, thinking: Thinking = None, cache: bool = True
    ) -> None:
        """Without `settings`, those of the environment count. Raises InvalidInput for unusable ones."""
        settings = settings or ProviderSettings.from_environment(api=ANTHROPIC)
        self.settings = settings = (
            settings if settings.api.model == ANTHROPIC.model else replace(settings, api=ANTHROPIC)
        )
        self._limits = StatedLimits()
        self._thinking: Thinking = thinking
        self._cache = cache
        # a local server needs no key, but the client requires one; it must not fall back to the environment
        key = settings.api_key or ("unused" if settings.base_url else None)
        self._client: AsyncAnthropic | None = None
        if key is not None:
            # the silences within an answer are timed in `receive`
            timeout = Timeout(MODEL_SECONDS_MAX, connect=settings.timeouts.connect_seconds or CONNECT_SECONDS)
            hooks: dict[str, list[Callable[..., Any]]] = {"request": [trace_sending], "response": [refuse_errors]}
            transport = DefaultAsyncHttpxClient(event_hooks=hooks, verify=trusted_certificates())
            self._client = AsyncAnthropic(
                api_key=key,
                base_url=settings.api.without_version(settings.base_url or settings.api.base_url),
                max_retries=0,
                timeout=timeout,
                http_client=transport,
                open_telemetry=False,  # our own spans have the call
                default_headers=settings.headers,
            )

    async def __call__(self, request: ModelRequest) -> InferenceResponse:
        """Return the endpoint's answer; raise ModelFailure as `holdfast.models.provider_errors` lists them."""
        stream = MessageStream(request.listener, streamed=request.llm.stream)
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
            used = stream.usage or NOTHING_USED
            failure = provider_failure(_own(error), self.settings, used)
            if failure is None:
                raise
            raise failure from None  # the cause may hold the request with its key

    async def _answer(self, request: ModelRequest, stream: MessageStream) -> InferenceResponse:
        client = self._client
        if client is None:
            raise InvalidInput(NO_ENDPOINT)
        model = request.llm.model or self.settings.model
        if model is None:
            raise InvalidInput(NO_MODEL)
        limit = request.max_output_tokens or OUTPUT_TOKENS
        bound = self._limits.first(model, limit, lambda: input_bound(request))

        async def ask(output_max: int | None) -> InferenceResponse:
            return await self._asked(client, model, request, output_max or limit, stream)

        response = await self._limits.answer(model, bound, ask)
        if stream.plain:
            part = AnswerPart(response.text, response.reasoning, stream.usage, response.model, response.response_id)
            report(request, part)
        return response

    async def _asked(
        self, client: AsyncAnthropic, model: str, request: ModelRequest, output_max: int, stream: MessageStream
    ) -> InferenceResponse:
        route = self.settings.route
        body = request_body(request, output_max=output_max, route=route, thinking=self._thinking, cache=self._cache)
        sent = client.messages.with_streaming_response.create(
            model=model,
            max_tokens=output_max,
            messages=(),  # in the extra body, because the client walks every message passed as an argument
            extra_body=body,
            extra_headers={"Accept-Encoding": "identity"},  # so that received bytes are counted: no bombs
        )
        try:
            await received(sent, stream, streamed=request.llm.stream, timeouts=self.settings.timeouts)
        except APIConnectionError as error:
            raise _own(error) from error.__cause__
        # our own reading: the client's types are not validated
        return read_message(stream.end(), route=route, input_max=lambda: input_bound(request), output_max=output_max)

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


def _own(error: Exception) -> Exception:
    """Return the error that our hooks raised, where the client has wrapped it; one in an answer with its status."""
    if isinstance(error, APIConnectionError) and isinstance(error.__cause__, ErrorStatus):
        return error.__cause__
    if isinstance(error, ErrorInAnswer):
        fields = fields_of(error.error)
        status = ERROR_STATUS.get(fields.get("type"))
        return error if status is None else ErrorInAnswer({**fields, "status": status})
    return error
