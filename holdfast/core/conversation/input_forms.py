"""`FormField`: a field of a form that a server asks a person to fill in: the protocol's flat subset of JSON Schema.

Patterns are the server's own to check: a foreign expression could block whoever runs it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Final, Literal, cast

from pydantic import JsonValue

from holdfast.core.base.did_you_mean import suggestion
from holdfast.core.base.safe_text import clamped

FORM_FIELDS_MAX: Final = 50
"""The most fields of a form: nobody fills in more on a terminal."""

OPTIONS_MAX: Final = 200
"""The most options of a field."""

PROBLEM_CHARS_MAX: Final = 200
"""How much of a foreign name or value is shown in an error."""

FieldKind = Literal["text", "number", "integer", "boolean", "choice", "choices"]
"""`choice` is one of a field's options, `choices` any of them."""

YES: Final = frozenset({"yes", "y", "true", "1"})
NO: Final = frozenset({"no", "n", "false", "0"})

_EXAMPLES: Final = {"date": "2026-07-28", "date-time": "2026-07-28T12:00Z"}
_EMAIL: Final = re.compile(r"[^@\s]+@[^@\s]+")
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S+")


@dataclass(frozen=True, slots=True)
class FormField:
    """A field: `least` and `most` bound a number's value, a text's length, or how many choices there are."""

    name: str
    kind: FieldKind
    title: str = ""
    description: str = ""
    required: bool = False
    default: JsonValue = None
    options: tuple[tuple[str, str], ...] = ()
    """Each option's value with its title."""
    least: float | None = None
    most: float | None = None
    format: str = ""

    @property
    def hint(self) -> str:
        """What it takes, in a few words."""
        values = ", ".join(value for value, _ in self.options)
        match self.kind:
            case "choice":
                return f"one of {values}"
            case "choices":
                return f"some of {values}, with commas between them"
            case "boolean":
                return "yes or no"
            case "text":
                return self.format or "text"
            case _:
                return self.kind

    def read(self, text: str) -> JsonValue:
        """Return the value that a person wrote as `text`. Raises ValueError for what is none of this kind."""
        match self.kind:
            case "boolean" if text.lower() in YES | NO:
                return text.lower() in YES
            case "integer" | "number":
                try:
                    return int(text) if self.kind == "integer" else float(text)
                except ValueError:
                    raise ValueError(f"{self.name}: {_shown(text)} is no {self.kind}") from None
            case "boolean":
                raise ValueError(f"{self.name}: {_shown(text)} is neither yes nor no")
            case "choices":
                return [part.strip() for part in text.split(",") if part.strip()]
            case _:
                return text

    def problem(self, value: JsonValue) -> str | None:
        """Return why the field cannot have this value, if so."""
        why = self._kind_problem(value)
        if why is None and self.kind in ("text", "choices"):
            why = self._range_problem(len(cast("str", value)), "characters" if self.kind == "text" else "choices")
        elif why is None and self.kind in ("number", "integer"):
            why = self._range_problem(cast("float", value), "")
        return None if why is None else f"{self.name}: {why}"

    def _kind_problem(self, value: JsonValue) -> str | None:
        match self.kind, value:
            case "text", str():
                return self._format_problem(value)
            case "choice", str():
                return self._option_problem(value)
            case "choices", list():
                return next((why for each in value if (why := self._option_problem(each))), None)
            case ("boolean", bool()) | ("number", float()):
                return None
            case "integer" | "number", int() if not isinstance(value, bool):
                return None
            case "integer", float() if value.is_integer():
                return None
            case _:
                return f"{_shown(value)} does not fit ({self.hint})"

    def _option_problem(self, value: JsonValue) -> str | None:
        values = [each for each, _ in self.options]
        return None if value in values else f"{_shown(value)} is no option; {suggestion(str(value), values)}"

    def _format_problem(self, value: str) -> str | None:
        try:
            match self.format:
                case "date":
                    date.fromisoformat(value)
                case "date-time":
                    datetime.fromisoformat(value)
                case "email" if not _EMAIL.fullmatch(value):
                    return f"{_shown(value)} is no email address"
                case "uri" if not _URI.fullmatch(value):
                    return f"{_shown(value)} is no URI"
                case _:
                    pass
        except ValueError:
            return f"{_shown(value)} is no {self.format}, such as {_EXAMPLES[self.format]}"
        return None

    def _range_problem(self, value: float, unit: str) -> str | None:
        number = f"it has {value:,} {unit}, which" if unit else f"{value:,}"
        if self.least is not None and value < self.least:
            return f"{number} is less than {self.least:g}"
        if self.most is not None and value > self.most:
            return f"{number} is more than {self.most:g}"
        return None


