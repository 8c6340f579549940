"""What the model's endpoint can say no with, and whether asking again can help: one table.

    what happened                          type                  asked again
    no connection, silence, cut answer     ProviderUnavailable   yes
    408, 409, 425, 429, 5xx                ProviderUnavailable   yes, after Retry-After when it is given
    an answer that is no chat completion   UnusableAnswer        yes
    429 with insufficient_quota            QuotaExceeded         no
    401, 403                               NotAuthorised         no
    404                                    ModelNotFound         no
    400 or 413 about the context's length  ContextTooLong        no
    any other 4xx                          RequestRefused        no
    missing key or model                   InvalidInput          no

Texts name the endpoint and the status and never the key.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

from openai import APIConnectionError, APIError, APIStatusError, APITimeoutError

from activities.answers import UnusableAnswer
from activities.endpoint import ProviderSettings
from holdfast.core.errors import InvalidInput, ModelFailure
from holdfast.core.texts import clamped

RETRIED_STATUS: Final = frozenset({408, 409, 425, 429})
SERVER_ERRORS_FROM: Final = 500
RETRY_AFTER_MAX: Final = timedelta(minutes=5)
"""The longest wait an endpoint can ask for; a budget's time limit still cuts it short."""

BODY_CHARS_MAX: Final = 500
"""How much of the endpoint's own words goes into our error."""

CONTEXT_WORDS: Final = ("context_length_exceeded", "exceed_context_size", "input_tokens", "maximum context length")


def provider_failure(error: Exception, settings: ProviderSettings) -> ModelFailure | None:
    """Return the typed failure for what the provider's client raised, or none when it is not known here."""
    where = settings.endpoint
    if isinstance(error, APITimeoutError):
        return _again(f"the model endpoint {where} did not answer in time")
    if isinstance(error, APIStatusError):
        return _status_failure(error, where, settings)
    if isinstance(error, APIConnectionError):
        cause = type(error.__cause__).__name__ if error.__cause__ else "connection failed"
        return _again(
            f"the model endpoint {where} cannot be reached ({cause}); is it running, is OPENAI_BASE_URL right?"
        )
    if type(error).__module__.startswith("httpx"):  # raw from the client's transport while the body is read
        return _again(f"the connection to the model endpoint {where} broke in its answer ({type(error).__name__})")
    if isinstance(error, UnusableAnswer):
        return ModelFailure(f"{where}: {error}", kind="UnusableAnswer", again=True)
    if isinstance(error, APIError):
        return ModelFailure(f"{where}: {_redacted(str(error), settings)}", kind="UnusableAnswer", again=True)
    if isinstance(error, InvalidInput):
        return _final("InvalidInput", error.message)
    return None


def _status_failure(error: APIStatusError, where: str, settings: ProviderSettings) -> ModelFailure:
    status, said = error.status_code, _redacted(str(error), settings)
    told = f"the model endpoint {where} answered {status}: {said}"
    # which words say what differs between servers: in the code, in the type, or in the message alone
    words = " ".join(str(word) for word in (error.code, error.type, error.body, said))
    if status == 429 and "insufficient_quota" in words:  # noqa: PLR2004  # the table at the top names the codes
        return _final("QuotaExceeded", f"{told}; the account has no credit left")
    if status in RETRIED_STATUS or status >= SERVER_ERRORS_FROM:
        return _again(told, _retry_after(error.response.headers.get("retry-after")))
    if status in (401, 403):
        return _final("NotAuthorised", f"{told}; check OPENAI_API_KEY of the worker")
    if status == 404:  # noqa: PLR2004  # the same
        return _final("ModelNotFound", f"{told}; check the model's name and OPENAI_BASE_URL")
    if any(word in words for word in CONTEXT_WORDS):
        return _final("ContextTooLong", f"{told}; shorten the question or the tools' results")
    return _final("RequestRefused", told)


def _again(text: str, after: timedelta | None = None) -> ModelFailure:
    return ModelFailure(text, kind="ProviderUnavailable", again=True, after=after)


def _final(kind: str, text: str) -> ModelFailure:
    return ModelFailure(text, kind=kind, again=False)


def _retry_after(value: str | None) -> timedelta | None:
    """Read the header in either form, seconds or a date; bounded, never negative."""
    if not value:
        return None
    try:
        wait = timedelta(seconds=float(value))
    except (ValueError, OverflowError):
        try:
            wait = parsedate_to_datetime(value) - datetime.now(UTC)
        except (ValueError, TypeError):
            return None
    return min(max(wait, timedelta(0)), RETRY_AFTER_MAX)


def _redacted(text: str, settings: ProviderSettings) -> str:
    for secret in settings.secrets:
        text = text.replace(secret, "[secret]")
    return clamped(" ".join(text.split()), BODY_CHARS_MAX)
