"""What an agent may know of the agents that it can call or hand the conversation to."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import to_json

from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.handoffs import HANDOFF_TOOL
from holdfast.core.agent.policies import JsonSchemaFormat
from holdfast.core.agent.subagents import SPAWN_TOOL
from holdfast.core.base.did_you_mean import nearest
from holdfast.core.base.safe_text import clamped
from holdfast.core.base.validation_errors import problems_text
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.conversation.steps import ErrorRecord
from holdfast.core.loop.transition import Transition

LISTED_CHARS_MAX: Final = 300
"""How much of a description the list of all agents shows: there may be 128."""

DESCRIBED_CHARS_MAX: Final = 20_000
"""The longest answer."""


class DescribeAgents(BaseModel):
    """The arguments of `describe_agents`."""

    model_config = ConfigDict(extra="forbid")

    agent: str | None = Field(default=None, description="The agent to describe in full; leave it out to list all.")


def describe(transition: Transition, call: ToolCall) -> tuple[str | None, ErrorRecord | None]:
    """Return what the model is told of one agent, or of all that it can call or hand over to."""
    try:
        name = DescribeAgents.model_validate(dict(call.arguments)).agent
    except ValidationError as error:
        return None, ErrorRecord(type="InvalidArguments", message=problems_text(error), source=call.name)
    rules = transition.rules
    agents = {**rules.subagents, **rules.handoffs}
    ways = {
        each: [tool for tool, there in ((SPAWN_TOOL, rules.subagents), (HANDOFF_TOOL, rules.handoffs)) if each in there]
        for each in agents
    }
    if name is None:
        lines = (f"- {_heading(each, ways[each.name], LISTED_CHARS_MAX)}" for each in agents.values())
        return clamped("\n".join(lines), DESCRIBED_CHARS_MAX) or "there are no agents that you can call", None
    if name not in agents:
        text = f"the agent {name[:80]!r} is asked for, {nearest(name, agents)}"
        return None, ErrorRecord(type="UnknownSubagent", message=text, source=call.name)
    return clamped("\n".join(_lines(agents[name], ways[name])), DESCRIBED_CHARS_MAX), None


def _heading(agent: AgentDefinition, ways: list[str], chars_max: int | None = None) -> str:
    about = " ".join(agent.description.split()) or "no description"
    return f"{agent.name} ({' or '.join(ways)}): {about if chars_max is None else clamped(about, chars_max)}"


def _lines(agent: AgentDefinition, ways: list[str]) -> list[str]:
    """Return the lines on one agent: what it is for, what it has, what it takes and gives."""
    tools = agent.tools if isinstance(agent.tools, str) else ", ".join(agent.tools) or "none"
    lines = [_heading(agent, ways), f"tools: {tools}"]
    for label, names in (
        ("capabilities", agent.capabilities),
        ("MCP servers", agent.mcp_names),
        ("calls", agent.subagents),
        ("hands over to", agent.handoffs),
    ):
        lines += [f"{label}: {', '.join(names)}"] if names else []
    lines.append("takes: a text, the task" if SPAWN_TOOL in ways else "takes: the conversation")
    answer = agent.response_format
    schema = f", of this schema: {to_json(answer.json_schema).decode()}" if isinstance(answer, JsonSchemaFormat) else ""
    lines.append(f"answers: {'a text' if answer.type == 'text' else 'JSON'}{schema}")
    return lines
