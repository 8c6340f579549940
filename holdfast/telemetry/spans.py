"""The spans of activities, by OpenTelemetry's conventions for generative AI: one per attempt of a call.

A span always carries a call's names and facts. It carries content only when content capture is on. It never carries an
error's text, which can quote anything.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from pydantic_core import to_json
from temporalio import activity

from holdfast.core.agent.model import ModelRequest
from holdfast.core.base.bounds import SPAN_TEXT_CHARS_MAX
from holdfast.core.base.errors import ModelFailure
from holdfast.core.base.safe_text import clamped
from holdfast.core.conversation.messages import Message
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.models.endpoint import ModelServer

SPAN_MESSAGES_MAX: Final = 50
"""The most messages, counted from the latest, in a model call's span when content capture is on."""

SCOPE: Final = "holdfast"
OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
AGENT_NAME: Final = "gen_ai.agent.name"
CONVERSATION_ID: Final = "gen_ai.conversation.id"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
ERROR_TYPE: Final = "error.type"
EXECUTION_ID: Final = "holdfast.execution.id"

CALL_STATE: Final = "holdfast"
"""The trace state entry that carries a tool call's id."""

STEP: Final = re.compile(r"step-([0-9]+)-")


class Spans:
    """Creates the spans of this worker's activities."""

    def __init__(self, *, content: bool) -> None:
        self._content = content

    @contextmanager
    def model_call(self, request: ModelRequest, model: str, server: ModelServer | None) -> Generator[ModelSpan]:
        """Create a span around one request to a model; `server` is its endpoint, if it has one."""
        facts: dict[str, Any] = {
            OPERATION: "chat",
            "gen_ai.request.model": model,
        }
        optional = {
            PROVIDER: server.api if server else None,
            "server.address": server.address if server else None,
            "server.port": server.port if server else None,
            "gen_ai.request.max_tokens": request.max_output_tokens,
            "gen_ai.request.temperature": request.llm.temperature,
            "gen_ai.request.top_p": request.llm.top_p,
            "gen_ai.request.seed": request.llm.seed,
        }
        facts |= {name: value for name, value in optional.items() if value is not None}
        with _span(f"chat {model}", SpanKind.CLIENT, facts) as span:
            if self._content:
                span.set_attributes(_request_attributes(request))
            yield ModelSpan(span, content=self._content)

    @contextmanager
    def tool_call(self, tool: str, arguments: Mapping[str, Any]) -> Generator[ToolSpan]:
        """Create a span around one attempt of a tool call."""
        facts: dict[str, Any] = {OPERATION: "execute_tool", TOOL_NAME: tool, "gen_ai.tool.type": "function"}
        call_id = trace.get_current_span().get_span_context().trace_state.get(CALL_STATE)
        if call_id:
            facts[TOOL_CALL_ID] = call_id
        with _span(f"execute_tool {tool}", SpanKind.INTERNAL, facts) as span:
            if self._content:
                span.set_attribute("gen_ai.tool.call.arguments", _json(arguments))
            yield ToolSpan(span, content=self._content)


class ModelSpan:
    """The span of a running model call."""

    def __init__(self, span: Span, *, content: bool) -> None:
        self._span = span
        self._content = content

    def answered(self, response: InferenceResponse) -> None:
        """Record the response."""
        self._span.set_attributes(
            {
                "gen_ai.response.model": response.model,
                "gen_ai.response.id": response.response_id,
                "gen_ai.response.finish_reasons": [response.finish_reason],
                "gen_ai.usage.input_tokens": response.usage.input_tokens,
                "gen_ai.usage.output_tokens": response.usage.output_tokens,
            }
        )
        if self._content:
            answer = Message(role="assistant", content=response.text, tool_calls=response.tool_calls)
            message = {**_message(answer), "finish_reason": response.finish_reason}
            self._span.set_attribute("gen_ai.output.messages", _json([message]))


class ToolSpan:
    """The span of a running tool call."""

    def __init__(self, span: Span, *, content: bool) -> None:
        self._span = span
        self._content = content

    def answered(self, text: str) -> None:
        """Record the result."""
        if self._content:
            self._span.set_attribute("gen_ai.tool.call.result", clamped(text, SPAN_TEXT_CHARS_MAX))


@contextmanager
def _span(name: str, kind: SpanKind, facts: dict[str, Any]) -> Generator[Span]:
    tracer = trace.get_tracer(SCOPE)
    attributes = {**facts, **_place()}
    with tracer.start_as_current_span(
        name, kind=kind, attributes=attributes, record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            yield span
        except asyncio.CancelledError:
            span.set_attribute("holdfast.cancelled", True)  # noqa: FBT003  # positional only
            raise
        except Exception as error:
            span.set_attribute(ERROR_TYPE, error.kind if isinstance(error, ModelFailure) else type(error).__name__)
            span.set_status(Status(StatusCode.ERROR))
            raise


def _place() -> dict[str, Any]:
    """Return the attributes that locate this attempt in its run."""
    info = activity.info()
    step = STEP.match(info.activity_id)
    place = {EXECUTION_ID: info.workflow_id or "", "holdfast.attempt": info.attempt}
    return {**place, "holdfast.step": int(step[1])} if step else place


def _request_attributes(request: ModelRequest) -> dict[str, str]:
    """Return the system prompt and the latest SPAN_MESSAGES_MAX messages as attributes."""
    attributes = {"gen_ai.input.messages": _json([_message(each) for each in request.messages[-SPAN_MESSAGES_MAX:]])}
    if request.system_prompt:
        prompt = clamped(request.system_prompt, SPAN_TEXT_CHARS_MAX)
        attributes["gen_ai.system_instructions"] = _json([{"type": "text", "content": prompt}])
    return attributes


def _message(message: Message) -> dict[str, Any]:
    """Return a message in the format of the conventions, without images."""
    text = clamped(message.text, SPAN_TEXT_CHARS_MAX)
    parts: list[dict[str, Any]] = []
    if message.tool_call_id is not None:
        parts.append({"type": "tool_call_response", "id": message.tool_call_id, "response": text})
    elif text:
        parts.append({"type": "text", "content": text})
    for call in message.tool_calls:
        arguments = clamped(call.arguments_text, SPAN_TEXT_CHARS_MAX)
        parts.append({"type": "tool_call", "id": call.id, "name": call.name, "arguments": arguments})
    return {"role": message.role, "parts": parts}


def _json(value: Mapping[str, Any] | Sequence[Any]) -> str:
    return clamped(to_json(value).decode(), SPAN_MESSAGES_MAX * SPAN_TEXT_CHARS_MAX)
