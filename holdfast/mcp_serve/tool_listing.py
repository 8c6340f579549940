"""The tools that the server lists: one for each offered agent, and those that stand for a run under way. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from mcp_types import Tool, ToolAnnotations
from pydantic import BaseModel

from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.policies import JsonSchemaFormat
from holdfast.core.base.errors import InvalidInput
from holdfast.mcp_serve.requests import AgentArguments, GetRunArguments, StopRunArguments

AGENTS_OFFERED_MAX: Final = 100
"""The most agents that one server offers: clients show their models every tool."""

GET_RUN: Final = "get_run"
STOP_RUN: Final = "stop_run"

HANDLE_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "run_id": {"type": "string"},
        "status": {"enum": ["running", "waiting"]},
        "step": {"type": "integer"},
        "waiting": {"type": "array", "items": {"type": "object"}},
    },
    "required": ["run_id", "status", "step", "waiting"],
}
"""What a call returns whose `wait_seconds` are over before the run has ended."""


def check_offered(agents: Iterable[str]) -> None:
    """Raise InvalidInput for agents that cannot be offered together."""
    names = list(agents)
    if not names:
        raise InvalidInput("there are no agents to offer; name the folder with --agents, or a module with --import")
    if len(names) > AGENTS_OFFERED_MAX:
        raise InvalidInput(f"{len(names)} agents are offered, at most {AGENTS_OFFERED_MAX} are allowed; name some")
    for name in (each for each in names if each in (GET_RUN, STOP_RUN)):
        raise InvalidInput(
            f"an agent is called {name!r}, as one of the server's own tools; name the others, or rename it"
        )


def listed_tools(agents: Iterable[AgentDefinition]) -> list[Tool]:
    """Return the server's tools in the order of the agents' names, its own ones last."""
    return [
        *(_agent_tool(each) for each in sorted(agents, key=lambda each: each.name)),
        Tool(
            name=GET_RUN,
            description="Return the answer of a run that an agent's tool has begun, or how far it is.",
            input_schema=_schema(GetRunArguments),
            annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False),
        ),
        Tool(
            name=STOP_RUN,
            description="Stop a run that an agent's tool has begun. What its tools have done is not undone.",
            input_schema=_schema(StopRunArguments),
            annotations=ToolAnnotations(destructive_hint=True, idempotent_hint=True, open_world_hint=False),
        ),
    ]


def _agent_tool(agent: AgentDefinition) -> Tool:
    return Tool(
        name=agent.name,
        title=agent.label or None,
        description=agent.description or f"Ask the agent {agent.label or agent.name}.",
        input_schema=_schema(AgentArguments),
        output_schema=_output_schema(agent),
    )


def _schema(kind: type[BaseModel]) -> dict[str, Any]:
    schema = kind.model_json_schema()
    for each in (schema, *schema["properties"].values()):
        each.pop("title", None)  # the class's name, and the field's
    del schema["description"]
    return schema


def _output_schema(agent: AgentDefinition) -> dict[str, Any] | None:
    """Return the schema of the agent's answers, or of a handle; none where an answer need not be an object.

    References in the form count from the schema's root, so its definitions move there.
    """
    form = agent.response_format
    if not isinstance(form, JsonSchemaFormat) or form.json_schema.get("type") != "object":
        return None
    answer = {
        name: value for name, value in form.json_schema.items() if name not in ("$defs", "definitions", "$schema")
    }
    moved = {name: form.json_schema[name] for name in ("$defs", "definitions") if name in form.json_schema}
    return {"type": "object", "anyOf": [answer, dict(HANDLE_SCHEMA)], **moved}
