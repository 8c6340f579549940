"""The OpenAI-compatible endpoint as a `Model`: our terms in, the wire's terms out, and back. Retries nothing."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from openai import AsyncOpenAI, Timeout, omit
from openai.types.chat import ChatCompletion, ChatCompletionMessage

from holdfast.core.errors import InvalidInput
from holdfast.core.inference import ModelRequest
from holdfast.core.limits import ARGUMENTS_BYTES_MAX, CALLS_KEPT_MAX, REASONING_CHARS_MAX, RESPONSE_BYTES_MAX
from holdfast.core.messages import Message, ToolCall
from holdfast.core.steps import InferenceResponse
from holdfast.core.texts import clamped, clamped_bytes
from holdfast.core.tools import ToolSchema
from holdfast.core.usage import Usage

CONNECT_SECONDS: Final = 10.0
READ_SECONDS: Final = 300.0
"""The longest silence of the endpoint; the whole call is bounded by its activity's timeout."""

TOKENS_MAX: Final = 10**12
"""A reported token count above this is a fault of the endpoint and is cut to it."""


class UnusableAnswer(Exception):
    """The endpoint said 200 and something that is not a chat completion."""


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """Where the model is and how to get in: the worker's own environment, never part of a run's data."""

    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    model: str | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> ProviderSettings:
        """Read OPENAI_BASE_URL, OPENAI_API_KEY or OPENAI_API_KEY_FILE, and HOLDFAST_MODEL."""
        key = environment.get("OPENAI_API_KEY") or None
        file = environment.get("OPENAI_API_KEY_FILE")
        if key is None and file:
            try:
                key = Path(file).read_text(encoding="utf-8").strip() or None
            except OSError as error:
                raise InvalidInput(f"OPENAI_API_KEY_FILE {file!r} cannot be read: {error.strerror}") from None
        return cls(
            base_url=environment.get("OPENAI_BASE_URL") or None,
            api_key=key,
            model=environment.get("HOLDFAST_MODEL") or None,
        )

    @property
    def endpoint(self) -> str:
        """The address as it may be shown in an error."""
        return self.base_url or "the OpenAI API"


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
        """Return the endpoint's answer.

        Raises InvalidInput when key or model are missing, the client's own errors, or UnusableAnswer.
        """
        if self._client is None:
            raise InvalidInput(
                "the worker knows no model endpoint: set OPENAI_API_KEY (or OPENAI_BASE_URL) and restart it"
            )
        model = request.llm.model or self.settings.model
        if model is None:
            raise InvalidInput("no model is named: set llm.model in the agent's definition or HOLDFAST_MODEL")
        answer = await self._client.chat.completions.create(
            model=model,
            messages=cast("Any", _wire_messages(request)),
            tools=cast("Any", [_wire_tool(tool) for tool in request.tools]) or omit,
            temperature=omit if request.llm.temperature is None else request.llm.temperature,
            max_completion_tokens=request.max_output_tokens or omit,
        )
        return _read(cast("object", answer), request)

    async def close(self) -> None:
        """Close the connections."""
        if self._client:
            await self._client.close()


def _wire_messages(request: ModelRequest) -> list[dict[str, Any]]:
    prompt = [{"role": "system", "content": request.system_prompt}] if request.system_prompt else []
    return [*prompt, *(_wire_message(message) for message in request.messages)]


def _wire_message(message: Message) -> dict[str, Any]:
    wire: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_call_id is not None:
        wire["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        wire["tool_calls"] = [_wire_call(call) for call in message.tool_calls]
        wire["content"] = message.content or None
    return wire


def _wire_call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments_text}}


def _wire_tool(tool: ToolSchema) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)},
    }


def _read(answer: object, request: ModelRequest) -> InferenceResponse:
    """Return `answer` in our terms; the client does not validate, so nothing is taken on trust."""
    if not isinstance(answer, ChatCompletion) or not isinstance(cast("object", answer.choices), list):
        raise UnusableAnswer("the endpoint did not answer with a chat completion; check OPENAI_BASE_URL")
    if not answer.choices:
        raise UnusableAnswer("the endpoint answered without any choice")
    choice = answer.choices[0]
    said = cast("ChatCompletionMessage | None", choice.message)
    if said is None:
        raise UnusableAnswer("the endpoint answered with a choice without message")
    reasoning: object = getattr(said, "reasoning_content", None) or getattr(said, "reasoning", None) or ""
    text = cast("object", said.content)
    response = InferenceResponse(
        text=clamped_bytes(text, RESPONSE_BYTES_MAX) if isinstance(text, str) else "",
        reasoning=clamped(reasoning, REASONING_CHARS_MAX) if isinstance(reasoning, str) else "",
        tool_calls=tuple(_read_calls(cast("Iterable[Any]", said.tool_calls or ()))),
        finish_reason=str(cast("object", choice.finish_reason) or "")[:64],
        model=clamped(str(cast("object", answer.model) or ""), 200),
        response_id=clamped(str(cast("object", answer.id) or ""), 200),
    )
    return response.model_copy(update={"usage": _read_usage(answer, response, request)})


def _read_calls(calls: Iterable[Any]) -> Iterable[ToolCall]:
    """Read the calls in order; once their arguments together pass the limit, the rest is marked as not usable."""
    used = 0
    for index, call in enumerate(calls):
        if index >= CALLS_KEPT_MAX:
            return
        function = getattr(call, "function", None)
        name = str(getattr(function, "name", None) or "")
        arguments = str(getattr(function, "arguments", None) or "")
        used += len(arguments.encode("utf-8", "replace"))
        read = ToolCall.parse(
            str(getattr(call, "id", None) or ""), name, arguments if used <= ARGUMENTS_BYTES_MAX else ""
        )
        if used > ARGUMENTS_BYTES_MAX:
            text = f"the arguments of this answer's calls pass {ARGUMENTS_BYTES_MAX:,} bytes"
            read = read.model_copy(update={"malformed": text})
        yield read


def _read_usage(answer: ChatCompletion, response: InferenceResponse, request: ModelRequest) -> Usage:
    """Return the reported usage; where it is missing, what the call can have used at the most.

    A token is at least one byte of text, so the bytes sent and received bound it from above (SPEC section 5: a
    budget must hold even with an endpoint that reports nothing).
    """
    usage = answer.usage
    sent = usage and _count(usage.prompt_tokens)
    received = usage and _count(usage.completion_tokens)
    if sent is None:
        sent = sum(len(str(part).encode("utf-8", "replace")) for part in (*_wire_messages(request), *request.tools))
    if received is None:
        received = len(response.model_dump_json(include={"text", "reasoning", "tool_calls"}).encode())
    return Usage(input_tokens=sent, output_tokens=received)


def _count(value: object) -> int | None:
    if isinstance(value, int | float) and value >= 0:
        return int(min(value, TOKENS_MAX))
    return None
