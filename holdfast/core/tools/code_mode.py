"""Code Mode: the tool `run_code`, whose script calls an agent's other tools as functions. Runs no script."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from keyword import iskeyword
from typing import Annotated, Final, Literal, cast

from pydantic import Field, JsonValue
from pydantic_core import to_json

from holdfast.core.base.bounds import TOOL_DESCRIPTION_CHARS_MAX, TOOLS_MAX
from holdfast.core.base.did_you_mean import nearest
from holdfast.core.base.errors import UnknownTool
from holdfast.core.base.frozen import Frozen, canonical, replace
from holdfast.core.base.names import Names
from holdfast.core.base.safe_text import clamped
from holdfast.core.tools.tool_search import CALL_TOOL, SEARCH_TOOL
from holdfast.core.tools.tool_traits import ToolSchema, ToolTraits

RUN_CODE: Final = "run_code"
"""The tool that runs a script."""

SCRIPT_CHARS_MAX: Final = 32_000
"""The longest script: it travels as one argument, and all arguments of an answer share ARGUMENTS_BYTES_MAX."""

SCRIPT_CALLS_MAX: Final = 128
"""The most tool calls of all scripts of one step: each is a few events of the run's history."""

SIGNATURE_CHARS_MAX: Final = 600
"""The longest signature; a longer one is given as `**arguments`."""

_TYPE_DEPTH_MAX: Final = 3
"""How deep the types of a signature nest; below that they are `Any`."""

_CHOICES_MAX: Final = 12
"""The most values of an enum that a signature lists."""

_SUMMARY_CHARS_MAX: Final = 160
"""How much of a tool's description stands beside its signature."""

_TYPES: Final = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "null": "None",
    "object": "dict",
    "array": "list",
}


def nested_call_id(script_call_id: str, number: int) -> str:
    """Return the id of the call of that number, from 1 on, which the script of the call `script_call_id` makes."""
    return f"{script_call_id}/{number}"


def script_call_id(call_id: str) -> str:
    """Return the id of the call whose script has made the call `call_id`; nothing meaningful for any other call."""
    return call_id.rpartition("/")[0]


class CodeMode(Frozen):
    """Lets the model write Python over its tools: it gets the tool `run_code`.

    `tools` are those that a script may call, by default all that the agent has. With `only` the model calls them in
    scripts alone: it is not shown them as tools.
    """

    tools: Annotated[Names, Field(max_length=TOOLS_MAX)] | Literal["all"] = "all"
    only: bool = False


def with_code(
    traits: Sequence[ToolTraits], schemas: Mapping[str, ToolSchema], mode: CodeMode
) -> tuple[tuple[ToolTraits, ...], ToolSchema]:
    """Return the tools with `run_code` among them, and its schema; with `only`, those that it calls are deferred.

    `schemas` are those of the tools by name. Raises UnknownTool for one that the mode names and the agent lacks.
    """
    known = script_tools(tuple(each.name for each in traits), mode)
    schema = code_schema(tuple(schemas[name] for name in known if name in schemas))
    described = ToolTraits(
        name=RUN_CODE, sequential=True, required=("code",), described_bytes=len(canonical(schema)), idempotent=True
    )
    hidden = set(known) if mode.only else set[str]()
    shown = tuple(replace(each, deferred=True) if each.name in hidden else each for each in traits)
    return (*shown, described), schema


def script_tools(names: Sequence[str], mode: CodeMode) -> tuple[str, ...]:
    """Return those of an agent's tools that a script may call. Raises UnknownTool for one that it lacks."""
    own = tuple(name for name in names if name not in (RUN_CODE, SEARCH_TOOL, CALL_TOOL))
    if mode.tools == "all":
        return own
    for name in mode.tools:
        if name not in own:
            raise UnknownTool(f"code.tools names the tool {name!r}, {nearest(name, own)}")
    return mode.tools


