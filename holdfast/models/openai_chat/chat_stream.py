"""Assembles a streamed answer: server-sent events become one chat completion, which `chat_completion` parses."""

from __future__ import annotations

from io import StringIO
from typing import cast

from holdfast.core.agent.model import AnswerListener
from holdfast.models.answer_errors import UnusableAnswer
from holdfast.models.event_stream import AnswerStream, fields_of, joined, raw_text, word_of
from holdfast.models.openai_chat.chat_completion import NO_COMPLETION, completion_in, reported
from holdfast.models.openai_chat.chat_items import REASONING
from holdfast.models.openai_chat.item_deltas import ItemDeltas
from holdfast.models.openai_chat.think_tags import ThinkTags
from holdfast.models.openai_chat.tool_call_deltas import Calls


class StreamedAnswer(AnswerStream):
    """One answer: `feed` it the chunks that arrive; `end` returns the completion."""

    not_an_answer = NO_COMPLETION
    not_a_stream = "the answer is neither a chat completion nor a stream of one; check OPENAI_BASE_URL"

    def __init__(
        self, listener: AnswerListener | None = None, *, streamed: bool = True, think_tags: bool = False
    ) -> None:
        super().__init__(listener, streamed=streamed)
        self._texts = {name: StringIO() for name in ("content", REASONING, "reasoning", "refusal")}
        self._calls, self._old_call = Calls(), Calls()
        self._items = ItemDeltas()
        self._tags = ThinkTags() if think_tags else None
        self._has_reasoning = self._has_logprobs = False
        self._finish_reason = ""
        self._usage: object = None

    def _take_end(self) -> None:
        if self._tags is not None:
            shown, tagged = self._tags.rest()
            self._fresh_text.append(shown)
            self._fresh_reasoning.append(tagged)

    def _joined(self) -> object:
        message: dict[str, object] = {name: joined(text) for name, text in self._texts.items()}
        if not self._has_reasoning:  # an empty one is something else than none
            del message[REASONING]
        elif self._texts["reasoning"].tell():  # a server that changes the name on the way
            message[REASONING] = joined(self._texts["reasoning"]) + joined(self._texts[REASONING])
        message |= self._items.message()
        message["tool_calls"] = [call.wire() for call in self._calls.all or self._old_call.all]
        choice = {"message": message, "finish_reason": self._finish_reason, "logprobs": self._has_logprobs}
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
        self._has_logprobs = self._has_logprobs or bool(choice.get("logprobs"))
        # null until the last chunk; nothing of the answer's text follows it
        if finish := word_of(choice.get("finish_reason")):
            self._finish_reason = finish
            self.complete = True

    def _take_delta(self, delta: dict[str, object]) -> None:
        try:
            text, thinking, chars = self._items.take_content(delta.get("content"), self._texts["content"])
            chars += self._items.take(delta)
        except ValueError:  # nested too deeply
            raise UnusableAnswer(NO_COMPLETION) from None
        refusal = raw_text(delta.get("refusal"))
        # DeepSeek and llama.cpp say reasoning_content, OpenRouter and newer vLLM reasoning
        own = raw_text(delta.get(REASONING))
        thought = own or raw_text(delta.get("reasoning"))
        reasoning = thought or thinking
        self._has_reasoning = self._has_reasoning or isinstance(delta.get(REASONING), str)
        if text or refusal or reasoning:
            self._texts["content"].write(text)
            self._texts["refusal"].write(refusal)
            self._texts[REASONING if own else "reasoning"].write(thought)
            shown, tagged = (text, "") if self._tags is None else self._tags.take(text)
            self._fresh_text.append(shown + refusal)
            self._fresh_reasoning.append(reasoning + tagged)
        self._content_chars += len(text) + len(refusal) + len(reasoning) + chars
        self._take_calls(delta)
        self._check_length()

    def _take_calls(self, delta: dict[str, object]) -> None:
        calls, old = delta.get("tool_calls"), delta.get("function_call")
        try:
            if calls:
                if not isinstance(calls, list):
                    raise UnusableAnswer(NO_COMPLETION)
                # a delta may hold pieces of several parallel calls
                self._content_chars += sum(self._calls.take(fragment) for fragment in cast("list[object]", calls))
            elif old:  # before there were tools an answer had one call, without an id
                self._content_chars += self._old_call.take({"index": 0, "function": old})
        except ValueError:  # nested too deeply
            raise UnusableAnswer(NO_COMPLETION) from None
        finally:
            self._call_bytes = self._calls.bytes + self._old_call.bytes
