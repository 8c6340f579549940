"""What a watcher of a run receives: execution events, answer text as it streams, tools' progress. Calls no server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field, TypeAdapter
from pydantic_core import to_json

from holdfast.core.base.bounds import PROGRESS_CHARS_MAX, RESPONSE_BYTES_MAX
from holdfast.core.conversation.amounts import duration, wait_line
from holdfast.core.tools.call_context import ToolProgress
from holdfast.core.wire.contracts import CallProgress
from holdfast.core.wire.execution_events import AnyObserved


@dataclass(frozen=True, slots=True)
class TextDelta:
    """The part of an answer's text that arrived since the previous delta.

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
    """An attempt of a model call failed and will be retried: the text received so far for this step is void.

    With step 0, it was an attempt to list the tools of the agent's MCP servers: the run begins once they are known.
    `message` is the cause, as far as the server knows it; `next_at` is when the retry starts, if it has not started
    yet. Only clients that watch at that moment receive this event.
    """

    kind: Literal["AttemptFailed"] = field(default="AttemptFailed", kw_only=True)
    execution_id: str
    step_number: int
    attempt: int
    message: str
    next_at: datetime | None = None

    def line(self, now: datetime) -> str:
        """Return the line shown to people."""
        if not self.step_number:
            return listing_line(self.message, self.attempt, self.next_at, now)
        return retry_line(self.message, self.attempt, self.next_at, now)


def listing_line(message: str, attempt: int, next_at: datetime | None, now: datetime) -> str:
    """Return the line about a failed attempt to list MCP servers, which a run waits for before it begins."""
    seconds = (next_at - now).total_seconds() if next_at is not None else 0.0
    soon = f"in {duration(seconds)}" if seconds > 0 else "now"
    return f"waiting for the agent's MCP servers, attempt {attempt} failed, next {soon}: {message}"


def retry_line(message: str, attempt: int, next_at: datetime | None, now: datetime) -> str:
    """Return the line shown to people about a failed attempt, with the wait if the next one is still to come."""
    if next_at is None or next_at <= now:
        return f"attempt {attempt} failed, asking again: {message}"
    return wait_line(message, attempt, (next_at - now).total_seconds())


@dataclass(frozen=True, slots=True)
class ToolProgressed:
    """How far a tool call is, as the tool reports it with `ToolContext.progress`; `fraction` is between 0 and 1.

    Only clients that watch at that moment receive this event, and of several reports in a second perhaps only the last.
    """

    kind: Literal["ToolProgressed"] = field(default="ToolProgressed", kw_only=True)
    execution_id: str
    step_number: int
    call_id: str
    tool: str
    attempt: int
    text: str
    fraction: float | None

    @classmethod
    def of(cls, execution_id: str, report: ToolProgress) -> ToolProgressed:
        """Return the event of a report."""
        call = (report.step, report.call_id, report.tool, report.attempt)
        return cls(execution_id, *call, report.text, report.fraction)

    @property
    def line(self) -> str:
        """What people are shown: `40% page 2 of 5`."""
        share = "" if self.fraction is None else f"{self.fraction:.0%}"
        return " ".join(filter(None, (share, " ".join(self.text.split()))))


@dataclass(frozen=True, slots=True)
class WorkerAwaited:
    """A tool call waits: no worker has lately asked its task queue for work; with `over`, one has taken the call.

    Only clients that watch at that moment receive this event.
    """

    kind: Literal["WorkerAwaited"] = field(default="WorkerAwaited", kw_only=True)
    execution_id: str
    step_number: int
    call_id: str
    tool: str
    task_queue: str
    over: bool = False

    @property
    def line(self) -> str:
        """What people are shown behind the tool's name."""
        if self.over:
            return "begins: a worker has taken it"
        return f"waits for a worker of the task queue {self.task_queue!r}: none has lately asked for work"


@dataclass(frozen=True, slots=True)
class RateLimitAwaited:
    """A model call waits before it is made, mostly for the rate limits of its route; with `over`, it does no more.

    `reason` is what it waits for. Only clients that watch at that moment receive this event.
    """

    kind: Literal["RateLimitAwaited"] = field(default="RateLimitAwaited", kw_only=True)
    execution_id: str
    step_number: int
    reason: str
    over: bool = False

    @property
    def line(self) -> str:
        """What people are shown behind "the model call"."""
        return "has waited long enough" if self.over else f"waits for {self.reason}"


Watched: TypeAlias = AnyObserved | TextDelta | AttemptFailed | ToolProgressed | WorkerAwaited | RateLimitAwaited
"""Everything a watcher can receive, distinguished by `kind`."""


@cache
def _adapter() -> TypeAdapter[Watched]:
    return TypeAdapter(Annotated[Watched, Field(discriminator="kind")])


def to_dict(watched: Watched) -> dict[str, Any]:
    """Return a watched event as JSON-ready data, including its `kind`."""
    data: dict[str, Any] = _adapter().dump_python(watched, mode="json")
    return data


def from_dict(data: object) -> Watched:
    """Return the event that `to_dict` converted. Raises pydantic's ValidationError, a ValueError."""
    return _adapter().validate_python(data)


class AnswerSeen:
    """One model call as its watcher has seen it: how much of its text was delivered."""

    def __init__(self, execution_id: str, step_number: int) -> None:
        self.step_number: Final = step_number
        self._execution_id = execution_id
        self._attempt = 1
        self._wait = ""
        self._place = 0
        """How many characters of this attempt's text were delivered or skipped."""
        self._end = ""
        """The text delivered without a gap up to that place, at most PROGRESS_CHARS_MAX characters."""

    def looked(
        self, attempt: int, failure: str, progress: CallProgress | None, next_at: datetime | None = None
    ) -> Iterator[TextDelta | AttemptFailed]:
        """Yield what is new in a poll of the call: its attempt, why the previous one failed, and its progress.

        `next_at` is when that attempt starts, if it has not started yet.
        """
        if attempt > self._attempt:
            yield self._failed(attempt, failure, next_at)
        if progress is None or progress.attempt != self._attempt or progress.chars <= self._place:
            return
        missed = progress.chars - self._place
        text = progress.tail[-missed:]
        yield self._delta(text, missed - len(text))

    def waits(self, reason: str) -> Iterator[RateLimitAwaited]:
        """Yield what is new of the call's wait, by a poll: what it waits for, empty where it does not."""
        if self._wait and reason != self._wait:
            yield RateLimitAwaited(self._execution_id, self.step_number, self._wait, over=True)
        if reason and reason != self._wait:
            yield RateLimitAwaited(self._execution_id, self.step_number, reason)
        self._wait = reason

    def answered(self, text: str) -> Iterator[TextDelta | AttemptFailed | RateLimitAwaited]:
        """Yield the rest of the complete answer; it can belong to an attempt that no poll has seen."""
        yield from self.waits("")
        if self._place > len(text) and len(to_json(text)) > RESPONSE_BYTES_MAX // 2:
            return  # the stored answer is truncated; more than that was already delivered
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
