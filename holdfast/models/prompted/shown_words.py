"""What a listener gets of an answer whose calls are text: its words, and of the calls their size. Reads no call."""

from __future__ import annotations

from dataclasses import replace

from holdfast.core.agent.model import AnswerListener, AnswerPart
from holdfast.models.prompted.call_blocks import CALL


class ShownWords:
    """Passes an answer's parts on to a listener, without what stands from the first call's tag on."""

    def __init__(self, listener: AnswerListener) -> None:
        self._listener = listener
        self._pending = ""
        self._shown_chars = 0
        self._in_calls = False

    def __call__(self, part: AnswerPart) -> None:
        """Pass on a part: what may be the beginning of a tag waits for the next one."""
        hidden = part.text
        shown = ""
        if not self._in_calls:
            words, tag, hidden = (self._pending + part.text).partition(CALL)
            self._in_calls = bool(tag)
            hidden = tag + hidden
            waiting = 0 if tag else _beginning_of_tag(words)
            shown, self._pending = words[: len(words) - waiting], words[len(words) - waiting :]
            self._shown_chars += len(shown)
        self._listener(replace(part, text=shown, call_bytes=part.call_bytes + len(hidden.encode())))

    def end(self, text: str) -> None:
        """Pass on the rest of an answer's `text` that has no call after all."""
        if len(text) > self._shown_chars:
            self._listener(AnswerPart(text[self._shown_chars :]))


def _beginning_of_tag(words: str) -> int:
    """Return how many characters at the end may be the beginning of a call's tag."""
    return next((length for length in range(len(CALL) - 1, 0, -1) if words.endswith(CALL[:length])), 0)
