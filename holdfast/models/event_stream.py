"""Reads the body of an answer as it arrives: server-sent events, or one JSON value. Knows no API's events.

It follows the WHATWG's server-sent events with the leniency that real servers need: any line end, comments,
keep-alives, error objects on lines of their own, one plain JSON body instead of a stream. Memory is bounded by the
answer's content, time is linear in the bytes received.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import replace
from io import StringIO
from typing import Final, cast

from holdfast.core.agent.model import AnswerListener, AnswerPart
from holdfast.core.base.bounds import WORD_CHARS_MAX
from holdfast.core.base.safe_text import encodable
from holdfast.core.base.usage import Usage
from holdfast.models.answer_errors import AnswerCut, ErrorInAnswer, UnusableAnswer

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


class AnswerStream(ABC):
    """One answer: `feed` it the chunks that arrive; `end` returns its JSON. An API's own stream reads the events.

    `usage` is the endpoint's latest figure for the whole call, none before the first. `complete` is true once the
    answer's end has been announced: at most the usage is missing then. `done` means that nothing more is read.
    `lives_on` is `AnswerPart.lives_on`.
    """

    not_an_answer = "the answer's stream holds JSON that is not of this API"
    """The error for an event that is no JSON object."""
    not_a_stream = "the answer is neither an answer of this API nor a stream of one; check its address"
    """The error for a stream without any event of the API."""

    def __init__(self, listener: AnswerListener | None = None, *, streamed: bool = True) -> None:
        self.usage: Usage | None = None
        self.complete = False
        self.done = False
        self.lives_on: bool | None = None
        self._listener = listener
        self._streamed: bool | None = None if streamed else False  # none until the first byte says what it is
        self._plain = bytearray()
        self._lines = Lines()
        self._event = ""
        self._data: list[bytes] = []
        self._received = self._content_chars = self._parts = self._data_bytes = 0
        self._words = {"id": "", "model": ""}
        self._fresh_text: list[str] = []
        self._fresh_reasoning: list[str] = []
        self._call_bytes = self._reported_call_bytes = self._taking = 0
        self._news = False  # something to report besides text, calls and usage

    @abstractmethod
    def _take(self, event: str, fields: dict[str, object]) -> None:
        """Take an event's JSON object. Raises UnusableAnswer and ErrorInAnswer."""

    @abstractmethod
    def _joined(self) -> object:
        """Return the whole answer of a complete stream. Raises UnusableAnswer and AnswerCut."""

    @abstractmethod
    def _whole(self, body: bytes) -> object:
        """Return an answer that is one JSON value, and note its usage. Raises UnusableAnswer and ErrorInAnswer."""

    def _take_done(self) -> None:
        """Take [DONE]; with some APIs it stands for the end that was not announced."""
        self.complete = True

    def _take_end(self) -> None:
        """Take the end of a body that said nothing of its end; for an API that holds text back until then."""
        return

    def _failure(self, error: object) -> ErrorInAnswer:
        """Return what to raise for an error object within the stream."""
        return ErrorInAnswer(error)

    @property
    def pending_bytes(self) -> int:
        """How many received bytes were not reported: of an unfinished event, or of one that could not be parsed."""
        return len(self._lines.tail) + self._data_bytes + self._taking

    @property
    def plain(self) -> bool:
        """Whether it is one JSON value and not a stream; false while unknown."""
        return self._streamed is False

    def reopen(self) -> None:
        """Forget the broken end of a body: another one goes on behind the last whole event."""
        self._lines = Lines()
        self._event, self._data, self._data_bytes, self._taking = "", [], 0, 0

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
        """Return the answer, parsed but not checked.

        Raises UnusableAnswer, ErrorInAnswer, and AnswerCut for a stream that ended too early.
        """
        if not self._streamed:  # nothing at all is no stream either
            return self._whole(bytes(self._plain))
        if not self.done:
            with suppress(UnusableAnswer):  # cut within a line
                for line in self._lines.end():
                    self._take_line(line)
            self._take_end()
            self._report()
        # no end: half a tool call would run with half its arguments
        if not self.complete:
            raise UnusableAnswer(self.not_a_stream) if not self._parts else AnswerCut
        return self._joined()

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
            self.done = True
            self._take_done()
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
            raise self._failure(fields.get("error") or chunk)
        if not isinstance(chunk, dict):
            raise UnusableAnswer(self.not_an_answer)
        self._take(event, fields)

    def _check_length(self) -> None:
        """Refuse an answer whose content has grown too long."""
        if self._content_chars > ANSWER_CHARS_MAX:
            raise UnusableAnswer(f"the answer has more than {ANSWER_CHARS_MAX:,} characters")

    def _report(self, *, changed: bool = False) -> None:
        """Tell the listener what has come since the last time; `changed` is whether there is a new usage."""
        call_bytes = self._call_bytes - self._reported_call_bytes
        if not (self._fresh_text or call_bytes or changed or self._news):
            return
        # half a surrogate pair cannot be sent on; the joined answer has the whole character
        text, reasoning = encodable("".join(self._fresh_text)), encodable("".join(self._fresh_reasoning))
        self._fresh_text, self._fresh_reasoning, self._reported_call_bytes = [], [], self._call_bytes
        self._news = False
        if self._listener is not None:
            model, id_ = encodable(self._words["model"]), encodable(self._words["id"])
            usage = self.usage if changed else None
            part = AnswerPart(text, reasoning, usage, model=model, response_id=id_, call_bytes=call_bytes)
            self._listener(part if self.lives_on is None else replace(part, lives_on=self.lives_on))


def parsed(body: bytes) -> object:
    """Return the JSON in `body`; raise UnusableAnswer where there is none."""
    try:
        data: object = json.loads(body)
    except (ValueError, RecursionError):
        # OPENAI_BASE_URL without /v1 gives the start page of many servers, with status 200
        kind = "a web page" if body.lstrip()[:1] == b"<" else "empty" if not body.strip() else "not JSON"
        raise UnusableAnswer(f"the answer is {kind}; check OPENAI_BASE_URL") from None
    return data


def fields_of(value: object) -> dict[str, object]:
    """Return the fields of a JSON object, none for any other value."""
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def word_of(value: object) -> str:
    """Return an identifier from the provider, cut when it is far longer than any that is kept."""
    return value[: 2 * WORD_CHARS_MAX] if isinstance(value, str) else ""


def raw_text(value: object) -> str:
    """Return a text, even half a character, whose other half comes in the next event; no text for any other value."""
    return value if isinstance(value, str) else ""


def joined(text: StringIO) -> str:
    """Return the whole text; a character split over two events is joined again."""
    whole = text.getvalue()
    if whole.isascii():
        return whole
    # a character beyond the BMP can be cut into two \u escapes, one in each event
    return whole.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
