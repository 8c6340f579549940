"""How far a model call has come: what its listener hears, its heartbeats carry, a cancelled one returns."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from typing import Any, Final

from pydantic import ValidationError

from holdfast.core.contracts import CallProgress
from holdfast.core.inference import AnswerPart
from holdfast.core.limits import PROGRESS_CHARS_MAX, REASONING_BYTES_MAX, RESPONSE_BYTES_MAX, WORD_CHARS_MAX
from holdfast.core.steps import InferenceResponse
from holdfast.core.texts import clamped, clamped_json
from holdfast.core.usage import NOTHING_USED, Usage

CANCELLED: Final = "cancelled"
"""The finish reason of an answer whose call was cancelled: our own word, no provider's."""


class Progress:
    """An attempt's progress; `failed_usage` is what the attempts before it used, as far as anybody said.

    On Temporal each attempt has one of its own (`after`); in-process one serves all attempts of a call (`begin_again`).
    """

    def __init__(self, failed_usage: Usage = NOTHING_USED, attempt: int = 1) -> None:
        self.failed_usage = failed_usage
        self._attempt = attempt
        self._begin()

    def _begin(self) -> None:
        self._void = False
        self._usage: Usage | None = None
        self._text = _Kept(RESPONSE_BYTES_MAX)
        self._reasoning = _Kept(REASONING_BYTES_MAX)
        self._model = self._response_id = ""

    @classmethod
    def after(cls, heartbeat_details: Sequence[Any], attempt: int = 1) -> Progress:
        """Begin where the attempt before this one left off: its last heartbeat says what it had used."""
        if not heartbeat_details:
            return cls(attempt=attempt)
        try:
            left = CallProgress.model_validate(heartbeat_details[0])
        except ValidationError:  # not ours
            return cls(attempt=attempt)
        return cls(left.failed_usage + (left.usage or NOTHING_USED), attempt)

    def hear(self, part: AnswerPart) -> None:
        """Take note of what has come."""
        self._text.add(part.text)
        self._reasoning.add(part.reasoning)
        self._usage = part.usage or self._usage
        self._model, self._response_id = part.model or self._model, part.response_id or self._response_id

    def fail(self, usage: Usage = NOTHING_USED) -> Usage:
        """Take note that the attempt failed, having used so much or what was last heard; return what all used."""
        self.failed_usage += usage if usage != NOTHING_USED else self._usage or NOTHING_USED
        self._usage, self._void = None, True  # counted
        return self.failed_usage

    def begin_again(self) -> None:
        """Go over to the next attempt: what had come of the answer of one that failed is void."""
        self._attempt += 1
        self._begin()

    def details(self) -> CallProgress:
        """Return what a heartbeat tells."""
        return CallProgress(
            attempt=self._attempt,
            chars=self._text.chars,
            tail=self._text.tail,
            usage=self._usage,
            failed_usage=self.failed_usage,
        )

    def partial(self) -> InferenceResponse | None:
        """Return what has come as an answer without tool calls; none when nothing is known of it, or when it failed."""
        known = (self._text.chars, self._reasoning.chars, self._usage, self._model, self._response_id)
        if self._void or not any(known):
            return None
        return InferenceResponse(
            text=clamped_json(self._text.beginning, RESPONSE_BYTES_MAX),
            reasoning=clamped_json(self._reasoning.beginning, REASONING_BYTES_MAX),
            finish_reason=CANCELLED,
            usage=self._usage or NOTHING_USED,
            model=clamped(self._model, WORD_CHARS_MAX),
            response_id=clamped(self._response_id, WORD_CHARS_MAX),
        )


class _Kept:
    """A text that grows: its beginning up to a limit, its end, and how long it is."""

    def __init__(self, chars_max: int) -> None:
        self.chars = 0
        self.tail = ""
        self._chars_max = chars_max
        self._beginning = StringIO()

    def add(self, text: str) -> None:
        room = self._chars_max - self.chars
        if room > 0:
            self._beginning.write(text[:room])
        self.chars += len(text)
        self.tail = (self.tail + text)[-PROGRESS_CHARS_MAX:]

    @property
    def beginning(self) -> str:
        return self._beginning.getvalue()
