"""Output about what a call's server asks a person for, and asking for it field by field on a terminal."""

from __future__ import annotations

import typer
from pydantic import JsonValue

from holdfast.cli.screens import output
from holdfast.core.base.call_digest import short_digest
from holdfast.core.base.safe_text import printable
from holdfast.core.conversation.input_forms import FormField
from holdfast.core.conversation.input_requests import InputRequest
from holdfast.core.conversation.steps import OpenCall


def whole(execution_id: str, waiting: OpenCall, request: InputRequest) -> str:
    """Return what the server asks, with the link or every field of the form."""
    who = waiting.input_server or "the agent"
    about = f"{who} asks, for {waiting.call.name} of run {execution_id}, call {waiting.call.id}"
    lines = [f"{about}, digest {short_digest(waiting.digest or '')}", request.message]
    lines += [f"open {request.url}"] if request.url else [_field_line(each) for each in request.fields]
    return printable("\n".join(lines))


def _field_line(field: FormField) -> str:
    about = ". ".join(filter(None, (field.title, field.description)))
    optional = "" if field.required else ", optional"
    default = "" if field.default is None else f", default {field.default}"
    return f"  {field.name} ({field.hint}{optional}{default}){f': {about}' if about else ''}"


def asked_values(request: InputRequest) -> dict[str, JsonValue]:
    """Ask for each field until its value fits; an optional one may stay empty."""
    values: dict[str, JsonValue] = {}
    for field in request.fields:
        value = _asked(field)
        if value is not None:
            values[field.name] = value
    return values


def _asked(field: FormField) -> JsonValue:
    default = "" if field.default is None else _typed(field.default)
    while True:
        text = str(typer.prompt(printable(_field_line(field)).strip(), default=default, show_default=bool(default)))
        if not text:
            if not field.required:
                return None
            output.hint(f"{printable(field.name)}: it is required")
            continue
        try:
            value = field.read(text)
        except ValueError as error:
            output.hint(printable(str(error)))
            continue
        problem = field.problem(value)
        if problem is None:
            return value
        output.hint(printable(problem))


def _typed(value: JsonValue) -> str:
    """Return a value as a person would type it."""
    match value:
        case bool():
            return "yes" if value else "no"
        case list():
            return ", ".join(map(str, value))
        case _:
            return str(value)
