"""Splits off what a model thinks aloud in the text of its answer, between `<think>` and `</think>` at its beginning.

Servers without a parser of their own send it there. It is no part of the answer, and does not go back to the model.
"""

from __future__ import annotations

from typing import Final

OPENING: Final = "<think>"
CLOSING: Final = "</think>"


class ThinkTags:
    """Splits one text, piece by piece: `take` each, then `rest`."""

    def __init__(self) -> None:
        self._pending: str = ""
        self._thinking: bool | None = None  # none until the text has begun with something
        self._after_tag = False  # the blanks behind the closing tag are no part of the answer

    def take(self, piece: str) -> tuple[str, str]:
        """Return what of the text so far, and not returned yet, is certainly answer, and what is thinking."""
        if self._thinking is False:
            piece = piece.lstrip() if self._after_tag else piece
            self._after_tag = self._after_tag and not piece
            return piece, ""
        pending: str = self._pending + piece
        if self._thinking is None:
            begun = pending.lstrip()
            if len(begun) < len(OPENING) and OPENING.startswith(begun):
                self._pending = pending
                return "", ""
            self._thinking = begun.startswith(OPENING)
            if not self._thinking:
                self._pending = ""
                return pending, ""
            pending = begun.removeprefix(OPENING)
        thought, closing, answer = pending.partition(CLOSING)
        if closing:
            self._thinking, self._pending, self._after_tag = False, "", True
            return self.take(answer)[0], thought
        # the end may be the beginning of the closing tag
        cut = next((n for n in range(len(CLOSING) - 1, 0, -1) if thought.endswith(CLOSING[:n])), 0)
        self._pending = thought[len(thought) - cut :]
        return "", thought[: len(thought) - cut]

    def rest(self) -> tuple[str, str]:
        """Return what is left at the end of the text: answer, and thinking that was never closed."""
        pending, self._pending = self._pending, ""
        return ("", pending) if self._thinking else (pending, "")


def split(text: str) -> tuple[str, str]:
    """Return the answer in a whole text, and what was thought before it."""
    tags = ThinkTags()
    answer, thought = tags.take(text)
    rest, unclosed = tags.rest()
    return answer + rest, thought + unclosed
