"""Assembles a streamed answer: server-sent events become one chat completion, which `chat_completion` parses.

It follows the WHATWG's server-sent events with the leniency that real servers need: any line end, comments,
keep-alives, error objects on lines of their own, one plain JSON body instead of a stream. Memory is bounded by the
answer's content, time is linear in the bytes received.
"""

from __future__ import annotations

import json
from contextlib import suppress
from io import StringIO
from typing import Final, cast

from holdfast.core.agent.model import AnswerListener, AnswerPart
from holdfast.core.base.bounds import WORD_CHARS_MAX
from holdfast.core.base.safe_text import encodable
from holdfast.core.base.usage import Usage
from holdfast.models.openai_chat.chat_completion import (
    NO_COMPLETION,
    ErrorInAnswer,
    UnusableAnswer,
    fields_of,
    parsed,
    reported,
)
from holdfast.models.openai_chat.chat_items import REASONING
from holdfast.models.openai_chat.item_deltas import ItemDeltas
from holdfast.models.openai_chat.think_tags import ThinkTags
from holdfast.models.openai_chat.tool_call_deltas import Calls, joined, word_of

ANSWER_BYTES_MAX: Final = 8 * 1024 * 1024
"""The largest body of a model's answer that is read at all."""

STREAM_BYTES_MAX: Final = 96 * 1024 * 1024
"""The largest body of a streamed answer: OpenAI takes some 300 bytes for each token, and 128,000 tokens is its most.

Only its content is kept, at most ANSWER_CHARS_MAX.
"""

ANSWER_CHARS_MAX: Final = 8 * 1024 * 1024
"""The most characters of a streamed answer: text, reasoning and calls together."""

PLAIN: Final = b"{[<"
"""A body that begins with one of these is one JSON value or a web page, not a stream of events."""

NOTHING: Final = b" \t\r\n\xef\xbb\xbf"
"""Bytes that may precede an answer: empty lines that keep a connection alive, a byte order mark."""

DONE: Final = b"[DONE]"
NOT_JSON: Final = "the answer's stream holds something that is not JSON"
NO_STREAM: Final = "the answer is neither a chat completion nor a stream of one; check OPENAI_BASE_URL"


class AnswerCut(Exception):
    """The stream ended, properly or not, before the answer was complete."""


