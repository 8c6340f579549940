"""An OpenAPI document: read from a file, a text or a mapping, checked, and its references followed. Sends nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import unquote

import yaml
from openapi_pydantic.v3 import v3_0, v3_1
from pydantic import JsonValue, TypeAdapter, ValidationError

from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.safe_text import clamped
from holdfast.core.base.validation_errors import problems_text
from holdfast.runtime.plain_yaml import PlainLoader

DOCUMENT_BYTES_MAX: Final = 16 * 1024 * 1024
"""The largest document that is read: the largest public ones have 12 MB."""

REFERENCES_MAX: Final = 16
"""How many references lead on from one to the next at most."""

PROBLEMS_CHARS_MAX: Final = 1_000
"""How much is said of an invalid document."""

Object = Mapping[str, JsonValue]

_JSON: Final = TypeAdapter[dict[str, JsonValue]](dict[str, JsonValue])


class _JsonPlainLoader(PlainLoader):
    """Plain YAML without dates, which JSON does not have."""


_JsonPlainLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class OpenAPIDocument:
    """A document of OpenAPI 3.0 or 3.1 that was found valid, as JSON."""

    def __init__(self, source: Mapping[str, Any] | str | Path) -> None:
        self.data: Final[Object] = _data_of(source)
        version = str(self.data.get("openapi", ""))
        self.nullable: Final = version.startswith("3.0")
        """Whether its schemas are those of 3.0: a dialect of its own, with `nullable`."""
        if not version.startswith(("3.0", "3.1")):
            shown = version[:20] or "missing"
            raise InvalidInput(f"the document's field `openapi` is {shown}; 3.0 and 3.1 are read (convert Swagger 2.0)")
        try:  # of any patch version; those that the package does not know yet differ in wording alone
            if self.nullable:
                v3_0.OpenAPI.model_validate({**self.data, "openapi": "3.0.3"})
            else:
                v3_1.OpenAPI.model_validate({**self.data, "openapi": "3.1.0"})
        except ValidationError as error:
            problems = clamped(problems_text(error), PROBLEMS_CHARS_MAX)
            raise InvalidInput(f"this is no valid document of OpenAPI {version[:20]}: {problems}") from None

    @property
    def title(self) -> str:
        """What the API is called."""
        return str(mapping(self.data.get("info")).get("title") or "an API")

    def pointed(self, ref: object) -> JsonValue:
        """Return what a reference leads to. Raises InvalidInput for one out of the document, or to nothing."""
        if not isinstance(ref, str) or not ref.startswith("#/"):
            raise InvalidInput(f"the reference {str(ref)[:200]!r} leads out of the document; bundle it into one file")
        value: JsonValue = cast("JsonValue", self.data)
        for part in ref[2:].split("/"):
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(value, list) and key.isdecimal() and int(key) < len(value):
                value = value[int(key)]
            elif isinstance(value, dict) and key in value:
                value = value[key]
            else:
                raise InvalidInput(f"the reference {ref[:200]!r} leads to nothing in the document")
        return value

    def resolved(self, value: JsonValue) -> Object:
        """Return the object that `value` is or refers to. Raises InvalidInput where references do not end."""
        for _ in range(REFERENCES_MAX):
            each = mapping(value)
            if "$ref" not in each:
                return each
            value = self.pointed(each["$ref"])
        raise InvalidInput(f"more than {REFERENCES_MAX} references lead on from one to the next")


def mapping(value: object) -> Object:
    """Return `value` where it is a JSON object, else an empty one."""
    return cast("Object", value) if isinstance(value, dict) else {}


def items(value: object) -> Sequence[JsonValue]:
    """Return `value` where it is a JSON array, else an empty one."""
    return cast("Sequence[JsonValue]", value) if isinstance(value, list) else ()


def _data_of(source: Mapping[str, Any] | str | Path) -> Object:
    """Return the document as JSON. Raises InvalidInput, which names its place."""
    where = "the document"
    if isinstance(source, Mapping):
        data: object = _named_by_text(dict(source))
    else:
        if isinstance(source, Path) or not ("\n" in source or source.lstrip().startswith("{")):
            where = f"the document {str(source)[:200]!r}"
        data = _parsed(_text_of(source, where), where)
    try:
        return _JSON.validate_python(data)
    except (ValidationError, RecursionError) as error:
        why = problems_text(error) if isinstance(error, ValidationError) else "it is nested too deep"
        raise InvalidInput(f"{where} is not JSON: {clamped(why, PROBLEMS_CHARS_MAX)}") from None


def _text_of(source: str | Path, where: str) -> str:
    if isinstance(source, str) and where == "the document":
        text = source
    elif str(source).startswith(("http://", "https://")):
        raise InvalidInput(f"{where} is an address; download it: a start is to depend on no server")
    else:
        path = Path(source)
        try:
            too_large = path.stat().st_size > DOCUMENT_BYTES_MAX
            text = "" if too_large else path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(f"{where} cannot be read ({type(error).__name__})") from None
        if too_large:
            raise InvalidInput(f"{where} has more than {DOCUMENT_BYTES_MAX:,} bytes")
    if len(text) > DOCUMENT_BYTES_MAX:
        raise InvalidInput(f"{where} has more than {DOCUMENT_BYTES_MAX:,} characters")
    return text


def _parsed(text: str, where: str) -> object:
    try:
        if text.lstrip().startswith("{"):
            return json.loads(text)
        return _named_by_text(yaml.load(text, _JsonPlainLoader))  # noqa: S506  # a SafeLoader, stricter
    except RecursionError:
        raise InvalidInput(f"{where} is nested too deep") from None
    except (ValueError, yaml.YAMLError) as error:
        raise InvalidInput(f"{where} is neither JSON nor YAML: {clamped(str(error), PROBLEMS_CHARS_MAX)}") from None


def _named_by_text(value: object) -> object:
    """Return `value` with texts as the names of all fields: YAML reads `200:` as a number."""
    if isinstance(value, Mapping):
        return {str(name): _named_by_text(each) for name, each in cast("Mapping[object, object]", value).items()}
    if isinstance(value, list | tuple):
        return [_named_by_text(each) for each in cast("Sequence[object]", value)]
    return value
