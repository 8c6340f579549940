"""An agent's state as its definition has it: of an agent that is new, and of one that goes on under another one."""

from __future__ import annotations

from datetime import datetime

from holdfast.core.definition import AgentDefinition
from holdfast.core.frozen import replace
from holdfast.core.state import AgentState


def new_agent(
    definition: AgentDefinition, *, agent_id: str, at: datetime, parent_agent_id: str | None = None
) -> AgentState:
    """Return the state of an agent that has done nothing yet."""
    blank = AgentState(agent_id=agent_id, parent_agent_id=parent_agent_id, created_at=at, updated_at=at)
    return as_defined(blank, definition, at)


def as_defined(state: AgentState, definition: AgentDefinition, at: datetime) -> AgentState:
    """Return the agent with model, prompt, answers' form and notes of `definition`; other notes of its own stay."""
    context = replace(
        state.context,
        system_prompt=definition.system_prompt,
        response_format=definition.response_format,
        metadata={**state.metadata, **definition.metadata, "agent": definition.name},
    )
    return state.changed(at, llm=definition.llm, context=context)
