"""Answers as values of a type: the response format that asks for it, and an answer's text as a value of it."""

from __future__ import annotations

import re
from types import UnionType
from typing import Any, Final, TypeAlias, cast, get_origin

from pydantic import BaseModel, PydanticUndefinedAnnotation, TypeAdapter, ValidationError
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUserError
from pydantic_core import to_json
from typing_extensions import TypeAliasType, TypeVar

from holdfast.core.agent.policies import JsonSchemaFormat
from holdfast.core.base.bounds import (
    FORMAT_PLACE_CHARS_MAX,
    FORMAT_PROBLEM_CHARS_MAX,
    FORMAT_PROBLEMS_MAX,
    NAME_CHARS_MAX,
)
from holdfast.core.base.errors import AnswerInvalid, InvalidInput
from holdfast.core.base.json_parsing import read_json
from holdfast.core.base.safe_text import clamped
from holdfast.core.base.validation_errors import problem_text
from holdfast.core.conversation.messages import ILLEGAL_IN_NAME

AnswerT = TypeVar("AnswerT", default=Any)
"""What an agent answers, where that is known."""

Answers: TypeAlias = type[AnswerT] | UnionType
"""The type of an agent's answers; a type checker that takes `A | B` for no type leaves AnswerT open."""

AnyAnswers: TypeAlias = Answers[Any] | None

Schema = dict[str, Any]

DROPPED: Final = ("default", "discriminator")
"""Keywords that strict outputs refuse and that can be dropped: they mean nothing when every property is required."""

FORBIDDEN: Final = frozenset({"allOf", "not", "prefixItems"})
"""Keywords that strict outputs refuse and that cannot be dropped; pydantic writes `prefixItems` for a tuple."""

FORMAT_HINT: Final = (
    "write `class Ticket(BaseModel): title: str` and pass the class, a union or a list of such classes, "
    "or put a JSON Schema of your own into the definition: `response_format: {type: json_schema, json_schema: {...}}`"
)
"""The remedy when a value is no type that an answer can have."""

WRAPPER: Final = "answer"
"""The property that holds an answer which is no JSON object: strict outputs take nothing else."""


def format_of(answers: Answers[Any], *, name: str | None = None, strict: bool = False) -> JsonSchemaFormat:
    """Return the response format that asks for a value of the type `answers`.

    Args:
        answers: the type of the answer: a pydantic model, or another type that pydantic can check and describe, such as
            `Found | Missing` or `list[Flight]`. What is no JSON object is asked for as `{"answer": ...}`.
        name: what the provider calls it; a class's own name by default.
        strict: ask the provider to enforce the schema, in the form that OpenAI's structured outputs demand: every
            property is required, no other is allowed (https://platform.openai.com/docs/guides/structured-outputs).

    Raises InvalidInput when `answers` is no such type, has no JSON Schema, or none that `strict` allows.
    """
    if not _is_type(answers) or answers in (BaseModel, str):
        raise InvalidInput(f"{_named(answers)} is no type of answers; {FORMAT_HINT}")
    label = _named(answers)
    try:
        schema = TypeAdapter[Any](cast("type[Any]", answers)).json_schema()
    except (PydanticInvalidForJsonSchema, PydanticUserError, PydanticUndefinedAnnotation) as error:
        first = str(error).splitlines()[0][:FORMAT_PLACE_CHARS_MAX]
        raise InvalidInput(f"{label} has no JSON Schema: {first}; use types that JSON can represent") from None
    schema = schema if _is_object(schema) else _wrapped(schema)
    if strict:
        schema = _strict(_opened(schema), label)
    own = ILLEGAL_IN_NAME.sub("_", name or (label if isinstance(answers, type) else ""))[:NAME_CHARS_MAX]
    return JsonSchemaFormat(name=own or WRAPPER, json_schema=schema, strict=strict)


