"""Pydantic AI's errors as ours: one table.

    what happened                                   type                  asked again
    an error status, also one within a stream       the table of `holdfast.core.wire.endpoint_refusals`
    a redirect: none is followed                    RequestRefused        no
    no connection, a broken one, silence, a cut     ProviderUnavailable   yes
    UnexpectedModelBehavior, what cannot be read    UnusableAnswer        yes
    UserError: what the model cannot be asked       InvalidInput          no

Pydantic AI's own category of a refusal counts where it says more than the status: quota, context, overload.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, cast
from urllib.parse import urljoin, urlsplit

from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelNotFoundError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestRejectedError,
    ModelRequestTimeout,
    ModelServerError,
    ModelTimeoutError,
    ModelUnavailableError,
    UnexpectedModelBehavior,
    UserError,
)
from pydantic_ai.models import Model

from holdfast.core.base.errors import HoldfastError, InvalidInput, ModelFailure
from holdfast.core.base.usage import NOTHING_USED, Usage
from holdfast.core.wire.endpoint_refusals import ERRORS_FROM, RETRY_AFTER_MAX, UNAVAILABLE
from holdfast.models.answer_errors import ErrorInAnswer, UnusableAnswer
from holdfast.models.endpoint import ProviderSettings
from holdfast.models.http_errors import ErrorStatus, RedirectedAway, words_of
from holdfast.models.provider_errors import REMEDIES, provider_failure, redacted

UNSENT: Final = ("pool", "connect")
"""The phases of a request in which nothing of it has been sent."""

GROUPS_MAX: Final = 8
"""How many groups of errors, one in another, are opened."""

KINDS: Final[tuple[tuple[type[ModelAPIError], str], ...]] = (
    (ModelQuotaExceededError, "QuotaExceeded"),
    (ModelContextWindowExceededError, "ContextTooLong"),
    (ModelUnavailableError, UNAVAILABLE),
    (ModelRateLimitError, UNAVAILABLE),
    (ModelServerError, UNAVAILABLE),
    (ModelAuthenticationError, "NotAuthorised"),
    (ModelNotFoundError, "ModelNotFound"),
    (ModelRequestRejectedError, "RequestRefused"),
)
"""Our kinds of failure for Pydantic AI's categories."""

SPECIFIC: Final = (ModelQuotaExceededError, ModelContextWindowExceededError, ModelUnavailableError)
"""The categories that count before the status: they were read in a provider's own codes."""


def with_status(error: Exception) -> Exception:
    """Return an answer with an error status as ErrorStatus, whose words `StatedLimits` reads, and a redirect as one.

    Others are returned as they are.
    """
    if isinstance(error, ModelAPIError) and (redirect := _redirect(error.__cause__)) is not None:
        redirect.__cause__ = error
        return redirect
    if not isinstance(error, ModelHTTPError) or error.in_stream or error.status_code < ERRORS_FROM:
        return error
    body = error.message if error.body is None else error.body
    text = body if isinstance(body, str) else json.dumps(body, default=str)
    status = ErrorStatus(error.status_code, error.headers or {}, text.encode("utf-8", "replace"))
    status.__cause__ = error
    return status


def _redirect(error: BaseException | None) -> RedirectedAway | None:
    """Return the redirect that a client's error is about; Pydantic AI has them follow none. None for other errors."""
    response: Any = getattr(error, "response", None)
    if not getattr(response, "has_redirect_location", False):
        return None
    try:
        parts = urlsplit(urljoin(str(response.url), response.headers["location"]))
    except ValueError:
        return RedirectedAway("what is no address")
    return RedirectedAway(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}")


def failure_of(error: Exception, model: Model, settings: ProviderSettings, usage: Usage | None) -> ModelFailure | None:
    """Return the ModelFailure for an error of `model`; none for one of a program's own, such as a script's.

    `usage` is what had been reported by then.
    """
    error = _innermost(error)
    used, shown = usage or NOTHING_USED, _shown(settings, model)
    if isinstance(error, ModelFailure):
        return error
    if isinstance(error, HoldfastError):
        return ModelFailure(error.message, kind=type(error).__name__, free=True)
    if isinstance(error, UserError):
        return ModelFailure(redacted(error.message, shown), kind=InvalidInput.__name__, free=True)
    if isinstance(error, ModelAPIError):
        return _api_failure(error, shown, used)
    if isinstance(error, UnexpectedModelBehavior):
        return provider_failure(UnusableAnswer(redacted(str(error), shown)), shown, used)
    if (failure := provider_failure(error, shown, used)) is not None:
        return _with_specific_kind(error, failure)
    if model.provider is None:
        return None
    # what a client makes of bytes that its provider should not have sent
    text = f"the answer could not be read: {type(error).__name__}: {error}"
    return provider_failure(UnusableAnswer(redacted(text, shown)), shown, used)


