"""The operations of an OpenAPI document: their names, arguments and schemas. Sends nothing."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, cast
from urllib.parse import urlsplit

from pydantic import JsonValue

from holdfast.core.base.bounds import NAME_CHARS_MAX, TOOL_DESCRIPTION_CHARS_MAX
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.safe_text import clamped
from holdfast.tools.openapi_document import Object, OpenAPIDocument, items, mapping
from holdfast.tools.openapi_schemas import SchemaBundle, plain_text, unique

METHODS: Final = ("get", "head", "post", "put", "patch", "delete", "options", "trace")
"""The methods of operations in a path."""

SAFE_METHODS: Final = frozenset({"get", "head", "options", "trace"})
"""Those that change nothing, by HTTP's own rule."""

FIXED_HEADERS: Final = frozenset({"accept", "content-type", "authorization", "idempotency-key"})
"""Headers that are no arguments: OpenAPI says so of the first three, and the last is the call's own."""

ILLEGAL_RUNS: Final = re.compile(r"(?:[^A-Za-z0-9-]|_)+")
"""What becomes one `_` in the name of a tool."""

ILLEGAL_IN_ARGUMENT: Final = re.compile(r"[^A-Za-z0-9_.-]+")
"""What model APIs do not take in the name of an argument."""

FORM: Final = "application/x-www-form-urlencoded"

Place = Literal["path", "query", "header"]

PLACES: Final[Mapping[str, Place]] = {"path": "path", "query": "query", "header": "header"}
"""Where arguments go; a cookie is none of them."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument and where it goes. `separator` joins a list's items; without one, each has the name for itself."""

    argument: str
    wire_name: str
    place: Place
    separator: str | None
    deep: bool
    as_json: bool


@dataclass(frozen=True, slots=True)
class Operation:
    """One request that a server answers. `body` is the argument with the body, `content_type` how it is sent."""

    name: str
    method: str
    path: str
    description: str
    base_url: str
    parameters: tuple[Parameter, ...]
    body: str | None
    content_type: str
    schema: Object

    @property
    def place(self) -> str:
        """The method and the path."""
        return f"{self.method.upper()} {self.path}"


@dataclass(frozen=True, slots=True)
class OperationEntry:
    """Where an operation stands in the document, before its details are read."""

    name: str
    method: str
    path: str
    shared: Object
    own: Object

    @property
    def place(self) -> str:
        """The method and the path."""
        return f"{self.method.upper()} {self.path}"


def entries(document: OpenAPIDocument, reserved: Collection[str]) -> Iterator[OperationEntry]:
    """Yield every operation, in the document's order, each with a legal name of its own that is not `reserved`."""
    taken = set(reserved)
    for path, value in mapping(document.data.get("paths")).items():
        shared = document.resolved(value)
        for method in METHODS:
            if method not in shared:
                continue
            own = document.resolved(shared[method])
            wanted = str(own.get("operationId") or f"{method}_{path}")
            name = unique(ILLEGAL_RUNS.sub("_", wanted).strip("_") or method, taken, NAME_CHARS_MAX)
            taken.add(name)
            yield OperationEntry(name, method, path, shared, own)


def operation_of(
    document: OpenAPIDocument, entry: OperationEntry, base_url: str | None, filled: Collection[str]
) -> Operation:
    """Return the operation. `filled` are the headers, in lower case, that are no arguments.

    Raises InvalidInput, naming the operation, where it needs what cannot be sent.
    """
    try:
        return _operation(document, entry, base_url, filled)
    except InvalidInput as error:
        raise InvalidInput(f"{entry.name} ({entry.place}): {error.message}") from None


def checked_base(url: str) -> str:
    """Return the URL that paths are appended to. Raises InvalidInput for what is none."""
    try:
        parts = urlsplit(url)
        there = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        there, parts = False, urlsplit("")
    if not there or any(char.isspace() for char in url) or parts.query or parts.fragment:
        raise InvalidInput(f"its address {url[:200]!r} is no base of URLs; give base_url='https://HOST/PATH'")
    if "@" in parts.netloc:
        raise InvalidInput("its address holds a user or password; give them in headers=")
    return url.rstrip("/")


