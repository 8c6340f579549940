"""Tools whose calls the loop answers itself (`ToolTraits.loop`): how one is made."""

from __future__ import annotations

from dataclasses import replace

from pydantic import BaseModel, JsonValue

from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.frozen import replace as changed
from holdfast.core.tools.tool_traits import LoopTool
from holdfast.core.tools.tools import AnyTool, tool


def loop_tool(kind: LoopTool, name: str, description: str, arguments: type[BaseModel]) -> AnyTool:
    """Return the tool of that `name`, with the schema of `arguments`; its function never runs."""

    @tool(name=name, description=description, schema=arguments.model_json_schema())
    def never_runs(**_: JsonValue) -> str:
        raise InvalidInput(f"the loop of a run answers calls of {name!r}; name its capability in an agent's definition")

    return replace(never_runs, traits=changed(never_runs.traits, loop=kind, attempts_max=1, idempotent=True))
