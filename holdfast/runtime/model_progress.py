"""`Progress`: tracks a model call's answer and usage, for heartbeats and for the partial answer after a cancel."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from io import StringIO
from typing import Any, Final

from pydantic import ValidationError

from holdfast.core.agent.model import AnswerPart, BackgroundAnswer, ModelRequest
from holdfast.core.agent.usage_estimates import (
    CUT_TOKENS_MAX,
    HEARTBEAT_TOKENS_MAX,
    cut_usage,
    hidden_tokens,
    input_bound,
)
from holdfast.core.base.bounds import PROGRESS_CHARS_MAX, REASONING_BYTES_MAX, RESPONSE_BYTES_MAX, WORD_CHARS_MAX
from holdfast.core.base.errors import ModelFailure
from holdfast.core.base.retries import OutputLimits, allowed_output
from holdfast.core.base.safe_text import clamped, clamped_json
from holdfast.core.base.usage import NOTHING_USED, Usage
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.core.wire.contracts import CallProgress

CANCELLED: Final = "cancelled"
"""The finish reason of an answer whose call was cancelled: our own word, no provider's."""


class Progress:
    """An attempt's progress; `failed_usage` is the usage of earlier attempts, reported or as an upper bound.

    On Temporal each attempt has one of its own (`after`); in-process one serves all attempts of a call (`begin_again`).
    An attempt counts from `begin` on, unless the model reports that the request was not sent.

    An answer that goes on at the provider (`background`) is counted once, by the attempt that ends with it, however
    many resume it. Until then it counts its whole output limit wherever it may be lost. What lost attempts had left
    of the budget is known only then: their count is kept apart until it is final.
    """

    def __init__(
        self,
        failed_usage: Usage = NOTHING_USED,
        attempt: int = 1,
        begun_at: datetime | None = None,
        unreported: int = 0,
        failures: int = 0,
    ) -> None:
        self._settled = failed_usage
        self._unsettled = NOTHING_USED  # what lost attempts count while `background` may still turn out smaller
        self.begun_at = begun_at
        """When the first attempt began, by the server's clock; none in-process."""
        self.failures = failures
        """How many attempts failed by themselves; the others before this one were lost with their workers."""
        self.background: BackgroundAnswer | None = None
        """The answer under way at the provider, which the next attempt resumes; none where there is none."""
        self.is_background: Final = asyncio.Event()
        """Set once this attempt has such an answer."""
        self.waited_seconds = 0.0
        """How long the call waited for its route's rate limits, in the attempts that this one counts."""
        self._attempt = attempt
        self._unreported = unreported
        self._lost: tuple[OutputLimits, int] | None = None  # what bounds those, and their input
        self._if_lost = NOTHING_USED  # what `background` counts before this attempt knows it
        self._reset()

    def _reset(self) -> None:
        self._void = self._over = False
        self._usage: Usage | None = None
        self._request: ModelRequest | None = None
        self._input_max: int | None = None
        self._sent = True
        self._unseen = False
        self._hidden = False  # whether the provider may have made parts of the answer that were not seen, and never are
        self._came_bytes = 0
        self._text = _BoundedText(RESPONSE_BYTES_MAX)
        self._reasoning = _BoundedText(REASONING_BYTES_MAX)
        self._model = self._response_id = self._route = self._wait = ""

    @classmethod
    def after(cls, heartbeat_details: Sequence[Any], attempt: int = 1) -> Progress:
        """Return the progress after the previous attempt, whose last heartbeat has its usage.

        Every attempt that ends by itself leaves a heartbeat. One without was lost before its first: whether its
        request was sent is unknown, so it counts as well (`count_unreported`).
        """
        try:
            # details may be those of another version's worker
            last = CallProgress.model_validate(heartbeat_details[0]) if heartbeat_details else CallProgress(attempt=0)
        except ValidationError:  # not ours
            last = CallProgress(attempt=0)
        unreported = max(0, attempt - 1 - last.attempt)
        if last.background is None:
            return cls(last.failed_usage + last.if_lost, attempt, last.begun_at, unreported, last.failures)
        progress = cls(last.failed_usage, attempt, last.begun_at, unreported, last.failures)
        progress.background, progress._if_lost = last.background, last.if_lost
        return progress

    @property
    def failed_usage(self) -> Usage:
        """The usage of the attempts that have ended or were lost."""
        return self._settled + self._unsettled

    @property
    def counted_usage(self) -> Usage:
        """The usage of the attempts that have ended, and of an answer that goes on, as if it were lost."""
        return self.failed_usage + (self._counted(lost=True) if self.background else NOTHING_USED)

    @property
    def usage_if_lost(self) -> Usage:
        """The usage of all attempts, this one as if nothing more were heard of it."""
        return self.failed_usage + self._counted(lost=True)

    def begin(self, request: ModelRequest) -> None:
        """Note that `request` is being sent."""
        self._request = request
        self._hidden = request.resume is not None

    def count_unreported(self, limits: OutputLimits, request: ModelRequest | None = None) -> None:
        """Count the attempts at `request` that left no heartbeat, each within what the earlier ones left of `limits`.

        One for which they left nothing has asked nobody. Where the request is not known, the input is what the limits
        tell: nothing without a budget.
        """
        if self._unreported:  # to bound the input may be to count the whole conversation
            self._lost = limits, limits.input_max or 0 if request is None else input_bound(request)
            self._count_lost()

    def _count_lost(self) -> None:
        """Count the attempts that left no heartbeat, once more whenever the answer in the background counts less."""
        if self._lost is None:
            return
        (limits, input_max), self._unsettled = self._lost, NOTHING_USED
        for _ in range(self._unreported):
            try:
                limit = allowed_output(limits, self.counted_usage)
            except ModelFailure:
                break
            self._unsettled += cut_usage(None, lambda: input_max, HEARTBEAT_TOKENS_MAX, limit)
        if self.background is None:
            self._settled, self._unsettled = self.failed_usage, NOTHING_USED
            self._lost, self._unreported = None, 0

    def add(self, part: AnswerPart) -> None:
        """Add a part of the answer."""
        self._text.add(part.text)
        self._reasoning.add(part.reasoning)
        self._model, self._response_id = part.model or self._model, part.response_id or self._response_id
        self._route = part.route or self._route
        self._sent, self._unseen, self._wait = part.sent, part.unseen, part.wait
        self.waited_seconds += part.waited_seconds
        self._note_background(part)
        if part.usage is not None:
            self._usage, self._came_bytes = part.usage, 0
        else:
            # no tokenizer is known for every model; a token has at least one byte
            self._came_bytes += len(part.text.encode()) + len(part.reasoning.encode()) + part.call_bytes

    def fail(self, usage: Usage = NOTHING_USED, *, free: bool = False) -> Usage:
        """Note that the attempt failed, with `usage` or its own count; return the usage of all attempts.

        `free` means that the endpoint did no work for it.
        """
        # the last report replaces bytes that were counted before it
        if usage not in (NOTHING_USED, self._usage):
            self._usage, self._came_bytes = usage, 0
        if self.background is not None:
            self._if_lost = self._counted()  # the next attempt resumes it
        else:
            self._settled += (self._usage or NOTHING_USED) if free else self._counted()
        self._usage, self._request, self._void = None, None, True  # counted
        self._count_lost()
        self.failures += 1
        return self.counted_usage

    def lose(self) -> None:
        """Count the answer that could not be resumed; the same attempt asks anew."""
        self._settled += self._counted()
        self._reset()
        self._count_lost()

    def give_up(self, usage: Usage | None, *, ended: bool) -> None:
        """Note that nobody resumes the answer at the provider, which has `ended` there, with `usage` where it says so.

        What goes on there counts its whole output limit.
        """
        if self._request is None:  # of an attempt before
            self._settled += usage or self._if_lost
            self.background = None
            self._count_lost()
        elif ended:
            if usage is not None:
                self._usage, self._came_bytes = usage, 0
            self.background = None

    def _note_background(self, part: AnswerPart) -> None:
        if part.lives_on is False:
            self.background = None
        elif (
            part.lives_on
            and self.background is None
            and self._request is not None
            and 0 < len(self._response_id) <= WORD_CHARS_MAX
        ):
            self.background = BackgroundAnswer(response_id=self._response_id, model=self._request.llm.model)
        if self.background is not None:
            self.is_background.set()
            self._hidden = self._hidden or part.unseen

    def begin_again(self) -> None:
        """Begin the next attempt: the partial answer of the failed one is discarded."""
        self._attempt += 1
        self._reset()

    def _counted(self, *, lost: bool = False) -> Usage:
        """Return the usage of the attempt if it ends here, or is `lost`: as reported, or an upper bound."""
        request = self._request
        if self.background is not None:
            return self._counted_in_background()
        # a lost one may have been sent a moment later; what is resumed was sent by an attempt before
        was_sent = self._sent or (lost and not self._over) or (request is not None and request.resume is not None)
        if request is None or not was_sent:
            return self._usage or NOTHING_USED
        # more may have arrived between the last heartbeat and the death
        more = HEARTBEAT_TOKENS_MAX if lost else 0
        if self._usage is None or self._came_bytes:
            more = (
                hidden_tokens(request.max_output_tokens) if self._unseen or self._hidden else max(more, CUT_TOKENS_MAX)
            )
        return cut_usage(self._usage, self._input_bound, self._came_bytes + more, request.max_output_tokens)

    def _counted_in_background(self) -> Usage:
        """Return what an answer counts that goes on at the provider: as much as it can have."""
        if self._request is None:
            return self._if_lost
        limit = self._request.max_output_tokens
        return cut_usage(self._usage, self._input_bound, hidden_tokens(limit), limit)

    def _input_bound(self) -> int:
        if self._input_max is None and self._request is not None:
            self._input_max = input_bound(self._request)
        return self._input_max or 0

    def details(self) -> CallProgress:
        """Return the heartbeat details."""
        return CallProgress(
            attempt=self._attempt - self._unreported - int(self._may_begin),  # those are still to be counted
            chars=self._text.chars,
            tail=self._text.tail,
            usage=self._usage,
            failed_usage=self._settled,
            begun_at=self.begun_at,
            failures=self.failures,
            if_lost=self._counted(lost=True),
            background=self.background,
            wait=self._wait,
        )

    @property
    def _may_begin(self) -> bool:
        """Whether its request may be sent at any moment: a worker that is lost then has not reported it."""
        return self._request is None and not self._over and not self._void and self.background is None

    def end(self) -> None:
        """Note that the attempt has ended here."""
        self._over = True

    def partial(self) -> InferenceResponse | None:
        """Return the partial answer, without tool calls; none when it is empty, or when the attempt failed."""
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
            route=self._route,
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
