"""Formatting of `--help`: a flag shows no value type. Runs nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


class Command(TyperCommand):
    """A command."""

    def get_params(self, ctx: Any) -> list[Any]:  # noqa: ANN401  # typer gives these types no public names
        """Return the parameters, flags without a value's type."""
        return _plain(super().get_params(ctx))


class Group(TyperGroup):
    """A group of commands."""

    def get_params(self, ctx: Any) -> list[Any]:  # noqa: ANN401  # as above
        """Return the parameters, flags without a value's type."""
        return _plain(super().get_params(ctx))


def with_plain_flags(*apps: typer.Typer) -> None:
    """Have the commands of `apps` name no type beside a flag."""
    for app in apps:
        for command in app.registered_commands:
            if command.cls is None or not issubclass(command.cls, Command):
                command.cls = Command


def _plain(parameters: Iterable[Any]) -> list[Any]:
    result = list(parameters)
    for each in result:
        if getattr(each, "is_flag", False) and each.metavar is None:
            each.metavar = ""
    return result
