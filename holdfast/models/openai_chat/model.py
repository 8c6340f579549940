"""`OpenAIChat`: an OpenAI-compatible endpoint as a `Model`. Translates requests and answers; retries nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, Final, assert_never

from openai import AsyncOpenAI, DefaultAsyncHttpxClient, Timeout, omit

from holdfast.core.agent.definition import LLM
from holdfast.core.agent.model import AnswerPart, Model, ModelRequest
from holdfast.core.agent.policies import JsonObjectFormat, JsonSchemaFormat, ResponseFormat, TextFormat
from holdfast.core.agent.usage_estimates import input_bound
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.retries import MODEL_SECONDS_MAX
from holdfast.core.base.usage import NOTHING_USED
from holdfast.core.conversation.messages import Content, ImagePart, Message, Part, StoredImagePart, TextPart, ToolCall
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.models.endpoint import ProviderSettings
from holdfast.models.openai_chat.chat_completion import read_answer
from holdfast.models.openai_chat.chat_items import wire_messages
from holdfast.models.openai_chat.chat_stream import StreamedAnswer
from holdfast.models.openai_chat.http_errors import ErrorStatus, refuse_errors
from holdfast.models.openai_chat.provider_errors import is_broken_connection, provider_failure
from holdfast.models.openai_chat.refused_calls import refused_call
from holdfast.models.openai_chat.request_options import wire_options, wire_tools
from holdfast.models.openai_chat.request_sent import calling_when_sent, trace_sending
from holdfast.models.options import options_problem
from holdfast.models.output_limits import LOWERED_MAX, StatedLimits
from holdfast.runtime.trusted_certificates import trusted_certificates

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

NO_ENDPOINT: Final = (
    "no model endpoint is set: set OPENAI_API_KEY (or OPENAI_BASE_URL) where the worker or LocalDriver starts, "
    "and start it again"
)
NO_MODEL: Final = (
    "no model is named: set llm.model in the agent's definition, or HOLDFAST_MODEL where the worker or LocalDriver "
    "starts, and start it again"
)

JSON_INSTRUCTION: Final = "Answer with a JSON object."
"""Appended to the system prompt if no message mentions JSON: OpenAI refuses `json_object` without that word."""


LIMIT_STATUS: Final = frozenset({400, 413, 416, 422})
"""With which statuses endpoints refuse a request whose answer may be too long."""

STREAMED: Final = {"stream": True, "stream_options": {"include_usage": True}}


class OpenAIChat(Model):
    """Calls an OpenAI-compatible endpoint by chat completions, with the official client and its retries off."""

    def __init__(self, settings: ProviderSettings | None = None) -> None:
        """Without `settings`, those of the environment count. Raises InvalidInput for unusable ones."""
        self.settings = settings = settings or ProviderSettings.from_environment()
        self._limits = StatedLimits()
        # Local servers need no key, but the client requires one; it must not fall back to the environment.
        key = settings.api_key or ("unused" if settings.base_url else None)
        self._client: AsyncOpenAI | None = None
        if key is not None:
            # the silences within an answer are timed in `_receive`
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
        """Return the endpoint's answer; raise ModelFailure as `provider_errors` in this package lists them."""
        stream = StreamedAnswer(request.listener, streamed=request.llm.stream, think_tags=self.settings.think_tags)
        # until the transport sends it a failure is free: no name, no connection, no TLS
        _report(request, AnswerPart(sent=False))
        try:
            with calling_when_sent(lambda: _report(request, AnswerPart(unseen=not request.llm.stream))):
                return await self._answer(request, stream)
        except asyncio.CancelledError:
            _report_rest(request, stream)
            raise
        except Exception as error:
            _report_rest(request, stream)
            if (answer := refused_call(error, request, self.settings, stream.usage)) is not None:
                return answer
            # usage that came before the break is reported, and better than a bound
            failure = provider_failure(error, self.settings, stream.usage or NOTHING_USED)
            if failure is None:
                raise
            raise failure from None  # the cause may hold the request with its key

    async def _answer(self, request: ModelRequest, stream: StreamedAnswer) -> InferenceResponse:
        """Return the answer; a refusal that says how long one may be is followed, as it costs nothing."""
        if self._client is None:
            raise InvalidInput(NO_ENDPOINT)
        model = request.llm.model or self.settings.model
        if model is None:
            raise InvalidInput(NO_MODEL)
        bound = self._limits.first(model, request.max_output_tokens, lambda: input_bound(request))
        for _ in range(LOWERED_MAX):
            try:
                return await self._asked(self._client, model, request, bound, stream)
            except ErrorStatus as error:
                lower = self._limits.lowered(model, bound, error.words) if error.status in LIMIT_STATUS else None
                if lower is None:
                    raise
                bound = lower
        return await self._asked(self._client, model, request, bound, stream)

    async def _asked(
        self, client: AsyncOpenAI, model: str, request: ModelRequest, output_max: int | None, stream: StreamedAnswer
    ) -> InferenceResponse:
        route: str = getattr(self.settings, "route", "")
        messages, tools = _wire_messages(request, route), wire_tools(request)
        form, streamed = _wire_format(request.response_format), request.llm.stream
        ends_at = asyncio.get_running_loop().time() + MODEL_SECONDS_MAX
        # the client's read timeout counts between bytes, so keep-alives would prolong it for ever
        timeouts = self.settings.timeouts
        first = timeouts.first_byte_seconds or FIRST_BYTE_SECONDS
        limit = asyncio.timeout(first if streamed else MODEL_SECONDS_MAX)
        try:
            async with (
                limit,
                client.chat.completions.with_streaming_response.create(
                    model=model,
                    # in the extra body, because the client walks every message passed as an argument: 0.2 ms each
                    messages=(),
                    extra_body={
                        **wire_options(request),
                        "messages": messages,
                        **({"tools": tools} if tools else {}),
                        **({"response_format": form} if form else {}),
                        **(STREAMED if streamed else {}),
                    },
                    extra_headers={"Accept-Encoding": "identity"},  # so that received bytes are counted: no bombs
                    temperature=omit if request.llm.temperature is None else request.llm.temperature,
                    # `max_tokens` is refused by reasoning models; its successor counts hidden reasoning, too
                    max_completion_tokens=output_max or omit,
                ) as http_response,
            ):
                silence = timeouts.silence_seconds or SILENCE_SECONDS
                await _receive(http_response.iter_bytes(), stream, limit, ends_at, silence)
        except Exception as error:
            if not (stream.complete and is_broken_connection(error)):  # else at most the usage is missing
                raise
        # our own reading: the client's types are not validated
        response = read_answer(
            stream.end(),
            input_max=lambda: input_bound(request),
            output_max=output_max,
            route=route,
            think_tags=self.settings.think_tags,
        )
        if stream.plain and request.listener is not None:
            request.listener(
                AnswerPart(response.text, response.reasoning, stream.usage, response.model, response.response_id)
            )
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


