"""Turns errors of the endpoint and its client into ModelFailure: one table.

    what happened                          type                  asked again
    no connection, silence, cut answer     ProviderUnavailable   yes
    an error status, an error in an answer the table of `holdfast.core.wire.endpoint_refusals`
    a redirect to another host             RequestRefused        no
    an answer that is none of its API      UnusableAnswer        yes
    missing key or model                   InvalidInput          no

Error texts name the endpoint and the status, never the key.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from holdfast.core.base.errors import InvalidInput, ModelFailure
from holdfast.core.base.safe_text import clamped
from holdfast.core.base.usage import NOTHING_USED, Usage
from holdfast.core.wire.endpoint_refusals import UNAVAILABLE, Refusal, refusal, refusal_within
from holdfast.models.answer_errors import AnswerCut, ErrorInAnswer, UnusableAnswer
from holdfast.models.endpoint import ProviderSettings
from holdfast.models.http_errors import REDIRECTS_MAX, ErrorStatus, RedirectedAway, words_of
from holdfast.models.model_apis import OPENAI

BODY_CHARS_MAX: Final = 500
"""How much of the endpoint's own text goes into our error."""

CAUSES_MAX: Final = 8
"""How many causes of a broken connection are examined; the first specific one is three deep."""

TRANSPORTS: Final = frozenset({"httpx", "httpx2", "httpcore2", "anyio"})
"""The transport packages of the provider's client; which are installed depends on its version."""

CLIENTS: Final = frozenset({"openai", "anthropic"})
"""The packages of the providers' clients."""

TIMED_OUT: Final = "APITimeoutError"
NOT_CONNECTED: Final = "APIConnectionError"
ANY: Final = "APIError"
"""The clients' names for no answer in time, for a connection that cannot be made, and for all of their errors."""

IN_A_CIRCLE: Final = "TooManyRedirects"
"""The transport's name for an endpoint that redirects again and again."""

REMEDIES: Final = {
    "QuotaExceeded": "the account has no credit left; add credit, or use another key",
    "NotAuthorised": "check {key}",
    "ModelNotFound": "check the model's name and {address}",
    "ContextTooLong": "shorten the question, trim tool results (context.tool_output_chars_max) "
    "or have old messages summarised (context.summary)",
}


def provider_failure(error: Exception, settings: ProviderSettings, usage: Usage = NOTHING_USED) -> ModelFailure | None:
    """Return the ModelFailure for an error of the provider's client, or none when it is unknown.

    `usage` is the usage that the endpoint had reported by then.
    """
    where = settings.title
    match error:
        # the client's own class for connecting, ours for silences within the answer
        case _ if isinstance(error, TimeoutError) or _is_client_error(error, TIMED_OUT):
            text = f"{where} did not answer in time"
            return _failure(settings, text, Refusal(UNAVAILABLE, again=True), usage)
        case ErrorStatus() | RedirectedAway():
            return _refusal_failure(error, settings)
        # its text is "Connection error.": the cause is below it
        case _ if _is_client_error(error, NOT_CONNECTED):
            return _not_connected(error, settings, usage)
        # proxies end a stream properly after their own time limit, without an error
        case AnswerCut():  # AnswerGone as well
            text = f"the answer of {where} {error}"
            return _failure(settings, text, Refusal(UNAVAILABLE, again=True), usage)
        case ErrorInAnswer():
            refused, words = refusal_within(error.error), redacted(words_of(error.error), settings)
            return _failure(settings, f"{where} failed in its answer: {words}", refused, usage)
        case UnusableAnswer():
            text = str(error).replace(OPENAI.base_url_variable, settings.address_name)
            return _failure(settings, f"{where}: {text}", Refusal("UnusableAnswer", again=True), usage)
        # a body that the client itself could not read
        case _ if _is_client_error(error, ANY):
            text = f"{where}: {redacted(str(error), settings)}"
            return _failure(settings, text, Refusal("UnusableAnswer", again=True), usage)
        case InvalidInput():
            return _failure(settings, error.message, Refusal("InvalidInput", again=False, free=True), usage)
        case _ if is_broken_connection(error):
            text = f"the connection to {where} broke in its answer ({_cause(error)})"
            return _failure(settings, text, Refusal(UNAVAILABLE, again=True), usage)
        case _:
            return None


