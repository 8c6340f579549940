"""`RouteRate`: where the calls of one route wait until its rate limits let them through. One process's own."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from time import monotonic
from typing import Final

from holdfast.core.agent.model import AnswerPart, ModelRequest
from holdfast.core.agent.usage_estimates import input_bound
from holdfast.core.base.errors import ModelFailure
from holdfast.core.base.retries import FALLBACK_PATIENCE_SECONDS, RATE_WAIT_SECONDS_MAX
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.core.wire.endpoint_refusals import ROUTE_RESTS, UNAVAILABLE
from holdfast.models.answer_transfer import report
from holdfast.models.rate_limits.rate_headers import rate_report
from holdfast.models.rate_limits.response_observer import observing_responses
from holdfast.models.rate_limits.token_bucket import TokenBucket
from holdfast.models.routes import RateLimits

LOGGER: Final = logging.getLogger("holdfast.model")

LOOK_SECONDS: Final = 1.0
"""How long a call in line sleeps at once: what others give back can let it through sooner."""

OUTPUT_TOKENS: Final = 1_000
"""The most tokens that an answer is estimated at before it is there; then it counts those that it has."""

BYTES_PER_TOKEN: Final = 4
"""About how many bytes a token has in English text."""


class RouteRate:
    """The rate limits of a route as this process counts them, corrected by what the provider says of them.

    Calls go through in the order in which they came. A call counts as one request and as an estimate of its tokens;
    once it has ended, as those that it used.
    """

    def __init__(self, route: str, limits: RateLimits) -> None:
        self._route = route
        allowed = {"requests": limits.requests_per_minute, "tokens": limits.tokens_per_minute}
        self._buckets = {of: TokenBucket(limit, monotonic) for of, limit in allowed.items() if limit is not None}
        amounts = " and ".join(f"{limit:,} {of} a minute" for of, limit in allowed.items() if limit is not None)
        self._limited = f"the rate limit of the route {route!r}: {amounts}"
        self._paused = f"the provider of the route {route!r}, which allows nothing for now"
        self._paused_until = monotonic()
        self._line: deque[asyncio.Future[None]] = deque()

    async def call(self, request: ModelRequest, ask: Callable[[], Awaitable[InferenceResponse]]) -> InferenceResponse:
        """Return what `ask` answers, once the limits let it through; while it waits, the listener is told why.

        An answer that is resumed does not wait: it has been asked for, and its provider keeps it for minutes only.
        Raises as `ask` does, and ModelFailure, which costs nothing: after RATE_WAIT_SECONDS_MAX of waiting, and where
        another model can answer while the provider allows nothing for more than FALLBACK_PATIENCE_SECONDS.
        """
        tokens = estimated_tokens(request) if request.resume is None else 0
        if request.resume is None:
            await self._admit(request, tokens)
        used = tokens
        try:
            with observing_responses(self.note):
                response = await ask()
            used = response.usage.total_tokens
        except ModelFailure as failure:
            used = failure.usage.total_tokens or (0 if failure.free else tokens)
            raise
        finally:
            self._take("tokens", used - tokens)
        return response

    def note(self, status: int, headers: Mapping[str, str]) -> None:
        """Note what a response's headers say of the limits."""
        rates = rate_report(status, headers, datetime.now(UTC))
        self._paused_until = max(self._paused_until, monotonic() + rates.pause_seconds)
        for of, left in (("requests", rates.requests_left), ("tokens", rates.tokens_left)):
            if left is not None and of in self._buckets:
                self._buckets[of].lower_to(left)

    async def _admit(self, request: ModelRequest, tokens: int) -> None:
        """Return when the call may be made. Cancelled, it leaves the line with nothing taken. Raises ModelFailure."""
        self._check_pause(request)
        if not self._line and not self._wait_seconds(tokens):
            self._enter(tokens)
            return
        began = monotonic()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append(turn)
        try:
            async with asyncio.timeout(RATE_WAIT_SECONDS_MAX):
                await self._wait(request, tokens, turn)
        except ModelFailure:  # another model is to answer
            report(request, AnswerPart(sent=False, waited_seconds=monotonic() - began))
            raise
        except TimeoutError:
            report(request, AnswerPart(sent=False, waited_seconds=monotonic() - began))
            text = f"the call waited {RATE_WAIT_SECONDS_MAX:,.0f} s for {self._limited}"
            remedy = "allow more, or make fewer calls"
            raise ModelFailure(f"{text}; {remedy}", kind=UNAVAILABLE, again=True, free=True) from None
        finally:
            with suppress(ValueError):  # `_call_next` has taken it out
                self._line.remove(turn)
            self._call_next()
        report(request, AnswerPart(waited_seconds=monotonic() - began))

    async def _wait(self, request: ModelRequest, tokens: int, turn: asyncio.Future[None]) -> None:
        reported = ""
        if self._line[0] is not turn:
            reported = _reported(request, self._reason, reported)
            while not turn.done():
                await asyncio.wait([turn], timeout=LOOK_SECONDS)
                self._check_pause(request)
        while wait := self._wait_seconds(tokens):
            self._check_pause(request)
            reported = _reported(request, self._reason, reported)
            await asyncio.sleep(min(wait, LOOK_SECONDS))
        self._enter(tokens)

    def _check_pause(self, request: ModelRequest) -> None:
        """Raise ModelFailure for a call that need not wait for a long pause, because another model can answer it."""
        left = self._paused_until - monotonic()
        if request.may_fall_back and left > FALLBACK_PATIENCE_SECONDS:
            text = f"the provider of the route {self._route!r} allows nothing for another {left:.0f} s"
            raise ModelFailure(text, kind=ROUTE_RESTS, free=True)

    @property
    def _reason(self) -> str:
        return self._paused if self._paused_until > monotonic() else self._limited

    def _wait_seconds(self, tokens: int) -> float:
        waits = [self._paused_until - monotonic()]
        waits += (bucket.wait_seconds(1 if of == "requests" else tokens) for of, bucket in self._buckets.items())
        return max(0.0, *waits)

    def _enter(self, tokens: int) -> None:
        self._take("requests", 1)
        self._take("tokens", tokens)

    def _take(self, of: str, amount: int) -> None:
        if of in self._buckets:
            self._buckets[of].take(amount)

    def _call_next(self) -> None:
        """Let the first in line look whether it is let through; its event loop may be another one."""
        while self._line:
            turn = self._line[0]
            with suppress(RuntimeError):  # its loop is closed, so nobody waits there any more
                turn.get_loop().call_soon_threadsafe(_resolve, turn)
                return
            self._line.popleft()


def estimated_tokens(request: ModelRequest) -> int:
    """Return about how many tokens a call will use: an upper bound would keep calls waiting that fit."""
    output = OUTPUT_TOKENS if request.max_output_tokens is None else min(request.max_output_tokens, OUTPUT_TOKENS)
    return input_bound(request) // BYTES_PER_TOKEN + output


def _resolve(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)


def _reported(request: ModelRequest, reason: str, before: str) -> str:
    """Report why the call waits, unless that was reported `before`."""
    if reason != before:
        LOGGER.info("a call waits for %s", reason)
        report(request, AnswerPart(sent=False, wait=reason))
    return reason