def form_fields(schema: Mapping[str, JsonValue]) -> tuple[FormField, ...]:
    """Return the fields of a form. Raises ValueError for a schema that is not flat, or too large."""
    properties = schema.get("properties")
    if schema.get("type") != "object" or not isinstance(properties, dict):
        raise ValueError("a form is a JSON Schema of an object with properties")
    if len(properties) > FORM_FIELDS_MAX:
        raise ValueError(f"the form has {len(properties)} fields, at most {FORM_FIELDS_MAX} are shown")
    required = _texts(schema.get("required"))
    return tuple(_field(name, each, required=name in required) for name, each in properties.items())


def content_problem(fields: Sequence[FormField], content: Mapping[str, JsonValue]) -> str | None:
    """Return why `content` does not fill the form in, if so: the first problem."""
    known = {each.name: each for each in fields}
    for name in content:
        if name not in known:
            return f"the form has no field {_shown(name)}; {suggestion(name, known)}"
    for each in fields:
        value = content.get(each.name)
        if value is None and each.required:
            return f"{each.name}: it is required ({each.hint})"
        if value is not None and (problem := each.problem(value)):
            return problem
    return None


def _field(name: str, schema: JsonValue, *, required: bool) -> FormField:
    if not isinstance(schema, dict):
        raise ValueError(f"the form's field {_shown(name)} has no schema")  # noqa: TRY004  # pydantic wants ValueErrors
    kind, options = _kind(name, schema)
    ends = {"text": ("minLength", "maxLength"), "choices": ("minItems", "maxItems")}.get(kind, ("minimum", "maximum"))
    least, most = (_number(schema.get(each)) for each in ends)
    return FormField(
        name=name,
        kind=kind,
        title=_text(schema.get("title")),
        description=_text(schema.get("description")),
        required=required,
        default=schema.get("default"),
        options=options,
        least=least,
        most=most,
        format=_text(schema.get("format")) if kind == "text" else "",
    )


def _kind(name: str, schema: Mapping[str, JsonValue]) -> tuple[FieldKind, tuple[tuple[str, str], ...]]:
    match schema.get("type"):
        case "array":
            items = schema.get("items")
            options = _options(items) if isinstance(items, dict) else ()
            if not options:
                raise ValueError(f"the form's field {_shown(name)} is a list without options")
            return "choices", options
        case "string":
            options = _options(schema)
            return ("choice", options) if options else ("text", ())
        case "number" | "integer" | "boolean" as kind:
            return cast("FieldKind", kind), ()
        case other:
            raise ValueError(f"the form's field {_shown(name)} is of the type {_shown(other)}; forms are flat")


def _options(schema: Mapping[str, JsonValue]) -> tuple[tuple[str, str], ...]:
    values, names = _texts(schema.get("enum")), _texts(schema.get("enumNames"))
    options = [(value, names[place] if place < len(names) else value) for place, value in enumerate(values)]
    titled = schema.get("oneOf") or schema.get("anyOf")
    options.extend(
        (value, _text(each.get("title")) or value)
        for each in (titled if isinstance(titled, list) else [])
        if isinstance(each, dict) and isinstance(value := each.get("const"), str)
    )
    if len(options) > OPTIONS_MAX:
        raise ValueError(f"a field of the form has {len(options)} options, at most {OPTIONS_MAX} are shown")
    return tuple(options)


def _texts(value: JsonValue) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""


def _number(value: JsonValue) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _shown(value: object) -> str:
    return clamped(repr(value), PROBLEM_CHARS_MAX)
