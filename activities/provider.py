"""The OpenAI-compatible endpoint as a `Model`: our terms in, the wire's terms out, and back. Retries nothing."""

from __future__ import annotations

from typing import Any, Final, assert_never

from openai import AsyncOpenAI, Timeout, omit
from pydantic_core import to_json

from activities.answers import read_answer, read_body
from activities.endpoint import ProviderSettings
from activities.failures import provider_failure
from holdfast.core.errors import InvalidInput
from holdfast.core.inference import ModelRequest
from holdfast.core.messages import Content, ImagePart, Message, Part, TextPart, ToolCall
from holdfast.core.policies import JsonObjectFormat, JsonSchemaFormat, ResponseFormat, TextFormat
from holdfast.core.retries import MODEL_SECONDS_MAX
from holdfast.core.steps import InferenceResponse
from holdfast.core.tools import ToolSchema

__all__ = ["OpenAIModel", "ProviderSettings"]

CONNECT_SECONDS: Final = 10.0
READ_SECONDS: Final = MODEL_SECONDS_MAX
"""The longest silence of the endpoint: as long as the call may take, since it does not stream."""

NO_ENDPOINT: Final = "the worker knows no model endpoint: set OPENAI_API_KEY (or OPENAI_BASE_URL) and restart it"
NO_MODEL: Final = "no model is named: set llm.model in the agent's definition, or HOLDFAST_MODEL and restart the worker"

JSON_WANTED: Final = "Answer with a JSON object."
"""Ends the system prompt where nothing says it: OpenAI refuses `json_object` in a conversation without that word."""


class OpenAIModel:
    """Asks an OpenAI-compatible endpoint by chat completions, with the real client and its own retries off."""

    def __init__(self, settings: ProviderSettings) -> None:
        self.settings = settings
        # Local servers want no key, but the client wants one to be given; it must not fall back to the environment.
        key = settings.api_key or ("unused" if settings.base_url else None)
        self._client: AsyncOpenAI | None = None
        if key is not None:
            timeout = Timeout(READ_SECONDS, connect=CONNECT_SECONDS)
            self._client = AsyncOpenAI(api_key=key, base_url=settings.base_url, max_retries=0, timeout=timeout)

    async def __call__(self, request: ModelRequest) -> InferenceResponse:
        """Return the endpoint's answer; raise ModelFailure as `activities.failures` lists them."""
        try:
            return await self._answer(request)
        except Exception as error:
            failure = provider_failure(error, self.settings)
            if failure is None:
                raise
            raise failure from None  # the cause may hold the request with its key

    async def _answer(self, request: ModelRequest) -> InferenceResponse:
        if self._client is None:
            raise InvalidInput(NO_ENDPOINT)
        model = request.llm.model or self.settings.model
        if model is None:
            raise InvalidInput(NO_MODEL)
        messages, tools = _wire_messages(request), [_wire_tool(tool) for tool in request.tools]
        form = _wire_format(request.response_format)
        asked = self._client.chat.completions.with_streaming_response.create(
            model=model,
            # as extra body, because the client walks every message it is given as an argument: 0.2 ms for each
            messages=(),
            extra_body={
                "messages": messages,
                **({"tools": tools} if tools else {}),
                **({"response_format": form} if form else {}),
            },
            extra_headers={"Accept-Encoding": "identity"},  # what is counted is what comes: no bombs
            temperature=omit if request.llm.temperature is None else request.llm.temperature,
            max_completion_tokens=request.max_output_tokens or omit,
        )
        async with asked as answer:
            body = await read_body(answer.iter_bytes())
        # our own reading: the client's types are not validated
        return read_answer(body, sent_bytes=lambda: len(to_json([messages, tools, form])))

    @property
    def missing(self) -> str:
        """What runs will fail for, said before any of them does; empty when nothing is missing."""
        if self._client is None:
            return NO_ENDPOINT
        return "" if self.settings.model else f"{NO_MODEL} (agents that name one are fine)"

    async def close(self) -> None:
        """Close the connections."""
        if self._client:
            await self._client.close()


def _wire_messages(request: ModelRequest) -> list[dict[str, Any]]:
    prompt, said = request.system_prompt, [_wire_message(message) for message in request.messages]
    if isinstance(request.response_format, JsonObjectFormat):
        spoken = (prompt, *(each["content"] or "" for each in said))
        if not any("json" in text.lower() for text in spoken):
            prompt = f"{prompt}\n\n{JSON_WANTED}".lstrip()
    return [{"role": "system", "content": prompt}, *said] if prompt else said


def _wire_message(message: Message) -> dict[str, Any]:
    wire: dict[str, Any] = {"role": message.role, "content": _wire_content(message.content)}
    if message.tool_call_id is not None:
        wire["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        wire["tool_calls"] = [_wire_call(call) for call in message.tool_calls]
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
        case _:
            assert_never(part)


def _wire_call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments_text}}


def _wire_tool(tool: ToolSchema) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)},
    }


def _wire_format(wanted: ResponseFormat) -> dict[str, Any]:
    """Return the wire's `response_format`; nothing for an answer in words, which some servers know no word for."""
    match wanted:
        case TextFormat():
            return {}
        case JsonObjectFormat():
            return {"type": "json_object"}
        case JsonSchemaFormat():
            schema = {"name": wanted.name, "schema": dict(wanted.json_schema), "strict": wanted.strict}
            return {"type": "json_schema", "json_schema": schema}