def is_broken_connection(error: Exception) -> bool:
    """Return whether `error` comes raw from the client's transport, as it does while a body is read."""
    # the client wraps errors up to the headers; within the body those of its transport come bare
    return isinstance(error, OSError) or type(error).__module__.partition(".")[0] in TRANSPORTS


def _not_connected(error: Exception, settings: ProviderSettings, usage: Usage) -> ModelFailure:
    where, address = settings.title, settings.address_name
    if any(type(cause).__name__ == IN_A_CIRCLE for cause in _causes(error)):
        text = f"{where} redirects from one place to the next, more than {REDIRECTS_MAX} times"
        return _failure(settings, f"{text}; is {address} right?", Refusal("RequestRefused", again=False, free=True))
    text = f"{where} cannot be reached ({_cause(error)}); {settings.remedy_unreached}"
    return _failure(settings, text, Refusal(UNAVAILABLE, again=True), usage)


def _refusal_failure(error: ErrorStatus | RedirectedAway, settings: ProviderSettings) -> ModelFailure:
    if isinstance(error, RedirectedAway):
        text = f"{settings.title} redirects to {redacted(error.origin, settings)}; nothing was sent"
        text = f"{text} there, since keys and headers are for one endpoint; is {settings.address_name} right?"
        return _failure(settings, text, Refusal("RequestRefused", again=False, free=True))
    refused = refusal(error.status, error.words, error.headers, datetime.now(UTC))
    words = redacted(error.words, settings)
    text = f"{settings.title} answered {error.status}"
    return _failure(settings, f"{text}: {words}" if words else text, refused)


def _failure(settings: ProviderSettings, text: str, refused: Refusal, usage: Usage = NOTHING_USED) -> ModelFailure:
    if refused.kind in REMEDIES:
        remedy = REMEDIES[refused.kind].format(key=settings.key_name, address=settings.address_name)
        text = f"{text}; {remedy}"
    return ModelFailure(
        text, kind=refused.kind, again=refused.again, after=refused.after, usage=usage, free=refused.free
    )


def _is_client_error(error: Exception, name: str) -> bool:
    """Return whether `error` is the client's error of that name.

    The clients of OpenAI and Anthropic are made by one generator and name their errors alike; neither need be there.
    """
    return any(each.__name__ == name and each.__module__ in CLIENTS for each in type(error).__mro__)


def _cause(error: BaseException) -> str:
    """Return the cause of a broken connection, such as a name that does not resolve or an untrusted certificate."""
    for cause in _causes(error):
        if isinstance(cause, socket.gaierror):
            return "its name cannot be resolved"
        if isinstance(cause, ssl.SSLError):
            return f"TLS: {clamped(' '.join(str(cause).split()), BODY_CHARS_MAX)}"
    broken = error.__cause__ if isinstance(error, Exception) and _is_client_error(error, NOT_CONNECTED) else error
    return type(broken).__name__ if broken else "connection failed"


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    for _ in range(CAUSES_MAX):
        if cause is None:
            return
        yield cause
        # the transport raises `from` in places and in `except` in others
        cause = cause.__cause__ or cause.__context__


def redacted(text: str, settings: ProviderSettings) -> str:
    """Return an endpoint's text in one line, without secrets and bounded."""
    for secret in settings.secrets:
        # gateways quote the Authorization header in their refusals
        text = text.replace(secret, "[secret]")
    return clamped(" ".join(text.split()), BODY_CHARS_MAX)
