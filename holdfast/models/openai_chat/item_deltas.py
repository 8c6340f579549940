"""Assembles what `chat_items` reads from a streamed answer: details of reasoning, signatures, parts of the content."""

from __future__ import annotations

from io import StringIO
from typing import Any, Final, cast

from holdfast.models.answer_errors import UnusableAnswer
from holdfast.models.event_stream import fields_of, joined, word_of
from holdfast.models.openai_chat.chat_completion import NO_COMPLETION
from holdfast.models.openai_chat.chat_items import NOT_KEPT, json_chars, merge, thinking_text

PIECES_MAX: Final = 4_096
"""The most details of reasoning, and the most parts of a content, that one answer has."""

JOINED: Final = ("text", "summary", "data")
"""The fields of a detail that come in pieces; of the others the last one that says something counts."""


class ItemDeltas:
    """The parts of one answer that are neither text nor calls. `take` a delta, then see what `message` has of them."""

    def __init__(self) -> None:
        self._details: list[dict[str, Any]] = []
        self._latest: dict[tuple[str, int | None], dict[str, Any]] = {}
        self._extra: dict[str, Any] = {}
        self._parts: list[_Part] = []
        self._not_kept: dict[str, None] = {}

    def take(self, delta: dict[str, object]) -> int:
        """Add what a delta has, and return how many characters of it are kept."""
        self._not_kept.update((name, None) for name in NOT_KEPT if delta.get(name))
        details, extra = delta.get("reasoning_details"), fields_of(delta.get("extra_content"))
        chars = 0
        if isinstance(details, list):
            chars = sum(self._take_detail(fields_of(each)) for each in cast("list[object]", details))
        return chars + (merge(self._extra, extra) if extra else 0)

    def take_content(self, content: object, so_far: StringIO) -> tuple[str, str, int]:
        """Add a delta's content; return its text, its thinking, and how many characters of other parts are kept.

        `so_far` is the answer's text before it: most answers have no parts, and their text is not kept twice.
        """
        if not isinstance(content, list):
            text = content if isinstance(content, str) else ""
            if text and self._parts:
                self._part("text").text.write(text)
            return text, "", 0
        if not self._parts and so_far.tell():
            self._part("text").text.write(so_far.getvalue())
        text, thinking, chars = "", "", 0
        for part in map(fields_of, cast("list[object]", content)):
            if not part or not isinstance(part.get("text", ""), str):
                raise UnusableAnswer(NO_COMPLETION)
            kind, words = part.get("type"), cast("str", part.get("text", ""))
            if kind == "text":
                self._part("text").text.write(words)
                text += words
            elif kind == "thinking":
                self._part("thinking").add(part)
                thinking += thinking_text(part)
            else:  # of a kind that we do not know: it goes back as it came
                self._part("").fields.update(part)
                text += words
                chars += json_chars(part)
        return text, thinking, chars

    def message(self) -> dict[str, object]:
        """Return the fields of the answer's message that these are, a content only where it has more than text."""
        fields: dict[str, object] = dict.fromkeys(self._not_kept, True)
        if self._details:
            fields["reasoning_details"] = [_joined(each) for each in self._details]
        if self._extra:
            fields["extra_content"] = self._extra
        if any(part.kind != "text" for part in self._parts):
            fields["content"] = [part.wire() for part in self._parts]
        return fields

    def _take_detail(self, detail: dict[str, Any]) -> int:
        """Add a piece of a detail of reasoning; those with one index are one.

        OpenRouter sends a signature behind the text that it signs, in a piece of its own, and refuses pieces.
        """
        index = place if isinstance(place := detail.get("index"), int) else None
        key = (word_of(detail.get("type")), index)
        whole = None if index is None else self._latest.get(key)
        if whole is None:
            if len(self._details) >= PIECES_MAX:
                raise UnusableAnswer(f"the answer has more than {PIECES_MAX:,} details of reasoning")
            whole = self._latest[key] = {}
            self._details.append(whole)
        for name, value in detail.items():
            if name in JOINED and isinstance(value, str):
                if not isinstance(whole.get(name), StringIO):
                    whole[name] = StringIO()
                whole[name].write(value)
            elif value is not None or name not in whole:
                whole[name] = value
        return json_chars(detail)

    def _part(self, kind: str) -> _Part:
        """Return the part that a piece of this kind continues; one that we do not know stands alone."""
        if not self._parts or self._parts[-1].kind != kind or not kind:
            if len(self._parts) >= PIECES_MAX:
                raise UnusableAnswer(f"the answer's content has more than {PIECES_MAX:,} parts")
            self._parts.append(_Part(kind))
        return self._parts[-1]


class _Part:
    """One part of a content in the making."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.text = StringIO()
        self.fields: dict[str, Any] = {}
        self._plain = False

    def add(self, part: dict[str, Any]) -> None:
        self._plain = self._plain or isinstance(part.get("thinking"), str)
        self.text.write(thinking_text(part))
        self.fields.update((name, value) for name, value in part.items() if name not in ("type", "thinking"))

    def wire(self) -> dict[str, Any]:
        if not self.kind:
            return self.fields
        text = joined(self.text)
        if self.kind == "text":
            return {"type": "text", "text": text}
        thinking = text if self._plain else [{"type": "text", "text": text}]
        return {"type": "thinking", "thinking": thinking, **self.fields}


def _joined(detail: dict[str, Any]) -> dict[str, Any]:
    return {name: joined(value) if isinstance(value, StringIO) else value for name, value in detail.items()}