def _operation(
    document: OpenAPIDocument, entry: OperationEntry, base_url: str | None, filled: Collection[str]
) -> Operation:
    own, bundle = entry.own, SchemaBundle(document)
    parameters: list[Parameter] = []
    properties: dict[str, JsonValue] = {}
    required: list[JsonValue] = []
    for each in _parameters(document, entry):
        parameter = _parameter(each, set(properties), filled)
        if parameter is None:
            continue
        parameters.append(parameter)
        properties[parameter.argument] = _described(bundle.added(_schema_of(document, each)), each.get("description"))
        if each.get("required") is True or parameter.place == "path":
            required.append(parameter.argument)
    declared = {each.wire_name for each in parameters if each.place == "path"}
    if undeclared := set(re.findall(r"{([^{}]*)}", entry.path)) - declared:
        raise InvalidInput(f"its path has {sorted(undeclared)}, which no parameter in the path is called")
    body, content_type = None, ""
    request = document.resolved(own.get("requestBody"))
    if content := mapping(request.get("content")):
        content_type, media = _body_of(content, needed=request.get("required") is True)
        if media is not None:
            body = unique("body", set(properties))
            schema = mapping(document.resolved(media)).get("schema", True)
            properties[body] = _described(bundle.added(schema), request.get("description"))
            required += [body] if request.get("required") is True else []
    whole: dict[str, JsonValue] = {"type": "object", "properties": properties, "additionalProperties": False}
    whole |= {"required": required} if required else {}
    whole |= {"$defs": cast("JsonValue", bundle.definitions)} if bundle.definitions else {}
    servers = own.get("servers") or entry.shared.get("servers") or document.data.get("servers")
    return Operation(
        name=entry.name,
        method=entry.method,
        path=entry.path,
        description=clamped(plain_text(own.get("summary"), own.get("description")), TOOL_DESCRIPTION_CHARS_MAX),
        base_url=checked_base(_server_url(servers) if base_url is None else base_url),
        parameters=tuple(parameters),
        body=body,
        content_type=content_type,
        schema=whole,
    )


def _server_url(servers: JsonValue) -> str:
    first = mapping(next(iter(items(servers)), None))
    url = str(first.get("url") or "")
    for name, variable in mapping(first.get("variables")).items():
        url = url.replace(f"{{{name}}}", str(mapping(variable).get("default") or ""))
    return url


def _parameters(document: OpenAPIDocument, entry: OperationEntry) -> Iterator[Object]:
    """Yield the operation's parameters; its own take the place of those that all operations of the path share."""
    resolved = [document.resolved(each) for part in (entry.shared, entry.own) for each in items(part.get("parameters"))]
    yield from {(each.get("in"), each.get("name")): each for each in resolved}.values()


def _parameter(each: Object, taken: set[str], filled: Collection[str]) -> Parameter | None:
    """Return the parameter; none for one that is no argument. Raises InvalidInput for a cookie that is required."""
    name, place = str(each.get("name")), PLACES.get(str(each.get("in")))
    if place == "header" and name.lower() in FIXED_HEADERS.union(filled):
        return None
    if place is None:
        if each.get("required") is True:
            raise InvalidInput(f"it requires the {each.get('in')} {name!r}, which cannot be sent")
        return None
    argument = unique(ILLEGAL_IN_ARGUMENT.sub("_", name).strip("_") or "argument", taken, NAME_CHARS_MAX)
    style = str(each.get("style") or ("form" if place == "query" else "simple"))
    if style not in ("form", "simple", "spaceDelimited", "pipeDelimited", "deepObject"):
        raise InvalidInput(f"its parameter {name!r} has the style {style!r}, which cannot be sent")
    explode = each.get("explode", style == "form")
    separators = {"spaceDelimited": " ", "pipeDelimited": "|"}
    separator = None if style == "form" and explode is not False else separators.get(style, ",")
    as_json = "content" in each
    return Parameter(argument, name, place, separator, style == "deepObject", as_json)


def _schema_of(document: OpenAPIDocument, parameter: Object) -> JsonValue:
    if media := next(iter(mapping(parameter.get("content")).values()), None):
        return document.resolved(media).get("schema", True)
    return parameter.get("schema", True)


def _described(schema: JsonValue, text: JsonValue | None) -> JsonValue:
    """Return the schema with a description, which may stand beside a `$ref`."""
    words = plain_text(text)
    if not words or not (schema is True or isinstance(schema, dict)):
        return schema
    own = schema if isinstance(schema, dict) else {}
    return {**own, "description": plain_text(words, own.get("description"))}


def _body_of(content: Object, *, needed: bool) -> tuple[str, JsonValue | None]:
    """Return the form in which the body is sent and what the document says of it; none for a body that is left out."""
    for media_type, media in content.items():
        kind = media_type.partition(";")[0].strip().lower()
        if kind == "application/json" or kind.endswith("+json"):
            return kind, media
    for media_type, media in content.items():
        if media_type.partition(";")[0].strip().lower() == FORM:
            return FORM, media
    if needed:
        raise InvalidInput(f"its body is {', '.join(content)[:200]}; JSON and forms are sent")
    return "", None
