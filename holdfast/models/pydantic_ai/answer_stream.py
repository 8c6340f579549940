"""Receives an answer that streams, within its times: each event of Pydantic AI goes to the listener as it comes."""

from __future__ import annotations

import asyncio
import json
from contextlib import AbstractAsyncContextManager
from typing import Final

from pydantic_ai.messages import (
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
)
from pydantic_ai.models import StreamedResponse
from pydantic_ai.usage import RequestUsage

from holdfast.core.agent.model import AnswerListener, AnswerPart
from holdfast.core.base.retries import MODEL_SECONDS_MAX
from holdfast.core.base.safe_text import encodable
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.messages import FILTERED
from holdfast.models.answer_errors import AnswerCut, UnusableAnswer
from holdfast.models.answer_transfer import FIRST_BYTE_SECONDS, SILENCE_SECONDS, TRAILER_SECONDS
from holdfast.models.event_stream import ANSWER_CHARS_MAX
from holdfast.models.pydantic_ai.answer import RAW_REASON, SUSPENDED, reported
from holdfast.models.routes import Timeouts

CHAT_STREAM: Final = "OpenAIStreamedResponse"
"""The class of Pydantic AI that takes a stream without a finish reason for a whole answer: some servers send none."""

CUT_STATES: Final = frozenset({"incomplete", "interrupted"})
"""The states of an answer that has not come to its end."""


class AnswerReader:
    """What is known of an answer while it comes. `usage` is the provider's latest figure for the whole call."""

    def __init__(self, listener: AnswerListener | None) -> None:
        self.usage: Usage | None = None
        self._listener = listener
        self._counted: RequestUsage | None = None
        self._chars = 0

    async def received(
        self, opened: AbstractAsyncContextManager[StreamedResponse], timeouts: Timeouts, *, remote: bool
    ) -> ModelResponse:
        """Return the whole answer; MODEL_SECONDS_MAX at most.

        Raises TimeoutError, AnswerCut, UnusableAnswer and what Pydantic AI raises. `remote` is whether it comes from a
        provider, so that it is whole only with a finish reason.
        """
        now = asyncio.get_running_loop().time
        until, silence = now() + MODEL_SECONDS_MAX, timeouts.silence_seconds or SILENCE_SECONDS
        stream: StreamedResponse | None = None
        try:
            async with asyncio.timeout(timeouts.first_byte_seconds or FIRST_BYTE_SECONDS) as limit, opened as stream:
                async for event in stream:
                    self._take(event, stream)
                    # the usage comes behind the answer's end or never: not worth a silence of minutes
                    longest = silence if stream.finish_reason is None else TRAILER_SECONDS
                    limit.reschedule(min(until, now() + longest))
                self._report(stream, AnswerPart())
        except Exception:
            # behind the finish reason at most the usage is missing
            if stream is None or stream.finish_reason is None:
                raise
            return stream.get()
        response = stream.get()
        if remote and (response.state in CUT_STATES or not _has_ended(stream)):
            raise AnswerCut
        return response

    def _take(self, event: ModelResponseStreamEvent, stream: StreamedResponse) -> None:
        part = _part_of(event)
        if part is not None:
            self._report(stream, part)
            self._chars += len(part.text) + len(part.reasoning) + part.call_bytes
            if self._chars > ANSWER_CHARS_MAX:
                raise UnusableAnswer(f"the answer has more than {ANSWER_CHARS_MAX:,} characters")

    def _report(self, stream: StreamedResponse, part: AnswerPart) -> None:
        counted = stream.usage
        usage = reported(counted) if counted != self._counted else None
        if changed := usage is not None:
            self._counted, self.usage = counted, usage
        if self._listener is None or not (changed or part.text or part.reasoning or part.call_bytes):
            return
        self._listener(
            AnswerPart(
                encodable(part.text),
                encodable(part.reasoning),
                self.usage if changed else None,
                model=encodable(stream.model_name or ""),
                response_id=encodable(stream.provider_response_id or ""),
                call_bytes=part.call_bytes,
            )
        )


def _has_ended(stream: StreamedResponse) -> bool:
    """Return whether the provider itself has said why the answer ended."""
    if any(each.__name__ == CHAT_STREAM for each in type(stream).__mro__):
        # a stream that ends without a reason is given one by Pydantic AI, and of a refusal it drops the provider's
        reason = (stream.provider_details or {}).get(RAW_REASON)
        return bool(reason) or stream.finish_reason == FILTERED
    return stream.finish_reason is not None or stream.state == SUSPENDED


def _part_of(event: ModelResponseStreamEvent) -> AnswerPart | None:
    """Return what an event adds to the answer; none for one that only tells of it."""
    match event:
        case PartStartEvent(part=TextPart(content=text)) | PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
            return AnswerPart(text)
        case PartStartEvent(part=ThinkingPart() as part):
            return AnswerPart("", part.content, call_bytes=_size(part.signature))
        case PartDeltaEvent(delta=ThinkingPartDelta() as delta):
            return AnswerPart("", delta.content_delta or "", call_bytes=_size(delta.signature_delta))
        case PartStartEvent(part=ToolCallPart() as part):
            return AnswerPart(call_bytes=_size(part.tool_call_id) + _size(part.tool_name) + _size(part.args))
        case PartDeltaEvent(delta=ToolCallPartDelta() as delta):
            return AnswerPart(call_bytes=_size(delta.tool_name_delta) + _size(delta.args_delta))
        case PartStartEvent(part=part):  # of the provider's own, whole
            return AnswerPart(call_bytes=len(repr(part)))
        case _:
            return None


def _size(value: object) -> int:
    if value is None:
        return 0
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return len(text.encode("utf-8", "surrogatepass"))
