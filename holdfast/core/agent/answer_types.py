"""Answers as pydantic models: the response format of a type, and an answer's text as a value of it."""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel, ValidationError
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUserError
from typing_extensions import TypeVar

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

ModelT = TypeVar("ModelT", bound=BaseModel)
AnswerT = TypeVar("AnswerT", default=Any)
"""What an agent answers, where that is known."""

Schema = dict[str, Any]

DROPPED: Final = ("default", "discriminator")
"""Keywords that strict outputs refuse and that can be dropped: they mean nothing when every property is required."""

FORBIDDEN: Final = frozenset({"allOf", "not", "prefixItems"})
"""Keywords that strict outputs refuse and that cannot be dropped; pydantic writes `prefixItems` for a tuple."""

FORMAT_HINT: Final = (
    "write `class Ticket(BaseModel): title: str` and pass the class, "
    "or put a JSON Schema of your own into the definition: `response_format: {type: json_schema, json_schema: {...}}`"
)
"""The remedy when an answer's type is not a pydantic model."""


def format_of(model: type[BaseModel], *, name: str | None = None, strict: bool = False) -> JsonSchemaFormat:
    """Return the response format that asks for a `model`.

    Args:
        model: the type of the answer.
        name: what the provider calls it; the type's own name by default.
        strict: ask the provider to enforce the schema, in the form that OpenAI's structured outputs demand: every
            property is required, no other is allowed (https://platform.openai.com/docs/guides/structured-outputs).

    Raises InvalidInput when `model` is not a pydantic model, has no JSON Schema, or none that `strict` allows.
    """
    if not (isinstance(model, type) and issubclass(model, BaseModel)) or model is BaseModel:  # pyright: ignore[reportUnnecessaryIsInstance]  # a caller without a type checker
        raise InvalidInput(f"{_named(model)} is not a pydantic model; {FORMAT_HINT}")
    try:
        schema = model.model_json_schema()
    except (PydanticInvalidForJsonSchema, PydanticUserError) as error:
        first = str(error).splitlines()[0][:FORMAT_PLACE_CHARS_MAX]
        raise InvalidInput(f"{model.__name__} has no JSON Schema: {first}; use types that JSON can represent") from None
    if strict:
        schema = _strict(_opened(schema), model.__name__)
        if schema.get("type") != "object":
            raise InvalidInput(f"strict outputs are objects, {model.__name__} is none; put it into a field of another")
    own = ILLEGAL_IN_NAME.sub("_", name or model.__name__)[:NAME_CHARS_MAX]
    return JsonSchemaFormat(name=own or "answer", json_schema=schema, strict=strict)


def typed(text: str, model: type[ModelT]) -> ModelT:
    """Return the answer `text` as a `model`; AnswerInvalid names the first problems in one line."""
    try:
        read_json(text)  # pydantic alone would take NaN, and any depth
        return model.model_validate_json(text)
    except ValidationError as error:
        problem = _problems_text(error)
    except ValueError as error:
        problem = f"it is not usable JSON: {error}"
    except Exception as error:  # noqa: BLE001  # of a validator of the user's
        problem = f"its check raised {type(error).__name__}: {error}"
    line = " ".join(clamped(problem, FORMAT_PROBLEM_CHARS_MAX).split())
    raise AnswerInvalid(f"the answer is not a valid {model.__name__}: {line}; see the answer's text for all of it")


def _named(value: object) -> str:
    return value.__name__ if isinstance(value, type) else f"a value of type {type(value).__name__}"


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
