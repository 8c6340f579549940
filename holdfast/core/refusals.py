"""What an endpoint's error status means and how long it wants to be left alone: one table, for providers and fakes.

    status                                 kind                  asked again
    429 with insufficient_quota            QuotaExceeded         no
    408, 409, 425, 429, 5xx                ProviderUnavailable   yes, after Retry-After when it is given
    401, 403                               NotAuthorised         no
    404                                    ModelNotFound         no
    400 or 413 about the context's length  ContextTooLong        no
    any other                              RequestRefused        no

Which words say what differs between servers: in the error's code, in its type, or in the message alone.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

RETRIED_STATUS: Final = frozenset({408, 409, 425, 429})
SERVER_ERRORS_FROM: Final = 500
TOO_MANY_REQUESTS: Final = 429
FINAL_KINDS: Final = {401: "NotAuthorised", 403: "NotAuthorised", 404: "ModelNotFound"}

RETRY_AFTER_MAX: Final = timedelta(minutes=5)
"""The longest wait an endpoint can ask for; a budget's time limit still cuts it short."""

CONTEXT_WORDS: Final = ("context_length_exceeded", "exceed_context_size", "input_tokens", "maximum context length")

UNAVAILABLE: Final = "ProviderUnavailable"
"""The one kind of these that is asked again."""


def kind_of(status: int, words: str) -> str:
    """Return the kind of failure that an error status is, `words` being all that came with it."""
    if status == TOO_MANY_REQUESTS and "insufficient_quota" in words:
        return "QuotaExceeded"
    if status in RETRIED_STATUS or status >= SERVER_ERRORS_FROM:
        return UNAVAILABLE
    about_length = any(word in words for word in CONTEXT_WORDS)
    return FINAL_KINDS.get(status, "ContextTooLong" if about_length else "RequestRefused")


def retry_after(value: str | None, at: datetime) -> timedelta | None:
    """Read the header, come at `at`, in either form, seconds or a date; bounded, never negative."""
    if not value:
        return None
    try:
        wait = timedelta(seconds=float(value))
    except (ValueError, OverflowError):
        try:
            wait = parsedate_to_datetime(value) - at
        except (ValueError, TypeError):
            return None
    return min(max(wait, timedelta(0)), RETRY_AFTER_MAX)
