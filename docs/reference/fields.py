"""Griffe's extension for the reference: fields without a docstring of their own stand in a table with their class."""

from __future__ import annotations

import ast
from typing import Any

import griffe


class Fields(griffe.Extension):
    """Adds an `Attributes:` section to the docstring of each class with such fields."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:  # noqa: ANN401  # what griffe gives besides
        """Write the fields of `cls` that its docstring does not tell into it."""
        told = cls.docstring.value.rstrip() if cls.docstring else ""
        lines = [f"    {name}: {_told(each)}" for name, each in _fields(cls) if f"    {name}:" not in told]
        if lines:
            head = told if "\nAttributes:\n" in told else f"{told}\n\nAttributes:"
            docstring = cls.docstring or griffe.Docstring(
                "", parent=cls, lineno=cls.lineno, parser=griffe.Parser.google
            )
            docstring.value = "\n".join([head.lstrip(), *lines])
            cls.docstring = docstring


def _fields(cls: griffe.Class) -> list[tuple[str, griffe.Attribute]]:
    attributes = [(name, each) for name, each in cls.members.items() if isinstance(each, griffe.Attribute)]
    return [(name, each) for name, each in attributes if _is_field(name, each)]


def _is_field(name: str, each: griffe.Attribute) -> bool:
    return not (name.startswith("_") or name == "model_config" or each.docstring or "property" in each.labels)


def _told(field: griffe.Attribute) -> str:
    """Return what the reader is told of a field beside its type: its value, its default, its bounds."""
    if field.value is None:
        return "to be given"
    if field.annotation is None:
        return f"`{field.value}`"  # a member of an enumeration
    call = ast.parse(str(field.value), mode="eval").body
    if not (isinstance(call, ast.Call) and ast.unparse(call.func) in {"Field", "field"}):
        return f"by default `{field.value}`"
    said = {each.arg or "": ast.unparse(each.value) for each in call.keywords}
    default = said.pop("default", said.pop("default_factory", None))
    parts = ["to be given" if default is None else f"by default `{default}`"]
    return ", ".join([*parts, *(f"`{name}={value}`" for name, value in said.items())])