def function_names(tools: Iterable[str]) -> dict[str, str]:
    """Return the tools by the names of their functions: `list-files` is called `list_files`."""
    functions: dict[str, str] = {}
    for tool in sorted(tools):
        name = re.sub(r"\W", "_", tool)
        name = f"_{name}" if name[:1].isdigit() else name
        while iskeyword(name) or name in functions:
            name += "_"
        functions[name] = tool
    return functions


def code_schema(tools: Sequence[ToolSchema]) -> ToolSchema:
    """Return the schema of `run_code`, whose description lists the functions as far as it has room for them."""
    by_name = {each.name: each for each in tools}
    about = (
        "Run a Python script that calls tools as functions, and get what it prints and the value of its last "
        "expression. Every function is async: write `await f(...)`, or `await asyncio.gather(f(...), g(...))` to run "
        "some at once; a failed call raises RuntimeError. There are no files, network, clock or third-party "
        "modules. Functions:\n"
    )
    lines = [_signature(name, by_name[tool]) for name, tool in function_names(by_name).items()]
    listed = ""
    for place, line in enumerate(lines):
        rest = f"… and {len(lines) - place} more that have no room here"
        if len(about) + len(listed) + len(line) + len(rest) + 2 > TOOL_DESCRIPTION_CHARS_MAX:
            listed += rest
            break
        listed += f"{line}\n"
    return ToolSchema(
        name=RUN_CODE,
        description=about + (listed.rstrip("\n") or "none"),
        parameters={
            "type": "object",
            "properties": {"code": {"type": "string", "maxLength": SCRIPT_CHARS_MAX, "description": "the script"}},
            "required": ["code"],
            "additionalProperties": False,
        },
    )


def parameters_of(schema: ToolSchema) -> tuple[str, ...]:
    """Return the names of a tool's arguments in their order, required ones first: so a script may give them."""
    properties, required = schema.parameters.get("properties"), schema.parameters.get("required")
    names = tuple(properties) if isinstance(properties, dict) else ()
    first: list[JsonValue] = required if isinstance(required, list) else []
    return tuple(sorted(names, key=lambda name: name not in first))


def _signature(name: str, schema: ToolSchema) -> str:
    properties = cast("dict[str, JsonValue]", schema.parameters.get("properties") or {})
    required = cast("list[JsonValue]", schema.parameters.get("required") or [])
    defs = cast("dict[str, JsonValue]", schema.parameters.get("$defs") or {})
    named = [
        f"{each}: {_type(properties[each], defs, 0)}{'' if each in required else ' = ...'}"
        for each in parameters_of(schema)
    ]
    arguments = ", ".join(named) if all(each.isidentifier() for each in properties) else "**arguments"
    result = _type(dict(schema.output), defs, 0) if schema.output is not None else "Any"
    text = f"{name}({arguments}) -> {result}"
    if len(text) > SIGNATURE_CHARS_MAX:
        text = f"{name}(**arguments) -> Any"
    about = clamped(" ".join(schema.description.split()), _SUMMARY_CHARS_MAX)
    return f"{text}  # {about}" if about else text


def _type(schema: JsonValue, defs: Mapping[str, JsonValue], depth: int) -> str:
    """Return a JSON Schema as a Python type, as far as it is worth the words."""
    if not isinstance(schema, dict) or depth > _TYPE_DEPTH_MAX:
        return "Any"
    reference, choices, kind = schema.get("$ref"), schema.get("enum"), schema.get("type")
    if isinstance(reference, str):
        return _type(defs.get(reference.rpartition("/")[2]), defs, depth + 1)
    if isinstance(choices, list) and len(choices) <= _CHOICES_MAX:
        return f"Literal[{', '.join(_literal(each) for each in choices)}]"
    either = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(either, list):
        return " | ".join(dict.fromkeys(_type(each, defs, depth + 1) for each in either))
    if isinstance(kind, list):
        return " | ".join(_TYPES.get(str(each), "Any") for each in kind)
    if kind == "array" and "items" in schema:
        return f"list[{_type(schema['items'], defs, depth + 1)}]"
    return _TYPES.get(str(kind), "Any")


def _literal(value: JsonValue) -> str:
    return repr(value) if value is None or isinstance(value, bool) else to_json(value).decode()
