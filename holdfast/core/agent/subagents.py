"""The tool that starts subagents, and what a subagent's end means to its caller. Runs nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from pydantic import JsonValue

from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.base.bounds import SUBAGENTS_AT_ONCE_MAX, TOOL_DESCRIPTION_CHARS_MAX
from holdfast.core.base.did_you_mean import nearest
from holdfast.core.base.errors import UnknownAgent
from holdfast.core.base.safe_text import clamped
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.conversation.steps import ErrorRecord
from holdfast.core.tools.tool_traits import ToolSchema

SUBAGENTS_STARTED_MAX: Final = 1_000
"""The most subagents that one execution starts in all; those that a subagent starts count for that subagent."""

SPAWN_TOOL: Final = "spawn"
"""The name of the tool that starts a subagent."""


def known_subagents(definition: AgentDefinition, agents: Iterable[AgentDefinition]) -> dict[str, AgentDefinition]:
    """Return the agents that `definition` may call, of those there are; UnknownAgent when one is not among them."""
    by_name = {each.name: each for each in agents}
    for name in definition.subagents:
        if name not in by_name:
            raise UnknownAgent(f"agent {definition.name!r} names the subagent {name!r}, {nearest(name, by_name)}")
    return {name: by_name[name] for name in definition.subagents}


def known_handoffs(definition: AgentDefinition, agents: Iterable[AgentDefinition]) -> dict[str, AgentDefinition]:
    """Return the agents that `definition` may hand over to; UnknownAgent when one is not among `agents`."""
    by_name = {each.name: each for each in agents}
    for name in definition.handoffs:
        if name not in by_name:
            raise UnknownAgent(f"agent {definition.name!r} names the handoff {name!r}, {nearest(name, by_name)}")
    return {name: by_name[name] for name in definition.handoffs}


def spawn_schema(subagents: Mapping[str, AgentDefinition]) -> ToolSchema:
    """Return the tool's schema for the model: which agents there are, and what each is for."""
    about = "There are: " + "; ".join(
        f"{name}: {each.description}" if each.description else name for name, each in sorted(subagents.items())
    )
    names: list[JsonValue] = [*sorted(subagents)]
    properties: dict[str, JsonValue] = {
        "agent": {"type": "string", "enum": names, "description": "which agent"},
        "task": {"type": "string", "description": "what it is to do; it knows nothing else"},
    }
    return ToolSchema(
        name=SPAWN_TOOL,
        description=clamped(f"Let another agent do a task and return its answer. {about}", TOOL_DESCRIPTION_CHARS_MAX),
        parameters={
            "type": "object",
            "properties": properties,
            "required": ["agent", "task"],
            "additionalProperties": False,
        },
    )


def problem_with_spawn(call: ToolCall, subagents: Mapping[str, AgentDefinition], depth_left: int) -> ErrorRecord | None:
    """Return why no subagent can be started for `call`, if so; the model sees it and can try something else."""
    agent, task = call.arguments.get("agent"), call.arguments.get("task")
    if not isinstance(agent, str) or not isinstance(task, str) or not task.strip() or len(call.arguments) != 2:  # noqa: PLR2004  # those two
        text = "give `agent` and `task`, both texts, and nothing else"
        return ErrorRecord(type="InvalidArguments", message=text, source=SPAWN_TOOL)
    if agent not in subagents:
        text = f"the model asked for the agent {agent[:80]!r}, {nearest(agent, subagents)}"
        return ErrorRecord(type="UnknownSubagent", message=text, source=SPAWN_TOOL)
    if depth_left < 1:
        text = f"agents must not nest any deeper than this one; do the task of {agent!r} without it"
        return ErrorRecord(type="SubagentTooDeep", message=text, source=SPAWN_TOOL)
    return None


def problem_with_number(beside: int, started: int) -> ErrorRecord | None:
    """Return why another subagent is not started, if so: `beside` are in its step already, `started` ran before."""
    if started + beside >= SUBAGENTS_STARTED_MAX:
        text = f"not started: one run starts at most {SUBAGENTS_STARTED_MAX:,} subagents; go on without this one"
    elif beside >= SUBAGENTS_AT_ONCE_MAX:
        text = f"not started: at most {SUBAGENTS_AT_ONCE_MAX} subagents run side by side; ask again for the rest"
    else:
        return None
    return ErrorRecord(type="TooManySubagents", message=text, source=SPAWN_TOOL)


def subagent_outcome(
    agent: str, status: ExecutionStatus, answer: str, why: str
) -> tuple[str | None, ErrorRecord | None]:
    """Return the result or the error that the caller's model sees when a subagent ends.

    A stopped one gives a result that says so, with its latest text; a failed one gives an error.
    """
    if status is ExecutionStatus.COMPLETED:
        return answer, None
    if status is ExecutionStatus.STOPPED:
        progress = f"; it had come to: {answer}" if answer.strip() else "; it had not answered yet"
        return f"[the agent {agent!r} was stopped before its end{f' ({why})' if why else ''}{progress}]", None
    text = f"the agent {agent!r} failed: {why}"
    return None, ErrorRecord(type="SubagentFailed", message=text, source=SPAWN_TOOL)
