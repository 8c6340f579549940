"""What a provider's answer says of its rate limits: the headers of OpenAI and those who follow it, and Anthropic's.

    x-ratelimit-remaining-requests, -tokens           a number
    x-ratelimit-reset-requests, -tokens               a duration such as 6m0s or 120ms, or seconds
    anthropic-ratelimit-requests-remaining            a number; also tokens, input-tokens and output-tokens
    anthropic-ratelimit-requests-reset                a moment (RFC 3339); also of those

A header that cannot be read is none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from math import isnan
from typing import Final

from holdfast.core.wire.endpoint_refusals import RETRY_AFTER_MAX, requested_wait

TOO_MANY: Final = 429
"""The status of a request beyond a rate limit."""

REQUESTS: Final = ("requests",)
TOKENS: Final = ("tokens", "input-tokens", "output-tokens")
"""The names of limits in headers; of several the one with the least left counts."""

PAUSE_SECONDS: Final = 1.0
"""How long a route pauses after a 429 that names no time."""

PAUSE_SECONDS_MAX: Final = RETRY_AFTER_MAX.total_seconds()
"""The longest pause that a provider can ask for at once."""

HEADER_CHARS_MAX: Final = 64
"""The longest value that is read."""

DURATION: Final = re.compile(
    r"(?:(\d{1,9})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m(?!s))?(?:(\d{1,9}(?:\.\d{1,9})?)s)?(?:(\d{1,9})ms)?"
)
"""A duration as OpenAI writes it, in the style of Go: `1h2m3.5s`."""

UNITS: Final = (86_400.0, 3_600.0, 60.0, 1.0, 0.001)
"""How many seconds each group of DURATION counts."""


@dataclass(frozen=True, slots=True)
class RateReport:
    """What is left of a minute's requests and tokens, none where nothing says so, and for how long to pause."""

    requests_left: float | None = None
    tokens_left: float | None = None
    pause_seconds: float = 0.0


def rate_report(status: int, headers: Mapping[str, str], at: datetime) -> RateReport:
    """Return what an answer that came at `at` says. Names of `headers` may have any case."""
    values = {name.lower(): value.strip() for name, value in headers.items() if len(value) <= HEADER_CHARS_MAX}
    lefts, pauses = list[float | None](), [0.0]
    for names in (REQUESTS, TOKENS):
        left = [(name, number) for name in names if (number := _left(values, name)) is not None]
        lefts.append(min((number for _, number in left), default=None))
        pauses += (_reset_seconds(values, name, at) for name, number in left if number <= 0)
    if status == TOO_MANY:
        wait = requested_wait(values, at)
        pauses.append(PAUSE_SECONDS if wait is None else wait.total_seconds())
    return RateReport(lefts[0], lefts[1], min(max(pauses), PAUSE_SECONDS_MAX))


def _left(headers: Mapping[str, str], name: str) -> float | None:
    text = headers.get(f"x-ratelimit-remaining-{name}") or headers.get(f"anthropic-ratelimit-{name}-remaining")
    try:
        number = None if text is None else float(text)
    except ValueError:
        return None
    return None if number is None or isnan(number) else number


def _reset_seconds(headers: Mapping[str, str], name: str, at: datetime) -> float:
    """Return how long until there is more; 0 where nothing says so."""
    if (text := headers.get(f"x-ratelimit-reset-{name}")) is not None:
        return _duration_seconds(text)
    try:
        moment = datetime.fromisoformat(headers.get(f"anthropic-ratelimit-{name}-reset", ""))
    except ValueError:
        return 0.0
    return (moment.replace(tzinfo=moment.tzinfo or UTC) - at).total_seconds()


def _duration_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        parts = DURATION.fullmatch(text)
        if parts is None:
            return 0.0
        return sum(float(part) * unit for part, unit in zip(parts.groups(), UNITS, strict=True) if part)
    return 0.0 if isnan(seconds) else seconds
