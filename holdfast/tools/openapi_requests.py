"""One call of an operation: the request made of its arguments, and the answer read within bounds."""

from __future__ import annotations

import inspect
import json
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Final, TypeAlias, cast
from urllib.parse import quote

import httpx2
from pydantic import JsonValue
from pydantic_core import to_json

from holdfast.core.base.errors import InvalidArguments
from holdfast.core.base.safe_text import clamped
from holdfast.runtime.trusted_certificates import trusted_certificates
from holdfast.tools.openapi_operations import FORM, SAFE_METHODS, Operation, Parameter

ANSWER_BYTES_MAX: Final = 8 * 1024 * 1024
"""The largest answer that is read; what the model sees of it is far less."""

ERROR_BYTES_MAX: Final = 16 * 1024
"""How much of an error's body is read."""

ERROR_BODY_CHARS_MAX: Final = 1_000
"""How much of an error's body the model sees."""

SECRET_CHARS_MIN: Final = 6
"""What is shorter is no secret, and may stand in an answer by chance."""

VARIABLE: Final = re.compile(r"\$\{(\w+)\}")
"""A variable of the worker's environment within a header."""

ACCEPTED: Final = "application/json, text/*;q=0.9, */*;q=0.1"

Pairs: TypeAlias = list[tuple[str, str | int | float | bool | None]]
"""Names and values as httpx2 takes them."""

HeaderValue: TypeAlias = str | Callable[[], str | Awaitable[str]]
"""A header's value: a text, in which `${NAME}` is a variable of the worker's environment, or a function."""


class HttpError(Exception):
    """The server refused: its status and the beginning of what it said."""


class HttpUnreachable(Exception):
    """No answer came: the server is away, or the connection broke."""


class HeaderMissing(Exception):
    """A header cannot be made in this worker; the text names it and never its value."""


async def called(
    operation: Operation,
    arguments: Mapping[str, JsonValue],
    headers: Mapping[str, HeaderValue],
    idempotency_key: str,
    timeout_seconds: float,
) -> JsonValue:
    """Send the request and return what the server answers: JSON as it is, else its text.

    Raises HttpError, HttpUnreachable and HeaderMissing; InvalidArguments for a value that no request can hold.
    """
    own, secrets = await _resolved(headers)
    sent = httpx2.Headers({"Accept": ACCEPTED, "Accept-Encoding": "identity", "Idempotency-Key": idempotency_key})
    sent.update([pair for each in operation.parameters for pair in _header(each, arguments)])
    sent.update(own)
    content = _content(operation, arguments)
    if content is not None:
        sent["Content-Type"] = operation.content_type
    query: Pairs = [pair for each in operation.parameters for pair in _query(each, arguments)]
    url = httpx2.URL(operation.base_url + _path(operation, arguments)).copy_merge_params(query)
    try:
        async with (
            # a client belongs to one event loop, and tools can be moved to another
            httpx2.AsyncClient(timeout=timeout_seconds, verify=trusted_certificates()) as client,
            client.stream(operation.method.upper(), url, headers=sent, content=content) as response,
        ):
            most = ANSWER_BYTES_MAX if response.status_code < 300 else ERROR_BYTES_MAX  # noqa: PLR2004  # HTTP's classes
            body, whole = await _read(response, most)
    except (httpx2.TransportError, httpx2.DecodingError) as error:  # its text can quote what was sent
        more = "" if operation.method in SAFE_METHODS else "; whether the server has acted on it is not known"
        raise HttpUnreachable(f"{operation.place}: no answer ({type(error).__name__}){more}") from None
    return _answer(operation, response, body, secrets, whole=whole)


async def _read(response: httpx2.Response, most: int) -> tuple[bytes, bool]:
    """Return the body, at most so many bytes of it, and whether that is all."""
    body = bytearray()
    async for part in response.aiter_bytes():
        body += part
        if len(body) > most:
            return bytes(body[:most]), False
    return bytes(body), True


def _answer(
    operation: Operation, response: httpx2.Response, body: bytes, secrets: Iterable[str], *, whole: bool
) -> JsonValue:
    status = f"{response.status_code} {response.reason_phrase}".strip()
    kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    is_json = kind == "application/json" or kind.endswith("+json")
    readable = is_json or not kind or kind.startswith("text/") or kind.endswith(("xml", "yaml", "javascript"))
    text = _without(secrets, _decoded(body, response.charset_encoding)) if readable else ""
    if response.status_code >= 300:  # noqa: PLR2004  # HTTP's classes; a redirect is not followed: headers would go along
        where = response.headers.get("Location")
        more = _without(secrets, f"it leads to {where}") if where else text.strip()
        raise HttpError(": ".join(filter(None, (f"{operation.place}: {status}", clamped(more, ERROR_BODY_CHARS_MAX)))))
    if not whole:
        raise HttpError(f"{operation.place}: {status}, with more than {ANSWER_BYTES_MAX:,} bytes, which were not read")
    if not body:
        return f"({status}, no content)"
    if not readable:
        return f"({status}, {len(body):,} bytes of {kind}, which are not shown)"
    if is_json:
        try:
            return cast("JsonValue", json.loads(text))
        except (ValueError, RecursionError):
            return text
    return text


