"""The state of an agent as a definition sets it up: of a new agent, or of one with a new definition."""

from __future__ import annotations

from datetime import datetime

from holdfast.core.agent.definition import LLM, OPTIONS, AgentDefinition
from holdfast.core.agent.policies import TextFormat
from holdfast.core.agent.state import UNBORN_ID, AgentState
from holdfast.core.base.frozen import replace
from holdfast.core.conversation.model_call_changes import MODEL_FACTS


def new_agent(
    definition: AgentDefinition, *, agent_id: str, at: datetime, parent_agent_id: str | None = None
) -> AgentState:
    """Return the state of an agent that has done nothing yet."""
    blank = AgentState(agent_id=agent_id, parent_agent_id=parent_agent_id, created_at=at, updated_at=at)
    return as_defined(blank, definition, at)


def first_run(
    state: AgentState, definition: AgentDefinition, *, agent_id: str, at: datetime, parent_agent_id: str | None = None
) -> AgentState:
    """Return the state that a run continues from, with gaps filled in from the definition.

    Gaps are a prompt, a response format, a model and each of its settings. An `AgentState.empty` gets its id and time.
    """
    own = state.context
    context = replace(
        own,
        system_prompt=own.system_prompt or definition.system_prompt,
        response_format=definition.response_format if own.response_format == TextFormat() else own.response_format,
    )
    llm = definition.llm if state.llm is None else _filled(state.llm, definition.llm)
    if state.agent_id != UNBORN_ID:
        return state if (llm, context) == (state.llm, own) else replace(state, llm=llm, context=context)
    new = new_agent(definition, agent_id=agent_id, at=at, parent_agent_id=parent_agent_id)
    return replace(new, llm=llm, context=replace(context, metadata={**new.metadata, **own.metadata}))


def _filled(own: LLM, other: LLM) -> LLM:
    """Return the model with the settings of `other` where it has none; facts about a model are that one's alone."""
    same = own.model in (None, other.model)
    names = ("model", "max_output_tokens", *OPTIONS, *(MODEL_FACTS if same else ()))
    filled = {name: getattr(other, name) for name in names if getattr(own, name) is None}
    return replace(own, **filled, fallback=own.fallback or other.fallback)


def as_defined(state: AgentState, definition: AgentDefinition, at: datetime, *, handoff: bool = False) -> AgentState:
    """Return the agent with the model, prompt, response format and metadata of `definition`; other metadata stays.

    With a `handoff` all metadata that are there stay, and the definition's fill gaps: they are the conversation's.
    """
    first, second = (definition.metadata, state.metadata) if handoff else (state.metadata, definition.metadata)
    context = replace(
        state.context,
        system_prompt=definition.system_prompt,
        response_format=definition.response_format,
        metadata={**first, **second, "agent": definition.name},
    )
    return state.changed(at, llm=definition.llm, context=context)
