"""Which tools and hooks an agent takes: named ones, or all that are offered (`core.agent.toolset`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, cast

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationInfo
from pydantic_core import CoreSchema, core_schema

from holdfast.core.base.bounds import HOOKS_MAX, TOOLS_MAX
from holdfast.core.base.did_you_mean import nearest
from holdfast.core.base.errors import InvalidInput, UnknownTool
from holdfast.core.base.model_options import named_tool
from holdfast.core.base.names import Names
from holdfast.core.base.server_tools import ServerTool

ALL: Final = "all"
"""The word that takes every tool (or hook) offered, in place of a list of names."""


@dataclass(frozen=True, slots=True)
class _NamesOrAll:
    """How pydantic reads a choice: errors name the place a person wrote, as for a plain list of names."""

    names_max: int

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        names = handler.generate_schema(Annotated[Names, Field(max_length=self.names_max)])
        return core_schema.with_info_wrap_validator_function(
            _read, names, serialization=core_schema.wrap_serializer_function_ser_schema(_written, schema=names)
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [handler(schema), {"const": ALL, "type": "string"}]}


ToolChoice = Annotated[Names | Literal["all"], _NamesOrAll(TOOLS_MAX)]
"""Names of tools, or `all`."""

HookChoice = Annotated[Names | Literal["all"], _NamesOrAll(HOOKS_MAX)]
"""Names of hooks, or `all`."""


def named(choice: tuple[str, ...] | Literal["all"]) -> tuple[str, ...]:
    """Return the names that `choice` lists; `all` lists none."""
    return () if choice == ALL else choice


def chosen(choice: tuple[str, ...] | Literal["all"], available: Iterable[str]) -> tuple[str, ...]:
    """Return the names that `choice` takes, where `all` stands for those `available`."""
    return tuple(available) if choice == ALL else choice


def _read(value: object, names: core_schema.ValidatorFunctionWrapHandler, info: ValidationInfo) -> object:
    if value == ALL:
        return ALL
    if problem := _problem_with(value, info.field_name or "names"):
        raise ValueError(problem)
    return names(value)


def _problem_with(value: object, field: str) -> str | None:
    every = f"or `{field}: all` for every one that is offered"
    if isinstance(value, str):
        return f"{value[:60]!r} is not a list of names; write `{field}: [{value[:60]}]`, {every}"
    if not isinstance(value, list | tuple):
        return f"this is not a list of names; write [] for none, {every}"
    if ALL in cast("list[object] | tuple[object, ...]", value):
        return f"{ALL!r} cannot be an item of a list; write `{field}: {ALL}`"
    return None


def _written(choice: object, names: core_schema.SerializerFunctionWrapHandler) -> object:
    return ALL if choice == ALL else names(choice)


def check_tool_choice(agent: str, choice: str | None, names: Iterable[str]) -> None:
    """Raise UnknownTool where `llm.tool_choice` names a tool that is not among `names`, which the model is shown."""
    forced, shown = named_tool(choice), tuple(names)
    if forced is not None and forced not in shown:
        raise UnknownTool(f"agent {agent!r}: llm.tool_choice names the tool {forced!r}, {nearest(forced, shown)}")


def check_server_tools(agent: str, server_tools: Iterable[ServerTool], names: Iterable[str]) -> None:
    """Raise InvalidInput where a tool of the provider's has the name of one of `names`, which the model is shown."""
    shown = frozenset(names)
    for tool in server_tools:
        if tool.name in shown:
            text = f"agent {agent!r}: llm.server_tools and the agent's tools both have {tool.name!r}; keep one of them"
            raise InvalidInput(text)
