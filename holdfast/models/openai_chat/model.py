"""`OpenAIChat`: an OpenAI-compatible endpoint as a `Model`. Translates requests and answers; retries nothing."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from itertools import chain
from typing import Any, Final

from openai import AsyncOpenAI, omit

from holdfast.core.agent.model import ModelRequest
from holdfast.core.agent.policies import JsonObjectFormat, JsonSchemaFormat, ResponseFormat, TextFormat
from holdfast.core.agent.usage_estimates import input_bound
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.messages import Message, ToolCall
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.models.answer_transfer import HttpBody
from holdfast.models.http_model import HEADERS
from holdfast.models.openai_chat.chat_completion import read_answer
from holdfast.models.openai_chat.chat_items import wire_messages
from holdfast.models.openai_chat.chat_stream import StreamedAnswer
from holdfast.models.openai_chat.content_parts import wire_content
from holdfast.models.openai_chat.refused_calls import refused_call
from holdfast.models.openai_chat.request_options import wire_options, wire_tools
from holdfast.models.openai_endpoint import JSON_INSTRUCTION, OpenAIEndpoint, mention_json

STREAMED: Final = {"stream": True, "stream_options": {"include_usage": True}}


class OpenAIChat(OpenAIEndpoint):
    """Calls an OpenAI-compatible endpoint by chat completions, with the official client and its retries off."""

    def _stream(self, request: ModelRequest) -> StreamedAnswer:
        return StreamedAnswer(request.listener, streamed=request.llm.stream, think_tags=self.settings.think_tags)

    def _sent(
        self, client: AsyncOpenAI, model: str, request: ModelRequest, output_max: int | None
    ) -> AbstractAsyncContextManager[HttpBody]:
        messages, tools = _wire_messages(request, self.settings.route), wire_tools(request)
        form = _wire_format(request.response_format)
        return client.chat.completions.with_streaming_response.create(
            model=model,
            # in the extra body, because the client walks every message passed as an argument: 0.2 ms each
            messages=(),
            extra_body={
                **wire_options(request),
                "messages": messages,
                **({"tools": tools} if tools else {}),
                **({"response_format": form} if form else {}),
                **(STREAMED if request.llm.stream else {}),
            },
            extra_headers=HEADERS,
            temperature=omit if request.llm.temperature is None else request.llm.temperature,
            # `max_tokens` is refused by reasoning models; its successor counts hidden reasoning, too
            max_completion_tokens=output_max or omit,
        )

    def _read(self, answer: object, request: ModelRequest, output_max: int | None) -> InferenceResponse:
        return read_answer(
            answer,
            input_max=lambda: input_bound(request),
            output_max=output_max,
            route=self.settings.route,
            think_tags=self.settings.think_tags,
        )

    def _answer_in(self, error: Exception, request: ModelRequest, reported: Usage | None) -> InferenceResponse | None:
        return refused_call(error, request, self.settings, reported)


def _wire_messages(request: ModelRequest, route: str) -> list[dict[str, Any]]:
    prompt = request.system_prompt
    messages = wire_messages(((message, _wire_message(message)) for message in request.messages), route)
    texts = chain((prompt,), (message.text for message in request.messages))
    if isinstance(request.response_format, JsonObjectFormat) and not mention_json(texts):
        prompt = f"{prompt}\n\n{JSON_INSTRUCTION}".lstrip()
    return [{"role": "system", "content": prompt}, *messages] if prompt else messages


def _wire_message(message: Message) -> dict[str, Any]:
    wire: dict[str, Any] = {"role": message.role, "content": wire_content(message.content)}
    if message.tool_call_id is not None:
        wire["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        wire["tool_calls"] = [_wire_call(call) for call in message.tool_calls]
        # an empty text beside calls is refused by some servers, null by none
        wire["content"] = wire["content"] or None
    return wire


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
