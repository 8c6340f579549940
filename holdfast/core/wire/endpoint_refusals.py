"""Classifies an endpoint's refusals, and reads how long to wait before a retry: one table, for providers and fakes.

    status                                         kind                  asked again
    402; 400, 403, 429 about quota or billing      QuotaExceeded         no
    400, 413, 422, 500 about the context's length  ContextTooLong        no
    408, 409, 425, 429, 5xx                        ProviderUnavailable   yes, after Retry-After when it is given
    401, 403                                       NotAuthorised         no
    404                                            ModelNotFound         no
    any other                                      RequestRefused        no

Most refusals are free: the endpoint has done no work. Exceptions are those of WORKED_STATUS, and those whose text says
that the prompt was read (docs/models.md, "What a call used").

Servers put the decisive words in different places: in the error's code, in its type, or in the message alone. An error
object within an answer that began well is read by the same table: by the status it names, else by its words. The
header x-should-retry overrules the last column.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final, cast

RETRIED_STATUS: Final = frozenset({408, 409, 425, 429})
ERRORS_FROM: Final = 400
SERVER_ERRORS_FROM: Final = 500
STATUS_MAX: Final = 599
FINAL_KINDS: Final = {401: "NotAuthorised", 403: "NotAuthorised", 404: "ModelNotFound"}

WORKED_STATUS: Final = frozenset({408, 499, 504, 524})
"""A timeout of the endpoint or of a gateway: the model has been working, and its provider may bill that."""

FILTER_WORDS: Final = "content_filter"
"""In a refusal with 400: the prompt was read and judged, which Azure bills."""

RETRY_AFTER_MAX: Final = timedelta(minutes=5)
"""The longest wait an endpoint can ask for; a budget's time limit still cuts it short."""

WORDS_CHARS_MAX: Final = 64 * 1024
"""How much of an error's text is searched: far more than any error has."""

PAYMENT_REQUIRED: Final = 402
QUOTA_STATUS: Final = frozenset({400, 403, 429})
QUOTA_WORDS: Final = (
    "insufficient_quota",
    "billing_hard_limit_reached",
    "exceeded your current quota",
    "credit balance is too low",  # Anthropic, with 400
    "specified api usage limits",  # Anthropic's limit that a customer has set
    "spend_limit_reached",  # Anthropic, in the error's details
)

CONTEXT_STATUS: Final = frozenset({400, 413, 422, 500})
"""500 as well: proxies and some servers wrap the model's error in one, and asking again would fail for ever."""

CONTEXT_WORDS: Final = (
    "context_length_exceeded",  # OpenAI, Azure, Groq
    "exceed_context_size",  # llama.cpp
    "exceeds the available context size",  # llama.cpp, before it had a type for it
    "contextwindowexceeded",  # LiteLLM
    "maximum context length",  # OpenAI, vLLM, Mistral
    "max context length",  # Ollama
    "exceeds the context length",  # Ollama, LM Studio
    "exceeds the maximum number of tokens allowed",  # Gemini
    "prompt is too long",  # Anthropic
    "exceed context limit",  # Anthropic, of the input and max_tokens together
)
INPUT_TOKENS: Final = ("badrequesterror", "input_tokens")
"""vLLM names nothing but the parameter; the two words together."""

UNAVAILABLE: Final = "ProviderUnavailable"
"""The one kind of these that is retried."""

ROUTE_RESTS: Final = "RouteRests"
"""The kind of the failure of a call that is not made, as its route has failed a moment ago and another can answer."""

FALLBACK_ERRORS: Final = frozenset({UNAVAILABLE, "QuotaExceeded", "UnusableAnswer", "ModelTimeout", ROUTE_RESTS})
"""The kinds after which another route may answer: the fault is the provider's. What a request got wrong would be wrong
there as well."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A classified refusal: its kind, whether a retry can help, and the wait that the endpoint asked for.

    `free` is true when the endpoint has done no work that anybody bills.
    """

    kind: str
    again: bool
    after: timedelta | None = None
    free: bool = False


def refusal(status: int, words: str, headers: Mapping[str, str], at: datetime) -> Refusal:
    """Return the refusal for an error status received at `at`; `words` is its text, header names are lower-case."""
    kind = kind_of(status, words)
    again = {"true": True, "false": False}.get(headers.get("x-should-retry", "").lower(), kind == UNAVAILABLE)
    worked = status in WORKED_STATUS or kind == "ContextTooLong" or FILTER_WORDS in words[:WORDS_CHARS_MAX].lower()
    return Refusal(kind, again, requested_wait(headers, at) if again else None, free=not worked)


def refusal_within(error: object) -> Refusal:
    """Return the refusal for an error object inside an answer: with status 200, or in the middle of a stream."""
    words = json.dumps(error)[:WORDS_CHARS_MAX]
    fields = cast("dict[str, object]", error) if isinstance(error, dict) else {}
    named = (_status(fields.get(name)) for name in ("code", "status", "status_code"))
    usual = ERRORS_FROM if _about_quota(words.lower()) else SERVER_ERRORS_FROM
    kind = kind_of(next((number for number in named if number), usual), words)
    return Refusal(kind, kind == UNAVAILABLE)


def kind_of(status: int, words: str) -> str:
    """Return the kind of failure for an error status with the text `words`."""
    words = words[:WORDS_CHARS_MAX].lower()
    if status == PAYMENT_REQUIRED or (status in QUOTA_STATUS and _about_quota(words)):
        return "QuotaExceeded"
    if status in CONTEXT_STATUS and _about_length(words):
        return "ContextTooLong"
    if status in RETRIED_STATUS or status >= SERVER_ERRORS_FROM:
        return UNAVAILABLE
    return FINAL_KINDS.get(status, "RequestRefused")


def requested_wait(headers: Mapping[str, str], at: datetime) -> timedelta | None:
    """Return the wait that the headers, received at `at`, ask for; milliseconds are more exact than seconds."""
    exact = _seconds(headers.get("retry-after-ms", ""), 0.001)
    return retry_after(headers.get("retry-after"), at) if exact is None else _bounded(exact)


def retry_after(value: str | None, at: datetime) -> timedelta | None:
    """Read the header, received at `at`, in either form, seconds or a date; bounded, never negative."""
    if not value:
        return None
    wait = _seconds(value, 1)
    if wait is None:
        try:
            wait = parsedate_to_datetime(value) - at
        except (ValueError, TypeError, OverflowError):
            return None
    return _bounded(wait)


def _seconds(value: str, unit: float) -> timedelta | None:
    try:
        return timedelta(seconds=float(value) * unit)
    except (ValueError, OverflowError):
        return None


def _bounded(wait: timedelta) -> timedelta:
    return min(max(wait, timedelta(0)), RETRY_AFTER_MAX)


def _about_quota(words: str) -> bool:
    return any(word in words for word in QUOTA_WORDS)


def _about_length(words: str) -> bool:
    return any(word in words for word in CONTEXT_WORDS) or all(word in words for word in INPUT_TOKENS)


def _status(value: object) -> int | None:
    """Return the error status that a code is, as a number or as its digits."""
    if isinstance(value, str) and value.isdecimal() and len(value) <= len(str(STATUS_MAX)):
        value = int(value)
    return value if isinstance(value, int) and ERRORS_FROM <= value <= STATUS_MAX else None
