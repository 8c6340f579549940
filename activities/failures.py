"""What the model's endpoint can say no with, and whether asking again can help: one table.

    what happened                          type                  asked again
    no connection, silence, cut answer     ProviderUnavailable   yes
    an error status                        the table of `holdfast.core.refusals`
    an answer that is no chat completion   UnusableAnswer        yes
    missing key or model                   InvalidInput          no

Texts name the endpoint and the status and never the key.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from openai import APIConnectionError, APIError, APIStatusError, APITimeoutError

from activities.answers import UnusableAnswer
from activities.endpoint import ProviderSettings
from holdfast.core.errors import InvalidInput, ModelFailure
from holdfast.core.refusals import UNAVAILABLE, kind_of, retry_after
from holdfast.core.texts import clamped

BODY_CHARS_MAX: Final = 500
"""How much of the endpoint's own words goes into our error."""


REMEDIES: Final = {
    "QuotaExceeded": "the account has no credit left",
    "NotAuthorised": "check OPENAI_API_KEY of the worker",
    "ModelNotFound": "check the model's name and OPENAI_BASE_URL",
    "ContextTooLong": "shorten the question or the tools' results",
}


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
    words = " ".join(str(word) for word in (error.code, error.type, error.body, said))
    kind = kind_of(status, words)
    if kind == UNAVAILABLE:
        return _again(told, retry_after(error.response.headers.get("retry-after"), datetime.now(UTC)))
    return _final(kind, f"{told}; {REMEDIES[kind]}" if kind in REMEDIES else told)


def _again(text: str, after: timedelta | None = None) -> ModelFailure:
    return ModelFailure(text, kind="ProviderUnavailable", again=True, after=after)


def _final(kind: str, text: str) -> ModelFailure:
    return ModelFailure(text, kind=kind, again=False)


def _redacted(text: str, settings: ProviderSettings) -> str:
    for secret in settings.secrets:
        text = text.replace(secret, "[secret]")
    return clamped(" ".join(text.split()), BODY_CHARS_MAX)
