"""Assembles a streamed answer: server-sent events become one chat completion, which `chat_completion` parses."""

from __future__ import annotations

from io import StringIO
from typing import cast

from holdfast.core.agent.model import AnswerListener
from holdfast.models.answer_errors import UnusableAnswer
from holdfast.models.event_stream import AnswerStream, fields_of, joined, raw_text, word_of
from holdfast.models.openai_chat.chat_completion import NO_COMPLETION, completion_in, content_of, reported
from holdfast.models.openai_chat.tool_call_deltas import Calls


class StreamedAnswer(AnswerStream):
    """One answer: `feed` it the chunks that arrive; `end` returns the completion."""

    not_an_answer = NO_COMPLETION
    not_a_stream = "the answer is neither a chat completion nor a stream of one; check OPENAI_BASE_URL"

    def __init__(self, listener: AnswerListener | None = None, *, streamed: bool = True) -> None:
        super().__init__(listener, streamed=streamed)
        self._texts = {name: StringIO() for name in ("content", "reasoning_content", "refusal")}
        self._calls = Calls()
        self._finish_reason = ""
        self._usage: object = None

    def _joined(self) -> object:
        message: dict[str, object] = {name: joined(text) for name, text in self._texts.items()}
        message["tool_calls"] = [call.wire() for call in self._calls.all]
        choice = {"message": message, "finish_reason": self._finish_reason}
        return {**self._words, "choices": [choice] if self._parts else [], "usage": self._usage}

    def _whole(self, body: bytes) -> object:
        completion = completion_in(body)
        self.usage = reported(fields_of(completion).get("usage"))
        return completion

    def _take(self, event: str, fields: dict[str, object]) -> None:  # noqa: ARG002  # the API names no events
        for name in ("id", "model"):
            # the first chunk names them; some servers repeat them, some change the id with every chunk
            self._words[name] = self._words[name] or word_of(fields.get(name))
        # with include_usage it is in a last chunk without choices; some servers count on in every chunk
        if (usage := reported(fields.get("usage"))) is not None:
            self._usage, self.usage = fields["usage"], usage
        choices = fields.get("choices")
        # the usage chunk of OpenAI, and Azure's first chunk with the filter's results, have no choices
        if not choices:
            return
        first = cast("list[object]", choices)[0] if isinstance(choices, list) else None
        if not isinstance(first, dict):
            raise UnusableAnswer(NO_COMPLETION)
        choice = cast("dict[str, object]", first)
        self._parts += 1
        # a server that only pretends to stream puts the whole message where the difference belongs
        delta = choice.get("delta") or (choice.get("message") if self._parts == 1 else None)
        self._take_delta(fields_of(delta))
        # null until the last chunk; nothing of the answer's text follows it
        if finish := word_of(choice.get("finish_reason")):
            self._finish_reason = finish
            self.complete = True

    def _take_delta(self, delta: dict[str, object]) -> None:
        text, refusal = _content(delta.get("content")), raw_text(delta.get("refusal"))
        # DeepSeek and llama.cpp say reasoning_content, OpenRouter and newer vLLM reasoning
        reasoning = raw_text(delta.get("reasoning_content")) or raw_text(delta.get("reasoning"))
        if text or refusal or reasoning:
            self._texts["content"].write(text)
            self._texts["refusal"].write(refusal)
            self._texts["reasoning_content"].write(reasoning)
            self._fresh_text.append(text + refusal)
            self._fresh_reasoning.append(reasoning)
            self._content_chars += len(text) + len(refusal) + len(reasoning)
        calls = delta.get("tool_calls")
        if calls:
            if not isinstance(calls, list):
                raise UnusableAnswer(NO_COMPLETION)
            # a delta may hold pieces of several parallel calls
            try:
                self._content_chars += sum(self._calls.take(fragment) for fragment in cast("list[object]", calls))
            finally:
                self._call_bytes = self._calls.bytes
        self._check_length()


def _content(value: object) -> str:
    """The same, or a list of content parts as their texts."""
    if value is None or isinstance(value, str):
        return value or ""
    try:
        return content_of(value)
    except ValueError:
        raise UnusableAnswer(NO_COMPLETION) from None
