"""The tool that hands the conversation to another agent, and which agent a conversation goes on with. Runs nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Final

from pydantic import JsonValue

from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.initial_state import as_defined
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.subagents import spawn_schema
from holdfast.core.base.bounds import REASON_CHARS_MAX, TOOL_DESCRIPTION_CHARS_MAX
from holdfast.core.base.did_you_mean import nearest
from holdfast.core.base.frozen import replace
from holdfast.core.base.safe_text import clamped
from holdfast.core.conversation.handoffs import HANDOFF
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.conversation.steps import ErrorRecord
from holdfast.core.tools.tool_traits import ToolSchema

HANDOFF_TOOL: Final = HANDOFF
"""The name of the tool that hands the conversation to another agent."""

HANDOFFS_MADE_MAX: Final = 20
"""The most handoffs of one execution: two agents that send a person to each other must not do so for ever."""


def handoff_schema(handoffs: Mapping[str, AgentDefinition]) -> ToolSchema:
    """Return the tool's schema for the model: which agents there are, and what each is for."""
    about = "There are: " + "; ".join(
        f"{name}: {each.description}" if each.description else name for name, each in sorted(handoffs.items())
    )
    names: list[JsonValue] = [*sorted(handoffs)]
    properties: dict[str, JsonValue] = {
        "agent": {"type": "string", "enum": names, "description": "which agent goes on"},
        "reason": {"type": "string", "description": "why, in a line"},
    }
    text = f"Hand the whole conversation over to another agent, which answers from here on. {about}"
    return ToolSchema(
        name=HANDOFF_TOOL,
        description=clamped(text, TOOL_DESCRIPTION_CHARS_MAX),
        parameters={
            "type": "object",
            "properties": properties,
            "required": ["agent"],
            "additionalProperties": False,
        },
    )


def loop_tools(
    subagents: Mapping[str, AgentDefinition], handoffs: Mapping[str, AgentDefinition]
) -> tuple[ToolSchema, ...]:
    """Return the tools that the loop itself offers the model: for its subagents, and for its handoffs."""
    return (
        *((spawn_schema(subagents),) if subagents else ()),
        *((handoff_schema(handoffs),) if handoffs else ()),
    )


def problem_with_handoff(call: ToolCall, handoffs: Mapping[str, AgentDefinition], made: int) -> ErrorRecord | None:
    """Return why `call` hands nothing over after `made` handoffs, if so; the model sees it and can go on itself."""
    agent, reason = call.arguments.get("agent"), call.arguments.get("reason", "")
    if not isinstance(agent, str) or not isinstance(reason, str) or not call.arguments.keys() <= {"agent", "reason"}:
        text = "give `agent` and, if you like, `reason`, both texts, and nothing else"
        return ErrorRecord(type="InvalidArguments", message=text, source=HANDOFF_TOOL)
    if agent not in handoffs:
        text = f"the model asked for the agent {agent[:80]!r}, {nearest(agent, handoffs)}"
        return ErrorRecord(type="UnknownHandoff", message=text, source=HANDOFF_TOOL)
    if made >= HANDOFFS_MADE_MAX:
        text = f"not handed over: one run has at most {HANDOFFS_MADE_MAX} handoffs; go on without another one"
        return ErrorRecord(type="TooManyHandoffs", message=text, source=HANDOFF_TOOL)
    return None


def second_handoff() -> ErrorRecord:
    """Return the error of a handoff in a step that has one already."""
    text = "not handed over: the first handoff of an answer counts, and this is another one"
    return ErrorRecord(type="SecondHandoff", message=text, source=HANDOFF_TOOL)


def reason_of(call: ToolCall) -> str:
    """Return the reason that the model gives for a handoff, as it is recorded."""
    return clamped(str(call.arguments.get("reason", "")), REASON_CHARS_MAX)


def definition_digest(definition: AgentDefinition) -> str:
    """Return the digest of a definition: of its fields that are not as by default, so that new fields change none."""
    return sha256(definition.__pydantic_serializer__.to_json(definition, exclude_defaults=True)).hexdigest()


def conversation_holder(
    state: AgentState, definition: AgentDefinition, agents: Iterable[AgentDefinition]
) -> AgentDefinition:
    """Return the agent that the conversation in `state` goes on with where `definition` is asked to: the last one.

    That is `definition` itself where nothing was handed over, where it is not the definition that the conversation
    began with, and where the agent that it was handed over to is not among `agents` any more.
    """
    handover = state.handover
    if handover is None or handover.origin_digest != definition_digest(definition) or handover.agent == definition.name:
        return definition
    return next((each for each in agents if each.name == handover.agent), definition)


def taken_over(state: AgentState, holder: AgentDefinition) -> AgentState:
    """Return `state` as the agent `holder` goes on with it; without the handoff where it went to another agent.

    Prompt, model and response format become that agent's where they are another's.
    """
    handover = state.handover
    if handover is None:
        return state
    if handover.agent != holder.name:
        state = replace(state, handover=None)
    as_it_stands = state.metadata.get("agent") == holder.name
    return state if as_it_stands else as_defined(state, holder, state.updated_at, handoff=True)
