"""Assembles a streamed answer of the Messages API: its events become one message, which `message` parses.

https://docs.claude.com/en/docs/build-with-claude/streaming has the events. Each block begins, grows and ends; the stop
reason and the usage come behind the last one. Event types that are unknown here are ignored, as the API asks for.
"""

from __future__ import annotations

from io import StringIO
from typing import Any, Final

from holdfast.core.base.bounds import CALLS_KEPT_MAX
from holdfast.core.conversation.messages import CUT_OFF
from holdfast.core.conversation.provider_items import ITEMS_MAX
from holdfast.models.answer_errors import ErrorInAnswer, UnusableAnswer
from holdfast.models.anthropic.message import ARGUMENTS, FINISH_REASONS, NO_MESSAGE, UNKNOWN, merged, reported
from holdfast.models.event_stream import AnswerStream, fields_of, joined, parsed, raw_text, word_of

BLOCKS_MAX: Final = 4 * max(ITEMS_MAX, CALLS_KEPT_MAX)
"""The most blocks of one answer: more than all that is kept of one."""

GROWING: Final = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": ARGUMENTS,
}
"""The types of deltas whose texts make a block longer, with the field of the delta that has the text."""

LISTED: Final = {"citations_delta": ("citation", "citations")}
"""The types of deltas that add to a list of the block: the field of the delta, and the list."""


class _Block:
    """A block in the making: as it began, and what was added since."""

    def __init__(self, start: dict[str, object]) -> None:
        self.start: dict[str, Any] = dict(start)
        self._texts = dict[str, StringIO]()

    @property
    def kind(self) -> str:
        return word_of(self.start.get("type"))

    def grow(self, field: str, text: str) -> None:
        self._texts.setdefault(field, StringIO()).write(text)

    def add(self, field: str, value: object) -> None:
        listed = self.start.get(field)
        self.start[field] = [*(listed if isinstance(listed, list) else ()), value]

    def whole(self, *, cut: bool) -> dict[str, Any] | None:
        """Return the block; none for a call of the provider's own tool that was not made, as the answer was `cut`."""
        grown = {field: joined(text) for field, text in self._texts.items()}
        for field, text in grown.items():
            if field != ARGUMENTS:  # it is text that becomes the input, and no part of it
                grown[field] = raw_text(self.start.get(field)) + text
        if ARGUMENTS in grown and self.kind != "tool_use":
            # a block of the provider's own, which goes back as it would have come whole
            try:
                return {**self.start, "input": parsed(grown[ARGUMENTS].encode("utf-8", "surrogatepass") or b"{}")}
            except UnusableAnswer:
                if cut:
                    return None
                raise
        return {**self.start, **grown}


class MessageStream(AnswerStream):
    """One answer, streamed or plain. It is complete when its stop reason has come."""

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401  # those of AnswerStream
        super().__init__(*arguments, **options)
        self._blocks = dict[int | None, _Block]()
        self._stop_reason = self._unknown = ""
        self._counts = dict[str, object]()

    def _take(self, event: str, fields: dict[str, object]) -> None:  # noqa: ARG002  # the data names its type, too
        match fields.get("type"):
            case "message_start":
                message = fields_of(fields.get("message"))
                self._words = {name: word_of(message.get(name)) for name in ("id", "model")}
                self._parts += 1
                self._count(message.get("usage"))
            case "content_block_start":
                self._begin(_place(fields.get("index")), fields_of(fields.get("content_block")))
            case "content_block_delta":
                self._grow(_place(fields.get("index")), fields_of(fields.get("delta")))
            case "message_delta":
                self._count(fields.get("usage"))
                self._parts += 1
                # null until the answer's end; nothing of its content follows
                if stop := word_of(fields_of(fields.get("delta")).get("stop_reason")):
                    self._stop_reason, self.complete = stop, True
            case "message_stop":
                self.done = self.complete
            case _:  # pings, the ends of blocks, and what the API adds some day
                pass

    def _begin(self, index: int | None, start: dict[str, object]) -> None:
        if not isinstance(start.get("type"), str) or index in self._blocks or len(self._blocks) >= BLOCKS_MAX:
            raise UnusableAnswer(NO_MESSAGE)
        block = self._blocks[index] = _Block(start)
        self._parts += 1
        self._content_chars += len(str(start))  # blocks that come whole, such as redacted thinking
        if block.kind == "tool_use":
            self._call_bytes += sum(_size(start.get(name)) for name in ("id", "name"))
        elif block.kind not in ("text", "thinking"):
            self._call_bytes += len(str(start))
        self._show(block, raw_text(start.get("text")), raw_text(start.get("thinking")))
        self._check_length()

    def _grow(self, index: int | None, delta: dict[str, object]) -> None:
        kind = word_of(delta.get("type"))
        block = self._blocks.get(index)
        if block is None:
            raise UnusableAnswer(NO_MESSAGE)
        if kind in LISTED:
            field, listed = LISTED[kind]
            block.add(listed, delta.get(field))
            self._content_chars += len(str(delta))
        elif kind in GROWING:
            field = GROWING[kind]
            text = raw_text(delta.get(field))
            block.grow(field, text)
            self._content_chars += len(text)
            if field in (ARGUMENTS, "signature"):
                self._call_bytes += _size(text)
            else:
                self._show(block, *((text, "") if field == "text" else ("", text)))
        else:  # the block cannot go back as it was
            self._unknown = kind
            self._call_bytes += len(str(delta))
        self._check_length()

    def _show(self, block: _Block, text: str, thought: str) -> None:
        """Have the listener see what was added to a block of text or thinking."""
        if block.kind in ("text", "thinking") and (text or thought):
            self._fresh_text.append(text)
            self._fresh_reasoning.append(thought)

    def _count(self, usage: object) -> None:
        self._counts = merged(self._counts, fields_of(usage))
        self.usage = reported(self._counts) or self.usage

    def _joined(self) -> object:
        cut = FINISH_REASONS.get(self._stop_reason) in CUT_OFF
        blocks = (block.whole(cut=cut) for block in self._blocks.values())
        return {
            **self._words,
            "content": [block for block in blocks if block is not None],
            "stop_reason": self._stop_reason,
            "usage": self._counts,
            UNKNOWN: self._unknown,
        }

    def _whole(self, body: bytes) -> object:
        message = parsed(body)
        fields = fields_of(message)
        if fields.get("type") == "error" or (fields.get("error") and not fields.get("content")):
            raise ErrorInAnswer(fields.get("error") or message)
        self.usage = reported(fields.get("usage"))
        return message


def _place(index: object) -> int | None:
    return index if isinstance(index, int) else None


def _size(text: object) -> int:
    return len(raw_text(text).encode("utf-8", "surrogatepass"))