def _report(request: ModelRequest, part: AnswerPart) -> None:
    if request.listener is not None:
        request.listener(part)


def _report_rest(request: ModelRequest, stream: StreamedAnswer) -> None:
    """Report the bytes of an interrupted answer that were not reported yet."""
    if not stream.plain and stream.pending_bytes:
        _report(request, AnswerPart(call_bytes=stream.pending_bytes))


async def _receive(
    chunks: AsyncIterator[bytes], stream: StreamedAnswer, limit: asyncio.Timeout, until: float, silence: float
) -> None:
    """Feed `stream` the chunks; each of them extends `limit`, though never beyond `until`."""
    now = asyncio.get_running_loop().time
    async for chunk in chunks:
        stream.feed(chunk)
        if stream.done:
            # a server may keep the connection open behind [DONE]
            break
        # the usage comes behind the finish reason or never: not worth a silence of minutes
        longest = MODEL_SECONDS_MAX if stream.plain else TRAILER_SECONDS if stream.complete else silence
        limit.reschedule(min(until, now() + longest))
    if stream.done:
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                async for _ in chunks:
                    pass


def _wire_messages(request: ModelRequest, route: str) -> list[dict[str, Any]]:
    prompt = request.system_prompt
    messages = wire_messages(((message, _wire_message(message)) for message in request.messages), route)
    if isinstance(request.response_format, JsonObjectFormat):
        texts = (prompt, *(message.text for message in request.messages))
        if not any("json" in text.lower() for text in texts):
            prompt = f"{prompt}\n\n{JSON_INSTRUCTION}".lstrip()
    return [{"role": "system", "content": prompt}, *messages] if prompt else messages


def _wire_message(message: Message) -> dict[str, Any]:
    wire: dict[str, Any] = {"role": message.role, "content": _wire_content(message.content)}
    if message.tool_call_id is not None:
        wire["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        wire["tool_calls"] = [_wire_call(call) for call in message.tool_calls]
        # an empty text beside calls is refused by some servers, null by none
        wire["content"] = wire["content"] or None
    return wire


def _wire_content(content: Content) -> str | list[dict[str, Any]]:
    return content if isinstance(content, str) else [_wire_part(part) for part in content]


def _wire_part(part: Part) -> dict[str, Any]:
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case ImagePart():
            image = {"url": part.url} if part.detail is None else {"url": part.url, "detail": part.detail}
            return {"type": "image_url", "image_url": image}
        case StoredImagePart():  # whoever calls a model without a store
            return {"type": "text", "text": part.attachment.line}
        case _:
            assert_never(part)


def _wire_call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.sent_arguments}}


def _wire_format(form: ResponseFormat) -> dict[str, Any]:
    """Return the wire's `response_format`; nothing for a text answer, which some servers have no name for."""
    match form:
        case TextFormat():
            return {}
        case JsonObjectFormat():
            return {"type": "json_object"}
        case JsonSchemaFormat():
            schema = {"name": form.name, "schema": dict(form.json_schema), "strict": form.strict}
            return {"type": "json_schema", "json_schema": schema}