def _decoded(body: bytes, encoding: str | None) -> str:
    try:
        return body.decode(encoding or "utf-8", "replace")
    except LookupError:  # an encoding that nobody knows
        return body.decode("utf-8", "replace")


def _without(secrets: Iterable[str], text: str) -> str:
    """Return the text with what was sent in secret, and comes back, struck out."""
    for secret in secrets:
        text = text.replace(secret, "*****")
    return text


async def _resolved(headers: Mapping[str, HeaderValue]) -> tuple[dict[str, str], list[str]]:
    """Return the headers of this worker, and what must not be shown of them, the longest first."""
    values: dict[str, str] = {}
    secrets: set[str] = set()
    for name, value in headers.items():
        text, hidden = await _header_value(name, value)
        values[name] = text
        words = text.split()  # the first of several is a scheme, such as Bearer
        secrets.update(part for part in (*hidden, text, *words[len(words) > 1 :]) if len(part) >= SECRET_CHARS_MIN)
    return values, sorted(secrets, key=len, reverse=True)


async def _header_value(name: str, value: HeaderValue) -> tuple[str, list[str]]:
    if isinstance(value, str):
        variables: list[str] = VARIABLE.findall(value)
        for each in variables:
            if not os.environ.get(each):
                raise HeaderMissing(f"the header {name!r} needs the variable {each}, which the worker does not have")
        text = VARIABLE.sub(lambda found: os.environ[found[1]], value)
        hidden = [os.environ[each] for each in variables]
    else:
        try:
            result: object = value()
            text = str(await result if inspect.isawaitable(result) else result)
        except Exception as error:  # noqa: BLE001  # a user's function; its text may hold the secret
            text = f"the header {name!r} cannot be made: its function raised {type(error).__name__}"
            raise HeaderMissing(text) from None
        hidden = [text]
    if not text.isprintable() or not text.isascii():
        raise HeaderMissing(f"the header {name!r} has characters that no header can hold")
    return text, hidden


def _content(operation: Operation, arguments: Mapping[str, JsonValue]) -> bytes | None:
    if operation.body is None or operation.body not in arguments:
        return None
    body = arguments[operation.body]
    if operation.content_type != FORM:
        return to_json(body)
    if not isinstance(body, dict):
        raise InvalidArguments(f"{operation.body}: a form is an object")
    pairs: Pairs = [pair for name, each in body.items() for pair in _exploded(name, each)]
    return str(httpx2.QueryParams(pairs)).encode()


def _path(operation: Operation, arguments: Mapping[str, JsonValue]) -> str:
    path = operation.path
    for each in operation.parameters:
        if each.place == "path":
            text = _joined(each, arguments[each.argument])
            if text in ("", ".", ".."):
                raise InvalidArguments(f"{each.argument}: {text!r} cannot stand in a path")
            path = path.replace(f"{{{each.wire_name}}}", quote(text, safe=""))
    return path


def _header(parameter: Parameter, arguments: Mapping[str, JsonValue]) -> Iterator[tuple[str, str]]:
    if parameter.place == "header" and parameter.argument in arguments:
        text = _joined(parameter, arguments[parameter.argument])
        if not text.isprintable() or not text.isascii():
            raise InvalidArguments(f"{parameter.argument}: it has characters that no header can hold")
        yield parameter.wire_name, text


def _query(parameter: Parameter, arguments: Mapping[str, JsonValue]) -> Iterator[tuple[str, str]]:
    if parameter.place != "query" or parameter.argument not in arguments:
        return
    name, value = parameter.wire_name, arguments[parameter.argument]
    if parameter.deep and isinstance(value, dict):
        yield from ((f"{name}[{key}]", _spelled(each)) for key, each in value.items())
    elif parameter.as_json or parameter.separator is not None:
        yield name, _joined(parameter, value)
    elif isinstance(value, dict):
        yield from ((key, _spelled(each)) for key, each in value.items())
    else:
        yield from _exploded(name, value)


def _exploded(name: str, value: JsonValue) -> Iterator[tuple[str, str]]:
    for each in value if isinstance(value, list) else [value]:
        yield name, _spelled(each)


def _joined(parameter: Parameter, value: JsonValue) -> str:
    """Return the value as one text, the items of a list or the names and values of an object joined."""
    if parameter.as_json:
        return to_json(value).decode()
    separator = parameter.separator or ","
    if isinstance(value, list):
        return separator.join(map(_spelled, value))
    if isinstance(value, dict):
        return separator.join(part for key, each in value.items() for part in (key, _spelled(each)))
    return _spelled(value)


def _spelled(value: JsonValue) -> str:
    return value if isinstance(value, str) else "" if value is None else to_json(value).decode()
