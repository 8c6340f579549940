"""JSON objects as data: `JsonMap` for what runs keep, `ShallowMap` for what comes in, `PortableMap` for definitions."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Annotated, Any, Final

from pydantic import AfterValidator, GetCoreSchemaHandler, JsonValue
from pydantic_core import CoreSchema, PydanticSerializationError, core_schema, from_json, to_json

from holdfast.core.base.bounds import ARGUMENTS_DEPTH_MAX, TEXT_CHARS_MAX

JSON_DEPTH_MAX: Final = 64
"""The deepest nesting of a definition's metadata or answer schema, for the same reason as ARGUMENTS_DEPTH_MAX."""

_KEY_CHARS_SHOWN: Final = 60

_DIGITS_MAX: Final = 4_000
_ENDLESS: Final = 10**_DIGITS_MAX
"""Python and pydantic read no integer of more than 4,300 digits."""


def _checked(values: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    for key, value in values.items():
        if type(value) is not str or len(value) > TEXT_CHARS_MAX:  # most are short texts
            _check(value, key[:_KEY_CHARS_SHOWN])
    return values


def _check(value: JsonValue, place: str) -> None:
    match value:
        case str() if len(value) > TEXT_CHARS_MAX:
            raise ValueError(f"the text of {len(value):,} characters at {place!r} is over {TEXT_CHARS_MAX:,}")
        case float() if not isfinite(value):
            raise ValueError(f"the number at {place!r} is {value}, which is not JSON")
        case list():
            for index, each in enumerate(value):
                _check(each, f"{place}.{index}")
        case dict():
            for key, each in value.items():
                _check(each, f"{place}.{key[:_KEY_CHARS_SHOWN]}")
        case _:
            pass


class _Bounded:
    """Adds a check that pydantic leaves out: read from JSON text, a JsonValue may be anything, even NaN.

    Values made in Python go through Rust with the bounds of `Frozen`, and take no time here.
    """

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:  # noqa: ANN401  # pydantic's signature
        mapping = handler(source)
        checked = core_schema.no_info_after_validator_function(_checked, mapping)
        return core_schema.json_or_python_schema(json_schema=checked, python_schema=mapping)


JsonMap = Annotated[Mapping[str, JsonValue], _Bounded]
"""A JSON object: texts up to TEXT_CHARS_MAX, no NaN, no infinity, however it is read."""


def _shallow(values: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    if _deeper_than(dict(values), ARGUMENTS_DEPTH_MAX):
        raise ValueError(f"it is nested deeper than {ARGUMENTS_DEPTH_MAX} levels; flatten it")
    if _has_endless_number(dict(values)):
        raise ValueError(f"it holds a number of more than {_DIGITS_MAX:,} digits; no JSON reader takes that")
    return values


def _has_endless_number(value: JsonValue) -> bool:
    if isinstance(value, int):
        return abs(value) >= _ENDLESS
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(_has_endless_number(each) for each in inner)


ShallowMap = Annotated[JsonMap, AfterValidator(_shallow)]
"""A `JsonMap` that a person or a hook brings: nested no deeper than a model's arguments, so that a saved state can be
read again (JSON readers give up at about 200 levels, and the state nests it deeper still)."""


def _travelling(values: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    if _deeper_than(dict(values), JSON_DEPTH_MAX):
        raise ValueError(f"it is nested deeper than {JSON_DEPTH_MAX} levels; flatten it")
    try:
        same = from_json(to_json(values)) == values
    except (PydanticSerializationError, ValueError):
        same = False
    if not same:  # lone surrogates, numbers of thousands of digits
        raise ValueError("it holds what JSON cannot carry (text that is not valid Unicode, or a number too long)")
    return values


def _deeper_than(value: JsonValue, levels: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return inner is not None and (not levels or any(_deeper_than(each, levels - 1) for each in inner))


PortableMap = Annotated[Mapping[str, JsonValue], AfterValidator(_travelling)]
"""A JSON object that comes back from JSON as it went in, wherever it is nested itself.

Checked in full, which takes longer than a `JsonMap`: definitions are made once.
"""
