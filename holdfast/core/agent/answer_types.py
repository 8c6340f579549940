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
"""Keywords that strict outputs refuse and that say nothing where every property is required, and"""

FORBIDDEN: Final = frozenset({"allOf", "not", "prefixItems"})
"""those that they refuse and that say something; pydantic writes the last one for a tuple."""

FORMAT_HINT: Final = (
    "write `class Ticket(BaseModel): title: str` and pass the class, "
    "or put a JSON Schema of your own into the definition: `response_format: {type: json_schema, json_schema: {...}}`"
)
"""What to do where something else than a pydantic model is given as an answer's type."""


def format_of(model: type[BaseModel], *, name: str | None = None, strict: bool = False) -> JsonSchemaFormat:
    """Return the response format that asks for a `model`.

    Args:
        model: the type of the answer.
        name: what the provider calls it; the type's own name by default.
        strict: ask the provider to hold to the schema itself, in the form OpenAI's structured outputs demand: every
            property is required, no other is allowed (https://platform.openai.com/docs/guides/structured-outputs).

    Raises InvalidInput when `model` is no pydantic model, has no JSON Schema, or none that `strict` allows.
    """
    if not (isinstance(model, type) and issubclass(model, BaseModel)):  # pyright: ignore[reportUnnecessaryIsInstance]  # a caller without a type checker
        raise InvalidInput(f"{_named(model)} is no pydantic model; {FORMAT_HINT}")
    try:
        schema = model.model_json_schema()
    except (PydanticInvalidForJsonSchema, PydanticUserError) as error:
        first = str(error).splitlines()[0][:FORMAT_PLACE_CHARS_MAX]
        raise InvalidInput(f"{model.__name__} has no JSON Schema: {first}; use types that JSON can spell") from None
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
        told = _told(error)
    except ValueError as error:
        told = f"it is not usable JSON: {error}"
    line = " ".join(clamped(told, FORMAT_PROBLEM_CHARS_MAX).split())
    raise AnswerInvalid(f"the answer is no {model.__name__}: {line}; see the answer's text for what the model said")


def _named(value: object) -> str:
    return value.__name__ if isinstance(value, type) else f"a value of type {type(value).__name__}"


def _told(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_input=False, include_context=False)
    told = [
        f"{'.'.join(str(part) for part in problem['loc'])[:FORMAT_PLACE_CHARS_MAX] or 'the whole'}: "
        f"{problem_text(problem)[:FORMAT_PLACE_CHARS_MAX]}"
        for problem in found[:FORMAT_PROBLEMS_MAX]
    ]
    more = [f"and {len(found) - len(told):,} more"] if len(found) > len(told) else []
    return "; ".join([*told, *more])


def _strict(schema: Schema, place: str) -> Schema:
    """Return `schema` in the strict form; `place` names it in an error."""
    made = {key: value for key, value in schema.items() if key not in DROPPED}
    if "oneOf" in made:  # of a tagged union: its tags keep the choices apart
        made["anyOf"] = made.pop("oneOf")
    if "$ref" in made and len(made) > 1:  # a reference stands alone; what describes it goes around it
        made["anyOf"] = [{"$ref": made.pop("$ref")}]
    if forbidden := FORBIDDEN & made.keys():
        raise InvalidInput(f"{place} needs {min(forbidden)!r}, which strict outputs forbid; use a list, or drop strict")
    if made.get("type") == "object":
        if made.get("additionalProperties", False) is not False:
            raise InvalidInput(f"{place} takes any name, which strict outputs forbid; name its fields, or drop strict")
        made |= {"additionalProperties": False, "required": list(made.get("properties", ()))}
    for key in ("properties", "$defs"):
        if key in made:
            made[key] = {name: _strict(each, f"{place}.{name}") for name, each in made[key].items()}
    if "items" in made:
        made["items"] = _strict(made["items"], f"{place}.items")
    if "anyOf" in made:
        made["anyOf"] = [_strict(each, place) for each in made["anyOf"]]
    return made


def _opened(schema: Schema) -> Schema:
    """Return `schema` with what it refers to at the top written out: so do types that hold themselves."""
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")  # pydantic refers to nothing else
    return {**schema["$defs"][name], "$defs": schema["$defs"]} if name else schema
