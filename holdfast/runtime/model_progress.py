"""How far a model call has come: what its listener hears, its heartbeats carry, a cancelled one returns."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from io import StringIO
from typing import Any, Final

from pydantic import ValidationError

from holdfast.core.agent.model import AnswerPart, ModelRequest
from holdfast.core.agent.usage_estimates import (
    CUT_TOKENS_MAX,
    HEARTBEAT_TOKENS_MAX,
    cut_usage,
    hidden_tokens,
    input_bound,
)
from holdfast.core.base.bounds import PROGRESS_CHARS_MAX, REASONING_BYTES_MAX, RESPONSE_BYTES_MAX, WORD_CHARS_MAX
from holdfast.core.base.safe_text import clamped, clamped_json
from holdfast.core.base.usage import NOTHING_USED, Usage
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.core.wire.contracts import CallProgress

CANCELLED: Final = "cancelled"
"""The finish reason of an answer whose call was cancelled: our own word, no provider's."""


class Progress:
    """An attempt's progress; `failed_usage` is what the attempts before it used, reported or bounded from above.

    On Temporal each attempt has one of its own (`after`); in-process one serves all attempts of a call (`begin_again`).
    An attempt counts from the moment its request is `begin`-ed, unless the model tells that it was not sent.
    """

    def __init__(
        self,
        failed_usage: Usage = NOTHING_USED,
        attempt: int = 1,
        begun_at: datetime | None = None,
        unheard: int = 0,
        failures: int = 0,
    ) -> None:
        self.failed_usage = failed_usage
        self.begun_at = begun_at
        """When the first attempt began, by the server's clock; none in-process."""
        self.failures = failures
        """How many attempts failed by themselves; the others before this one were lost with their workers."""
        self._attempt = attempt
        self._unheard = unheard
        self._reset()

    def _reset(self) -> None:
        self._void = self._over = False
        self._usage: Usage | None = None
        self._request: ModelRequest | None = None
        self._input_max: int | None = None
        self._sent = True
        self._unseen = False
        self._came_bytes = 0
        self._text = _BoundedText(RESPONSE_BYTES_MAX)
        self._reasoning = _BoundedText(REASONING_BYTES_MAX)
        self._model = self._response_id = ""

    @classmethod
    def after(cls, heartbeat_details: Sequence[Any], attempt: int = 1) -> Progress:
        """Begin where the attempt before this one left off: its last heartbeat says what it had used.

        Every attempt that ends by itself leaves its own. One that left none was lost before its first heartbeat:
        whether its request had gone out is not known, so it counts as well (`count_unheard`).
        """
        try:
            # details may be those of another version's worker
            left = CallProgress.model_validate(heartbeat_details[0]) if heartbeat_details else CallProgress(attempt=0)
        except ValidationError:  # not ours
            left = CallProgress(attempt=0)
        unheard = max(0, attempt - 1 - left.attempt)
        return cls(left.failed_usage + left.if_lost, attempt, left.begun_at, unheard, left.failures)

    def begin(self, request: ModelRequest) -> None:
        """Take note that `request` is made now."""
        self._request = request

    def count_unheard(self, request: ModelRequest) -> None:
        """Count the attempts at `request` of which nothing was heard."""
        if self._unheard:
            lost, self._unheard = self._unheard, 0
            each = cut_usage(None, lambda: input_bound(request), HEARTBEAT_TOKENS_MAX, request.max_output_tokens)
            for _ in range(lost):
                self.failed_usage += each

    def hear(self, part: AnswerPart) -> None:
        """Take note of what has come."""
        self._text.add(part.text)
        self._reasoning.add(part.reasoning)
        self._model, self._response_id = part.model or self._model, part.response_id or self._response_id
        self._sent, self._unseen = part.sent, part.unseen
        if part.usage is not None:
            self._usage, self._came_bytes = part.usage, 0
        else:
            # no tokenizer is known for every model; a token has at least one byte
            self._came_bytes += len(part.text.encode()) + len(part.reasoning.encode()) + part.call_bytes

    def fail(self, usage: Usage = NOTHING_USED, *, free: bool = False) -> Usage:
        """Take note that the attempt failed, having used so much or what it counts; return what all used.

        `free` says that its endpoint did no work for it.
        """
        # the last report replaces bytes that were counted before it
        if usage not in (NOTHING_USED, self._usage):
            self._usage, self._came_bytes = usage, 0
        self.failed_usage += (self._usage or NOTHING_USED) if free else self._counted()
        self._usage, self._request, self._void = None, None, True  # counted
        self.failures += 1
        return self.failed_usage

    def begin_again(self) -> None:
        """Go over to the next attempt: what had come of the answer of one that failed is void."""
        self._attempt += 1
        self._reset()

    def _counted(self, *, lost: bool = False) -> Usage:
        """Return what the attempt counts when it ends here, or when it is `lost`: reported or bounded from above."""
        request = self._request
        if request is None or not (self._sent or (lost and not self._over)):  # sent a moment later, maybe
            return self._usage or NOTHING_USED
        # between the last heartbeat and the death more has come that nobody saw
        more = HEARTBEAT_TOKENS_MAX if lost else 0
        if self._usage is None or self._came_bytes:
            more = hidden_tokens(request.max_output_tokens) if self._unseen else max(more, CUT_TOKENS_MAX)
        return cut_usage(self._usage, self._input_bound, self._came_bytes + more, request.max_output_tokens)

    def _input_bound(self) -> int:
        if self._input_max is None and self._request is not None:
            self._input_max = input_bound(self._request)
        return self._input_max or 0

    def details(self) -> CallProgress:
        """Return what a heartbeat tells."""
        return CallProgress(
            attempt=self._attempt - self._unheard - int(self._may_begin),  # those stay to be counted
            chars=self._text.chars,
            tail=self._text.tail,
            usage=self._usage,
            failed_usage=self.failed_usage,
            begun_at=self.begun_at,
            failures=self.failures,
            if_lost=self._counted(lost=True),
        )

    @property
    def _may_begin(self) -> bool:
        """Whether its request is made at any moment: a worker that is lost then has not told of it."""
        return self._request is None and not self._over and not self._void

    def end(self) -> None:
        """Take note that the attempt goes no further here."""
        self._over = True

    def partial(self) -> InferenceResponse | None:
        """Return what has come as an answer without tool calls; none when it counts nothing, or when it failed."""
        counted = self._counted()
        known = (self._text.chars, self._reasoning.chars, counted.total_tokens, self._model, self._response_id)
        if self._void or not any(known):
            return None
        return InferenceResponse(
            text=clamped_json(self._text.beginning, RESPONSE_BYTES_MAX),
            reasoning=clamped_json(self._reasoning.beginning, REASONING_BYTES_MAX),
            finish_reason=CANCELLED,
            usage=counted,
            model=clamped(self._model, WORD_CHARS_MAX),
            response_id=clamped(self._response_id, WORD_CHARS_MAX),
        )


class _BoundedText:
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