def typed(text: str, answers: Answers[AnswerT]) -> AnswerT:
    """Return the answer `text` as a value of the type; AnswerInvalid names the first problems in one line."""
    try:
        value = read_json(text)  # pydantic alone would take NaN, and any depth
        if isinstance(answers, type) and issubclass(answers, BaseModel) and not answers.__pydantic_root_model__:
            return cast("AnswerT", answers.model_validate_json(text))
        adapter = TypeAdapter[Any](cast("type[Any]", answers))
        if not _is_object(adapter.json_schema()):
            if not (isinstance(value, dict) and WRAPPER in value):
                raise ValueError(f"it has no property {WRAPPER!r}")  # noqa: TRY301  # told as any other problem
            text = to_json(value[WRAPPER]).decode()
        return cast("AnswerT", adapter.validate_json(text))
    except ValidationError as error:
        problem = _problems_text(error)
    except ValueError as error:
        problem = f"it is not usable JSON: {error}"
    except Exception as error:  # noqa: BLE001  # of a validator of the user's
        problem = f"its check raised {type(error).__name__}: {error}"
    line = " ".join(clamped(problem, FORMAT_PROBLEM_CHARS_MAX).split())
    raise AnswerInvalid(f"the answer is not a valid {_named(answers)}: {line}; see the answer's text for all of it")


def _is_type(value: object) -> bool:
    return isinstance(value, type | UnionType | TypeAliasType) or get_origin(value) is not None


def _named(value: object) -> str:
    if isinstance(value, type):
        return value.__name__
    if _is_type(value):
        return re.sub(r"[\w.]+\.", "", str(value))[:FORMAT_PLACE_CHARS_MAX]  # names without their modules
    return f"a value of type {type(value).__name__}"


def _is_object(schema: Schema) -> bool:
    return _opened(schema).get("type") == "object"


def _wrapped(schema: Schema) -> Schema:
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    outer: Schema = {"type": "object", "properties": {WRAPPER: inner}, "required": [WRAPPER]}
    return {**outer, "$defs": schema["$defs"]} if "$defs" in schema else outer


def _problems_text(error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    lines = [
        f"{'.'.join(str(part) for part in problem['loc'])[:FORMAT_PLACE_CHARS_MAX] or 'the whole'}: "
        f"{problem_text(problem)[:FORMAT_PLACE_CHARS_MAX]}"
        for problem in problems[:FORMAT_PROBLEMS_MAX]
    ]
    more = [f"and {len(problems) - len(lines):,} more"] if len(problems) > len(lines) else []
    return "; ".join([*lines, *more])


def _strict(schema: Schema, place: str) -> Schema:
    """Return `schema` in the strict form; `place` names it in an error."""
    result = {key: value for key, value in schema.items() if key not in DROPPED}
    if "oneOf" in result:  # of a tagged union: its tags keep the choices apart
        result["anyOf"] = result.pop("oneOf")
    if "$ref" in result and len(result) > 1:  # a reference stands alone; what describes it goes around it
        result["anyOf"] = [{"$ref": result.pop("$ref")}]
    if forbidden := FORBIDDEN & result.keys():
        raise InvalidInput(f"{place} needs {min(forbidden)!r}, which strict outputs forbid; use a list, or drop strict")
    if result.get("type") == "object":
        if result.get("additionalProperties", False) is not False:
            raise InvalidInput(f"{place} takes any name, which strict outputs forbid; name its fields, or drop strict")
        result |= {"additionalProperties": False, "required": list(result.get("properties", ()))}
    for key in ("properties", "$defs"):
        if key in result:
            result[key] = {name: _strict(each, f"{place}.{name}") for name, each in result[key].items()}
    if "items" in result:
        result["items"] = _strict(result["items"], f"{place}.items")
    if "anyOf" in result:
        result["anyOf"] = [_strict(each, place) for each in result["anyOf"]]
    return result


def _opened(schema: Schema) -> Schema:
    """Return `schema` with a `$ref` at its top resolved; recursive types have one."""
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")  # pydantic refers to nothing else
    return {**schema["$defs"][name], "$defs": schema["$defs"]} if name else schema
