"""`OpenAIResponses`: an endpoint of OpenAI's Responses API as a `Model`. Keeps no conversation at the provider."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any, Final, cast

from openai import AsyncOpenAI, omit
from openai.types.responses import ResponseIncludable

from holdfast.core.agent.definition import LLM
from holdfast.core.agent.model import BackgroundAnswer, ModelRequest
from holdfast.core.agent.policies import JsonObjectFormat, JsonSchemaFormat, ResponseFormat, TextFormat
from holdfast.core.agent.usage_estimates import input_bound
from holdfast.core.base.errors import ModelFailure
from holdfast.core.base.model_options import named_tool
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.core.tools.tool_traits import ToolSchema
from holdfast.models.answer_transfer import HttpBody
from holdfast.models.endpoint import ProviderSettings
from holdfast.models.event_stream import AnswerStream, fields_of
from holdfast.models.http_errors import ErrorStatus
from holdfast.models.http_model import HEADERS
from holdfast.models.model_apis import OPENAI_RESPONSES
from holdfast.models.openai_endpoint import JSON_INSTRUCTION, OpenAIEndpoint, mention_json
from holdfast.models.openai_responses.background_call import BackgroundCall, cancelled
from holdfast.models.openai_responses.response_items import Item, input_items
from holdfast.models.openai_responses.response_object import read_response
from holdfast.models.openai_responses.response_stream import StreamedResponse
from holdfast.models.openai_responses.server_tools import wire_tools
from holdfast.models.provider_errors import provider_failure
from holdfast.models.strict_tools import can_be_strict

ENCRYPTED_REASONING: Final[ResponseIncludable] = "reasoning.encrypted_content"
"""What to include in answers: without it a provider that stores nothing could not go on from its reasoning."""

INCLUDED: Final[list[ResponseIncludable]] = [ENCRYPTED_REASONING]

NO_REASONING: Final = "encrypted content is not supported"
"""In the refusal of a model that does not reason: it is asked again without ENCRYPTED_REASONING."""

MODELS_MAX: Final = 1_000
"""How many models are remembered that do not reason."""


class OpenAIResponses(OpenAIEndpoint):
    """Calls an endpoint by the Responses API, with the official client and its retries off.

    The whole conversation goes out with each request, and nothing is stored at the provider: no `previous_response_id`.
    With `LLM.background` the provider stores answers, and only so can they be resumed.
    """

    def __init__(self, settings: ProviderSettings | None = None) -> None:
        """Without `settings`, those of the environment count. Raises InvalidInput for unusable ones."""
        settings = settings or ProviderSettings.from_environment(api=OPENAI_RESPONSES)
        is_own = settings.api.model == OPENAI_RESPONSES.model
        super().__init__(settings if is_own else replace(settings, api=OPENAI_RESPONSES))
        self._not_reasoning: set[str] = set()

    async def _answer(self, request: ModelRequest, stream: AnswerStream) -> InferenceResponse:
        try:
            return await super()._answer(request, stream)
        except ErrorStatus as error:
            model = self._model_name(request)
            if NO_REASONING not in error.words.lower() or model in self._not_reasoning:
                raise
            if len(self._not_reasoning) < MODELS_MAX:
                self._not_reasoning.add(model)
            # the refusal was free, and came before anything of an answer
            return await super()._answer(request, stream)

    def _stream(self, request: ModelRequest) -> StreamedResponse:
        llm = request.llm
        return StreamedResponse(request.listener, streamed=llm.stream, background=bool(llm.background))

    def _sent(
        self, client: AsyncOpenAI, model: str, request: ModelRequest, output_max: int | None
    ) -> AbstractAsyncContextManager[HttpBody]:
        return client.responses.with_streaming_response.create(
            model=model,
            # in the extra body, because the client walks every item passed as an argument
            input=[],
            extra_body=_body(request, self.settings.route, reasons=model not in self._not_reasoning),
            extra_headers=HEADERS,
            temperature=omit if request.llm.temperature is None else request.llm.temperature,
            max_output_tokens=output_max or omit,
        )

    def _read(self, answer: object, request: ModelRequest, output_max: int | None) -> InferenceResponse:
        route = self.settings.route
        return read_response(answer, input_max=lambda: input_bound(request), output_max=output_max, route=route)

    async def _received(
        self,
        client: AsyncOpenAI,
        request: ModelRequest,
        stream: AnswerStream,
        send: Callable[[], AbstractAsyncContextManager[HttpBody]],
    ) -> object:
        if not request.llm.background or not isinstance(stream, StreamedResponse):
            return await super()._received(client, request, stream, send)
        include = omit if self._model_name(request) in self._not_reasoning else INCLUDED
        return await BackgroundCall(client, request, stream, self.settings.timeouts, include).body(send)

    async def cancel(self, answer: BackgroundAnswer) -> Usage | None:
        """End an answer at the provider; return its usage where that is known. Raises ModelFailure."""
        if self._client is None:
            raise ModelFailure(self._no_endpoint)
        try:
            return await cancelled(self._client, answer.response_id, self.settings.timeouts)
        except Exception as error:
            failure = provider_failure(error, self.settings)
            if failure is None:
                raise
            raise failure from None  # the cause may hold the request with its key

    def _model_name(self, request: ModelRequest) -> str:
        return request.llm.model or self.settings.model or ""


def _body(request: ModelRequest, route: str, *, reasons: bool) -> dict[str, Any]:
    """Return the fields of a request that the client need not look at."""
    items, form = input_items(request.messages, route), _format(request.response_format)
    if isinstance(request.response_format, JsonObjectFormat) and not mention_json(map(_text_of, items)):
        # the word has to stand in the input: `instructions` do not count
        items = [{"role": "system", "content": JSON_INSTRUCTION}, *items]
    llm = request.llm
    tools = [*(_tool(tool, strict=bool(llm.strict)) for tool in request.tools), *wire_tools(llm.server_tools)]
    options = _options(llm, has_tools=bool(tools))
    text = {**options.pop("text", {}), **({"format": form} if form else {})}
    include = options.get("include")
    wanted = cast("list[object]", include) if isinstance(include, list) else []
    included = [*wanted, *([ENCRYPTED_REASONING] if reasons else ())]
    return {
        **options,
        **({"include": included} if included else {}),
        "input": items,
        # the API makes in the background only what it stores
        "store": bool(llm.background),
        **({"background": True} if llm.background else {}),
        **({"instructions": request.system_prompt} if request.system_prompt else {}),
        **({"tools": tools} if tools else {}),
        **({"text": text} if text else {}),
        **({"stream": True} if request.llm.stream else {}),
    }


def _text_of(item: Item) -> str:
    return str(item.get("content", item.get("output", "")))


def _options(llm: LLM, *, has_tools: bool) -> Item:
    """Return the fields of the body that the definition's options set, `extra` among them."""
    options: Item = dict(llm.extra or {})
    options.update((name, getattr(llm, name)) for name in ("top_p", "service_tier") if getattr(llm, name) is not None)
    for field, name, value in (
        ("reasoning", "effort", llm.reasoning_effort),
        ("text", "verbosity", llm.verbosity),
    ):
        if value is not None:
            options[field] = {**fields_of(options.get(field)), name: value}
    if has_tools:  # without tools the API refuses both
        if llm.tool_choice is not None:
            tool = named_tool(llm.tool_choice)
            options["tool_choice"] = llm.tool_choice if tool is None else {"type": "function", "name": tool}
        if llm.parallel_tool_calls is not None:
            options["parallel_tool_calls"] = llm.parallel_tool_calls
    return options


def _tool(tool: ToolSchema, *, strict: bool) -> Item:
    # left out, `strict` counts as true there: schemas that are none of OpenAI's strict ones would be refused
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
        "strict": strict and can_be_strict(tool.parameters),
    }


def _format(form: ResponseFormat) -> Item:
    """Return the API's `text.format`; nothing for a text answer."""
    match form:
        case TextFormat():
            return {}
        case JsonObjectFormat():
            return {"type": "json_object"}
        case JsonSchemaFormat():
            schema = dict(form.json_schema)
            return {"type": "json_schema", "name": form.name, "schema": schema, "strict": form.strict}
