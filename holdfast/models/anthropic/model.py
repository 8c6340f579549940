"""`Anthropic`: Anthropic's Messages API as a `Model`. Translates requests and answers; retries nothing."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Final

from anthropic import APIConnectionError, AsyncAnthropic, DefaultAsyncHttpxClient, Timeout

from holdfast.core.agent.model import ModelRequest
from holdfast.core.agent.usage_estimates import input_bound
from holdfast.core.base.bounds import OUTPUT_TOKENS_MAX
from holdfast.core.base.retries import MODEL_SECONDS_MAX
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.models.answer_errors import ErrorInAnswer
from holdfast.models.answer_transfer import CONNECT_SECONDS, HttpBody
from holdfast.models.anthropic.message import read_message
from holdfast.models.anthropic.message_stream import MessageStream
from holdfast.models.anthropic.request_body import Thinking, request_body
from holdfast.models.endpoint import ProviderSettings
from holdfast.models.event_stream import fields_of
from holdfast.models.http_errors import REDIRECTS_MAX, ErrorStatus, RedirectedAway
from holdfast.models.http_model import HEADERS, HttpModel, event_hooks
from holdfast.models.lenient_values import text_of
from holdfast.models.model_apis import ANTHROPIC
from holdfast.runtime.trusted_certificates import trusted_certificates

ERROR_STATUS: Final[Mapping[str, int]] = {
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


class Anthropic(HttpModel[AsyncAnthropic]):
    """Calls Anthropic's Messages API, or another endpoint that speaks it, with the official client and no retries.

    `thinking` is how models think for agents that do not say it: `"adaptive"`, or at most so many tokens. `cache` marks
    the conversation for the provider's cache.
    """

    def __init__(
        self, settings: ProviderSettings | None = None, *, thinking: Thinking = None, cache: bool = True
    ) -> None:
        """Without `settings`, those of the environment count. Raises InvalidInput for unusable ones."""
        settings = settings or ProviderSettings.from_environment(api=ANTHROPIC)
        self._thinking: Thinking = thinking
        self._cache = cache
        super().__init__(settings if settings.api.model == ANTHROPIC.model else replace(settings, api=ANTHROPIC))

    def _made_client(self, key: str) -> AsyncAnthropic:
        settings = self.settings
        base_url = settings.api.without_version(settings.base_url or settings.api.base_url)
        return AsyncAnthropic(
            api_key=key,
            base_url=base_url,
            max_retries=0,
            # the silences within an answer are timed in `answer_transfer`
            timeout=Timeout(MODEL_SECONDS_MAX, connect=settings.timeouts.connect_seconds or CONNECT_SECONDS),
            http_client=DefaultAsyncHttpxClient(
                event_hooks=event_hooks(base_url), verify=trusted_certificates(), max_redirects=REDIRECTS_MAX
            ),
            open_telemetry=False,  # our own spans have the call
            default_headers=settings.headers,
        )

    def _stream(self, request: ModelRequest) -> MessageStream:
        return MessageStream(request.listener, streamed=request.llm.stream)

    def _output_max(self, request: ModelRequest) -> int:
        return request.max_output_tokens or OUTPUT_TOKENS_MAX

    def _sent(
        self, client: AsyncAnthropic, model: str, request: ModelRequest, output_max: int | None
    ) -> AbstractAsyncContextManager[HttpBody]:
        most, route = output_max or OUTPUT_TOKENS_MAX, self.settings.route
        body = request_body(request, output_max=most, route=route, thinking=self._thinking, cache=self._cache)
        return client.messages.with_streaming_response.create(
            model=model,
            max_tokens=most,
            messages=(),  # in the extra body, because the client walks every message passed as an argument
            extra_body=body,
            extra_headers=HEADERS,
        )

    def _read(self, answer: object, request: ModelRequest, output_max: int | None) -> InferenceResponse:
        route, most = self.settings.route, output_max or OUTPUT_TOKENS_MAX
        return read_message(answer, route=route, input_max=lambda: input_bound(request), output_max=most)

    def _unwrapped(self, error: Exception) -> Exception:
        return _own(error)


def _own(error: Exception) -> Exception:
    """Return the error that our hooks raised, where the client has wrapped it; one in an answer with its status."""
    if isinstance(error, APIConnectionError) and isinstance(error.__cause__, ErrorStatus | RedirectedAway):
        return error.__cause__
    if isinstance(error, ErrorInAnswer):
        fields = fields_of(error.error)
        status = ERROR_STATUS.get(text_of(fields.get("type")))
        return error if status is None else ErrorInAnswer({**fields, "status": status})
    return error
