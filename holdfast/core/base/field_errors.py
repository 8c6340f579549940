"""What pydantic found wrong in data that a person wrote, in one line: places as written, and the nearest names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from holdfast.core.base.bounds import ERROR_CHARS_MAX
from holdfast.core.base.did_you_mean import suggestion
from holdfast.core.base.safe_text import clamped, printable
from holdfast.core.base.validation_errors import problem_text

NUMBERS: Final = ("int_", "float_", "bool_", "greater_", "less_")
"""How pydantic's problems with numbers and truth values begin."""


def field_problems(error: ValidationError, root: type[BaseModel], whole: str = "", *, may_hold_secrets: bool) -> str:
    """Return every problem, each with its field and, for what is unknown, the nearest known name.

    `whole` names what has no field. Where the data `may_hold_secrets`, only numbers and unknown choices are repeated.
    """
    problems = (
        _problem_line(each, *_place(each["loc"], root), whole, may_hold_secrets=may_hold_secrets)
        for each in error.errors(include_url=False)
    )
    return " ".join(clamped(printable("; ".join(problems)), ERROR_CHARS_MAX).split())


def _problem_line(
    problem: ErrorDetails, path: list[str], models: list[type[BaseModel]], whole: str, *, may_hold_secrets: bool
) -> str:
    field = ".".join(path)[:80] or whole
    context = problem.get("ctx", {})
    match problem["type"]:
        case "extra_forbidden":
            names = sorted({name for model in models for name in model.model_fields})
            return f"unknown field {field!r}, {suggestion(path[-1], names)}"
        case "missing":
            return f"{field}: is missing"
        case "literal_error" | "enum":
            return f"{field}: {_unknown(problem['input'], _quoted(context['expected']))}"
        case "union_tag_invalid":
            return f"{field}.type: {_unknown(context['tag'], _quoted(context['expected_tags']))}"
        case "value_error":  # ours: it names the value itself
            return f"{field}: {problem_text(problem)}"
        case "string_type" if problem["loc"][-1] == "[key]":
            return f"{field}: is not a text; put the name in quotes"
        case kind if may_hold_secrets and not kind.startswith(NUMBERS):
            return f"{field}: {problem_text(problem)}"
        case _:
            return f"{field}: {problem_text(problem)} (it is {_shown(problem['input'])})"


def _unknown(value: object, choices: Sequence[str]) -> str:
    if not isinstance(value, str):
        return f"{_shown(value)} is not a value of it, {suggestion('', choices)}"
    return f"{value[:60]!r} is not a value of it, {suggestion(value, choices)}"


def _quoted(text: str) -> list[str]:
    """Return the values in pydantic's "'recover' or 'fatal'"."""
    return re.findall(r"'([^']*)'", text)


def _shown(value: object) -> str:
    try:
        return repr(str(value)[:60])
    except Exception:  # noqa: BLE001  # a number too long for text, a value whose __str__ raises
        return f"a {type(value).__name__}"


def _place(loc: Sequence[int | str], root: type[BaseModel]) -> tuple[list[str], list[type[BaseModel]]]:
    """Return the path a person wrote, and the models whose fields its last name may be.

    pydantic's path names more: which form of a union was tried, and of JSON values their type after every name.
    """
    path: list[str] = []
    models: list[type[BaseModel]] = [root]
    for index, part in enumerate(loc):
        if isinstance(part, int):
            path.append(str(part))
        elif len(models) > 1:  # not a field, but the `type` that tells which model it is
            models = [model for model in models if model.model_fields["type"].default == part]
        else:
            path.append(part)
            field = models[0].model_fields.get(part)
            inner = [] if field is None else list(_models(field.annotation))
            if not inner:
                rest = loc[index + 1 :]
                return [*path, *(str(each) for each in rest[::2])], models
            if index < len(loc) - 1:
                models = inner
    return path, models


def _models(annotation: Any) -> Iterator[type[BaseModel]]:  # noqa: ANN401  # any type form
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)
