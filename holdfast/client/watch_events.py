"""What a watcher of a run receives: execution events, and the text of answers as it streams. Asks no server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field, TypeAdapter
from pydantic_core import to_json

from holdfast.core.base.bounds import PROGRESS_CHARS_MAX, RESPONSE_BYTES_MAX
from holdfast.core.conversation.amounts import wait_line
from holdfast.core.wire.contracts import CallProgress
from holdfast.core.wire.execution_events import AnyObserved


@dataclass(frozen=True, slots=True)
class TextDelta:
    """What has come of an answer's text since the delta before it.

    The deltas since a step's InferenceRequestStarted, or since its last AttemptFailed, make up the answer's text in
    order, the last of them just before its InferenceResponseReceived. A watcher that came late or was slow has missed
    `skipped` characters before this text; the InferenceResponseReceived has them all. `attempt` counts from 1.
    """

    kind: Literal["TextDelta"] = field(default="TextDelta", kw_only=True)
    execution_id: str
    step_number: int
    attempt: int
    text: str
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class AttemptFailed:
    """An attempt of a model call failed and the model is asked again: what has been told of its text is void.

    `message` says why, as far as the server knows; `next_at` is when the model is asked again, where that is to come.
    Only who watches at that moment is told.
    """

    kind: Literal["AttemptFailed"] = field(default="AttemptFailed", kw_only=True)
    execution_id: str
    step_number: int
    attempt: int
    message: str
    next_at: datetime | None = None

    def line(self, now: datetime) -> str:
        """Return how people are told of it."""
        return retry_line(self.message, self.attempt, self.next_at, now)


def retry_line(message: str, attempt: int, next_at: datetime | None, now: datetime) -> str:
    """Return how people are told of an attempt that failed, of a wait where the next one is to come."""
    if next_at is None or next_at <= now:
        return f"attempt {attempt} failed, asking again: {message}"
    return wait_line(message, attempt, (next_at - now).total_seconds())


Watched: TypeAlias = AnyObserved | TextDelta | AttemptFailed
"""Whatever a watcher is told; each says its `kind`."""


@cache
def _adapter() -> TypeAdapter[Watched]:
    return TypeAdapter(Annotated[Watched, Field(discriminator="kind")])


def to_dict(watched: Watched) -> dict[str, Any]:
    """Return what a watcher was told as JSON-ready data; it says its `kind`."""
    data: dict[str, Any] = _adapter().dump_python(watched, mode="json")
    return data


def from_dict(data: object) -> Watched:
    """Return what `to_dict` was given; raises pydantic's ValidationError, a ValueError."""
    return _adapter().validate_python(data)


class AnswerSeen:
    """One model call as its watcher has seen it: what has been told of its text."""

    def __init__(self, execution_id: str, step_number: int) -> None:
        self.step_number: Final = step_number
        self._execution_id = execution_id
        self._attempt = 1
        self._place = 0
        """Up to which character of this attempt's text it has been told."""
        self._end = ""
        """The text before that place that was told without a gap, at most PROGRESS_CHARS_MAX of it."""

    def looked(
        self, attempt: int, failure: str, progress: CallProgress | None, next_at: datetime | None = None
    ) -> Iterator[TextDelta | AttemptFailed]:
        """Give what is new at a look at the call: which attempt is made, why the one before failed, how far it is.

        `next_at` is when that attempt begins, where it has not yet.
        """
        if attempt > self._attempt:
            yield self._failed(attempt, failure, next_at)
        if progress is None or progress.attempt != self._attempt or progress.chars <= self._place:
            return
        missed = progress.chars - self._place
        text = progress.tail[-missed:]
        yield self._delta(text, missed - len(text))

    def answered(self, text: str) -> Iterator[TextDelta | AttemptFailed]:
        """Give what is missing of the whole answer; it can be that of an attempt that nobody looked at."""
        if self._place > len(text) and len(to_json(text)) > RESPONSE_BYTES_MAX // 2:
            return  # it is cut to what is kept of an answer; more than that has been told
        if self._place > len(text) or not text.startswith(self._end, self._place - len(self._end)):
            yield self._failed(self._attempt + 1, "")
        if self._place < len(text):
            yield self._delta(text[self._place :], 0)

    def _failed(self, next_attempt: int, message: str, next_at: datetime | None = None) -> AttemptFailed:
        self._attempt, self._place, self._end = next_attempt, 0, ""
        return AttemptFailed(self._execution_id, self.step_number, next_attempt - 1, message, next_at)

    def _delta(self, text: str, skipped: int) -> TextDelta:
        self._place += skipped + len(text)
        self._end = (text if skipped else self._end + text)[-PROGRESS_CHARS_MAX:]
        return TextDelta(self._execution_id, self.step_number, self._attempt, text, skipped)
