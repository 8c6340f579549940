"""Facts about the model's endpoint: one cheap GET for its models, with the worker's own settings. Prints no secret."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import urllib.error
import urllib.request
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit, urlunsplit

from holdfast import __version__
from holdfast.core.base.safe_text import clamped, printable
from holdfast.models.endpoint import ProviderSettings
from holdfast.server.doctor.machine_findings import EndpointFacts

SILENCE_SECONDS: Final = 3.0
ANSWER_BYTES_MAX: Final = 1024 * 1024
WORDS_CHARS_MAX: Final = 200
MODELS_MAX: Final = 10_000


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows nobody: the key is for the endpoint that was named."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


def ask(settings: ProviderSettings) -> EndpointFacts:
    """Return how the endpoint answers; blocks, for some seconds where it sends now and then a byte."""
    facts: dict[str, Any] = {
        "endpoint": settings.endpoint,
        "model": settings.model,
        "has_key": settings.api_key is not None,
        "api": settings.api,
    }
    try:
        with _opened(settings) as answer:
            return EndpointFacts(status=answer.status, models=_models(answer.read(ANSWER_BYTES_MAX)), **facts)
    except urllib.error.HTTPError as error:
        with error:
            words = _words(error, settings)
        return EndpointFacts(status=error.code, words=words, **facts)
    except (OSError, http.client.HTTPException, ValueError) as error:
        return EndpointFacts(broken=cause(error, settings), **facts)


def _opened(settings: ProviderSettings) -> Any:  # noqa: ANN401  # urllib's answer, whatever its handler gave
    parts = urlsplit(settings.base_url or settings.api.base_url)
    host = parts.netloc.rpartition("@")[2]
    path = settings.api.without_version(parts.path.rstrip("/")) + settings.api.version
    url = urlunsplit(SplitResult(parts.scheme, host, path + "/models", parts.query, ""))
    headers = {"Accept": "application/json", "User-Agent": f"holdfast/{__version__}"}
    if settings.api_key is not None:
        headers |= settings.api.headers(settings.api_key)
    headers |= settings.headers
    request = urllib.request.Request(url, headers=headers)  # noqa: S310  # http or https: ProviderSettings checks it
    return urllib.request.build_opener(_Stay).open(request, timeout=SILENCE_SECONDS)


def _models(body: bytes) -> tuple[str, ...] | None:
    """Return the names in an answer; none where it is no list of models."""
    try:
        listed: Any = json.loads(body)["data"]
        return tuple(str(each["id"]) for each in listed[:MODELS_MAX])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _words(error: urllib.error.HTTPError, settings: ProviderSettings) -> str:
    try:
        body = error.read(ANSWER_BYTES_MAX).decode("utf-8", errors="replace")
    except (OSError, http.client.HTTPException):
        return ""
    try:
        message = str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        message = body
    return _redacted(message, settings)


def cause(error: Exception, settings: ProviderSettings) -> str:
    """Return what kept an endpoint from answering, in a few words without secrets."""
    reason: object = error.reason if isinstance(error, urllib.error.URLError) else error
    match reason:
        case TimeoutError():
            return f"no answer within {SILENCE_SECONDS:g} s"
        case socket.gaierror():
            return "its name cannot be resolved"
        case ConnectionRefusedError():
            return "the connection is refused"
        case ssl.SSLError():
            return f"TLS: {_redacted(str(reason), settings)}"
        case _:
            return _redacted(f"{type(reason).__name__}: {reason}", settings)


def _redacted(text: str, settings: ProviderSettings) -> str:
    for secret in settings.secrets:
        text = text.replace(secret, "[secret]")
    return clamped(printable(" ".join(text.split())), WORDS_CHARS_MAX)