def _innermost(error: Exception) -> Exception:
    """Return the last error of a group: of several models, asked one after another."""
    for _ in range(GROUPS_MAX):
        if not isinstance(error, ExceptionGroup):
            break
        inner: tuple[Exception, ...] = cast("ExceptionGroup[Exception]", error).exceptions
        error = with_status(inner[-1])
    return error


def _shown(settings: ProviderSettings, model: Model) -> ProviderSettings:
    """Return the settings that errors are told by: with the address and the key that the provider has found."""
    provider = model.provider
    if provider is None:
        return settings
    key: Any = getattr(provider.client, "api_key", None)
    hidden = (*settings.hidden, *([key] if isinstance(key, str) else []))
    return replace(settings, base_url=settings.base_url or provider.base_url or None, hidden=hidden)


def _unreached(error: ModelConnectionError, shown: ProviderSettings, used: Usage) -> ModelFailure:
    if error.phase not in UNSENT:
        text = f"the connection to {shown.title} broke ({_words(error, shown)})"
        return ModelFailure(text, kind=UNAVAILABLE, again=True, usage=used)
    text = f"{shown.title} cannot be reached ({_words(error, shown)})"
    return ModelFailure(f"{text}; {shown.remedy_unreached}", kind=UNAVAILABLE, again=True, free=True)


def _words(error: Exception, shown: ProviderSettings) -> str:
    """Return what a transport says of itself; the clients say no more than "Connection error."."""
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    return redacted(str(cause) or type(cause).__name__, shown)


def _api_failure(error: ModelAPIError, shown: ProviderSettings, used: Usage) -> ModelFailure | None:
    """Return the failure for an error that no answer with an error status is; most come within an answer."""
    if isinstance(error, ModelRequestTimeout | ModelTimeoutError):
        return provider_failure(TimeoutError(), shown, used)
    if isinstance(error, ModelConnectionError):
        return _unreached(error, shown, used)
    words = words_of(error.body) or error.message
    if isinstance(error, ModelHTTPError):
        within = ErrorInAnswer({"status": error.status_code, "message": words})
        return _with_specific_kind(error, provider_failure(within, shown, used))
    kind = _kind_of(error)
    if kind is None and error.body is None:
        return provider_failure(UnusableAnswer(redacted(words, shown)), shown, used)
    failure = provider_failure(ErrorInAnswer({"message": words}), shown, used)
    return failure if failure is None or kind is None else _with_kind(failure, kind, error, shown)


def _with_specific_kind(error: Exception, failure: ModelFailure | None) -> ModelFailure | None:
    """Return the failure with the kind that Pydantic AI has read in the provider's own codes, where it has."""
    cause = error.__cause__ if isinstance(error, ErrorStatus) else error
    if failure is None or not isinstance(cause, SPECIFIC):
        return failure
    kind = _kind_of(cause)
    return failure if kind is None or kind == failure.kind else _with_kind(failure, kind, cause)


def _kind_of(error: ModelAPIError) -> str | None:
    return next((kind for category, kind in KINDS if isinstance(error, category)), None)


def _with_kind(
    failure: ModelFailure, kind: str, error: ModelAPIError, shown: ProviderSettings | None = None
) -> ModelFailure:
    text, again = failure.message, kind == UNAVAILABLE
    if shown is not None and kind in REMEDIES and kind != failure.kind:
        text = f"{text}; {REMEDIES[kind].format(key=shown.key_name, address=shown.address_name)}"
    asked, longest = error.retry_after, RETRY_AFTER_MAX.total_seconds()
    wait = None if asked is None else timedelta(seconds=max(0.0, min(asked, longest)))
    return ModelFailure(
        text, kind=kind, again=again, after=wait if again else None, usage=failure.usage, free=failure.free
    )