class Lines:
    """Cuts bytes into lines at LF, CR or CRLF, wherever the network cut them."""

    def __init__(self) -> None:
        self._tail = bytearray()
        self._after_cr = False

    @property
    def tail(self) -> bytearray:
        """The unfinished line."""
        return self._tail

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that `chunk` completes."""
        # the network may cut a CRLF in two: its LF ends no second, empty line
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        if not chunk:
            return []
        self._after_cr = chunk.endswith(b"\r")
        # bytes.splitlines knows LF, CR and CRLF alone, as the specification of events; str.splitlines knows more
        lines = chunk.splitlines()
        rest = b"" if chunk.endswith((b"\n", b"\r")) else lines.pop()
        if lines and self._tail:
            lines[0] = bytes(self._tail + lines[0])
            self._tail.clear()
        self._tail += rest
        # a server that never ends its line must not take all memory
        if len(self._tail) > ANSWER_BYTES_MAX:
            raise UnusableAnswer(f"a line of the answer has more than {ANSWER_BYTES_MAX:,} bytes")
        return lines

    def end(self) -> list[bytes]:
        """Return the last, unterminated line, and the empty one that ends every event."""
        # some servers close the connection without the empty line that ends the last event
        return [bytes(self._tail), b""]


class StreamedAnswer:
    """One answer: `feed` it the chunks that arrive; `end` returns the completion.

    `usage` is the endpoint's latest figure for the whole call, none before the first. `complete` is true once the
    finish reason (or [DONE]) has arrived: at most the usage is missing then.
    """

    def __init__(
        self, listener: AnswerListener | None = None, *, streamed: bool = True, think_tags: bool = False
    ) -> None:
        self.usage: Usage | None = None
        self.complete = False
        self.done = False
        self._listener = listener
        self._streamed: bool | None = None if streamed else False  # none until the first byte says what it is
        self._plain = bytearray()
        self._lines = Lines()
        self._event = ""
        self._data: list[bytes] = []
        self._received = self._content_chars = self._choices = self._data_bytes = 0
        self._texts = {name: StringIO() for name in ("content", REASONING, "reasoning", "refusal")}
        self._calls, self._old_call = Calls(), Calls()
        self._items = ItemDeltas()
        self._tags = ThinkTags() if think_tags else None
        self._has_reasoning = self._has_logprobs = False
        self._words = {"id": "", "model": "", "finish_reason": ""}
        self._usage: object = None
        self._fresh_text: list[str] = []
        self._fresh_reasoning: list[str] = []
        self._reported_call_bytes = self._taking = 0

    @property
    def pending_bytes(self) -> int:
        """How many received bytes were not reported: of an unfinished event, or of one that could not be parsed."""
        return len(self._lines.tail) + self._data_bytes + self._taking

    @property
    def plain(self) -> bool:
        """Whether it is one JSON value and not a stream; false while unknown."""
        return self._streamed is False

    def feed(self, chunk: bytes) -> None:
        """Add a chunk. Raises UnusableAnswer and ErrorInAnswer."""
        self._received += len(chunk)
        if self._streamed is None:
            # proxies keep a slow connection alive with blank lines before the answer
            chunk = chunk.lstrip(NOTHING)
            if not chunk:
                return
            # asked to stream, some servers answer with one plain completion, and a wrong URL with a web page
            self._streamed = chunk[:1] not in PLAIN
            if not self._streamed and self._listener is not None:
                # nothing of it is seen before its end: if cut off, it counts its whole output limit
                self._listener(AnswerPart(unseen=True))
        if not self._streamed:
            self._plain += chunk
            if len(self._plain) > ANSWER_BYTES_MAX:
                raise UnusableAnswer(f"the answer has more than {ANSWER_BYTES_MAX:,} bytes")
            return
        # an event of a few letters has hundreds of bytes around them, so a stream may be longer than its words
        if self._received > STREAM_BYTES_MAX:
            raise UnusableAnswer(f"the answer has more than {STREAM_BYTES_MAX:,} bytes")
        # data before a broken line count, so they are reported in `finally`
        usage_before = self.usage
        try:
            for line in self._lines.feed(chunk):
                self._take_line(line)
        finally:
            self._report(changed=self.usage is not usage_before)

    def end(self) -> object:
        """Return the completion, parsed but not checked.

        Raises UnusableAnswer, ErrorInAnswer, and AnswerCut for a stream that ended too early.
        """
        if not self._streamed:  # nothing at all is no stream either
            return self._whole()
        if not self.done:
            with suppress(UnusableAnswer):  # cut within a line
                for line in self._lines.end():
                    self._take_line(line)
            if self._tags is not None:
                shown, tagged = self._tags.rest()
                self._fresh_text.append(shown)
                self._fresh_reasoning.append(tagged)
            self._report()
        # no finish reason: half a tool call would run with half its arguments
        if not self.complete:
            raise UnusableAnswer(NO_STREAM) if not self._choices else AnswerCut
        message: dict[str, object] = {name: joined(text) for name, text in self._texts.items()}
        if not self._has_reasoning:  # an empty one is something else than none
            del message[REASONING]
        elif self._texts["reasoning"].tell():  # a server that changes the name on the way
            message[REASONING] = joined(self._texts["reasoning"]) + joined(self._texts[REASONING])
        message |= self._items.message()
        message["tool_calls"] = [call.wire() for call in self._calls.all or self._old_call.all]
        choice = {"message": message, "finish_reason": self._words["finish_reason"], "logprobs": self._has_logprobs}
        return {**self._words, "choices": [choice] if self._choices else [], "usage": self._usage}

    def _whole(self) -> object:
        completion = parsed(bytes(self._plain))
        self.usage = reported(fields_of(completion).get("usage"))
        return completion

    def _take_line(self, line: bytes) -> None:
        # the space behind the colon is optional; JSON does not mind it
        if line.startswith(b"data:"):
            self._add_data(line[5:])
        elif line.startswith(b"event:"):
            # OpenAI's own errors come as data; gateways name the event `error`
            self._event = line[6:].strip().decode("utf-8", "replace")
        elif line.startswith(b"error:"):  # llama.cpp
            self._event = "error"
            self._add_data(line[6:])
        elif line.startswith(b"{") and not self.done:  # a bare object among the events: an error, put there by a proxy
            self._take_event(self._event, line)
        elif not line:
            event, data = self._event, self._data
            # an empty line ends the event; without data it was a comment or a keep-alive
            self._event, self._data, self._data_bytes = "", [], 0
            if data and not self.done:
                self._take_event(event, b"\n".join(data))

    def _add_data(self, data: bytes) -> None:
        self._data.append(data)
        self._data_bytes += len(data) + 1
        if self._data_bytes > ANSWER_BYTES_MAX:
            raise UnusableAnswer(f"an event of the answer has more than {ANSWER_BYTES_MAX:,} bytes")

    def _take_event(self, event: str, data: bytes) -> None:
        # some servers say [DONE] without a finish reason, or put words behind it
        if data.strip().startswith(DONE):
            self.done = self.complete = True
            return
        # counted as received if the event cannot be read: the provider has made and bills it
        self._taking = len(data)  # until it could be read
        try:
            chunk: object = json.loads(data.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            # the text of an error need not be JSON
            if event == "error":
                raise ErrorInAnswer(data[:WORD_CHARS_MAX].decode("utf-8", "replace")) from None
            raise UnusableAnswer(NOT_JSON) from None
        self._taking = 0
        fields = fields_of(chunk)
        # status 200 is sent before the model runs: what fails later is said within the stream
        if event == "error" or fields.get("error"):
            raise ErrorInAnswer(fields.get("error") or chunk)
        if not isinstance(chunk, dict):
            raise UnusableAnswer(NO_COMPLETION)
        self._take_chunk(fields)

    def _take_chunk(self, chunk: dict[str, object]) -> None:
        for name in ("id", "model"):
            # the first chunk names them; some servers repeat them, some change the id with every chunk
            self._words[name] = self._words[name] or word_of(chunk.get(name))
        # with include_usage it is in a last chunk without choices; some servers count on in every chunk
        if (usage := reported(chunk.get("usage"))) is not None:
            self._usage, self.usage = chunk["usage"], usage
        choices = chunk.get("choices")
        # the usage chunk of OpenAI, and Azure's first chunk with the filter's results, have no choices
        if not choices:
            return
        first = cast("list[object]", choices)[0] if isinstance(choices, list) else None
        if not isinstance(first, dict):
            raise UnusableAnswer(NO_COMPLETION)
        choice = cast("dict[str, object]", first)
        self._choices += 1
        # a server that only pretends to stream puts the whole message where the difference belongs
        delta = choice.get("delta") or (choice.get("message") if self._choices == 1 else None)
        self._take_delta(fields_of(delta))
        self._has_logprobs = self._has_logprobs or bool(choice.get("logprobs"))
        # null until the last chunk; nothing of the answer's text follows it
        if finish := word_of(choice.get("finish_reason")):
            self._words["finish_reason"] = finish
            self.complete = True

    def _take_delta(self, delta: dict[str, object]) -> None:
        try:
            text, thinking, chars = self._items.take_content(delta.get("content"), self._texts["content"])
            chars += self._items.take(delta)
        except ValueError:  # nested too deeply
            raise UnusableAnswer(NO_COMPLETION) from None
        refusal = _text(delta.get("refusal"))
        # DeepSeek and llama.cpp say reasoning_content, OpenRouter and newer vLLM reasoning
        own = _text(delta.get(REASONING))
        thought = own or _text(delta.get("reasoning"))
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
        if self._content_chars > ANSWER_CHARS_MAX:
            raise UnusableAnswer(f"the answer has more than {ANSWER_CHARS_MAX:,} characters")

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

    def _report(self, *, changed: bool = False) -> None:
        all_bytes = self._calls.bytes + self._old_call.bytes
        call_bytes = all_bytes - self._reported_call_bytes
        if not self._fresh_text and not call_bytes and not changed:
            return
        # half a surrogate pair cannot be sent on; the joined answer has the whole character
        text, reasoning = encodable("".join(self._fresh_text)), encodable("".join(self._fresh_reasoning))
        self._fresh_text, self._fresh_reasoning, self._reported_call_bytes = [], [], all_bytes
        if self._listener is not None:
            model, id_ = encodable(self._words["model"]), encodable(self._words["id"])
            usage = self.usage if changed else None
            self._listener(AnswerPart(text, reasoning, usage, model=model, response_id=id_, call_bytes=call_bytes))


def _text(value: object) -> str:
    """Return a text, even half a character, whose other half comes in the next event; no text for any other value."""
    return value if isinstance(value, str) else ""
