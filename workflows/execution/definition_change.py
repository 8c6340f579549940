"""Resolves an agent's definition on a worker: at the start of a run, and when it changes between two steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from holdfast.core.agent.definition import LLM, AgentDefinition
from holdfast.core.agent.subagents import known_subagents, spawn_schema
from holdfast.core.base.frozen import replace
from holdfast.core.loop.events import DefinitionChanged
from holdfast.core.wire.contracts import DefinitionChange, ToolCatalog
from holdfast.core.wire.transcript_digest import TranscriptPrefix
from workflows.execution.activity_calls import resolve_tools
from workflows.execution.mcp_calls import Unlisted, resolve_mcp


@dataclass(frozen=True, slots=True)
class ResolvedChange:
    """A change resolved on this worker: the catalog, the transcript's prefix, and the core's event."""

    catalog: ToolCatalog
    opening: TranscriptPrefix
    event: DefinitionChanged


def opening_of(
    definition: AgentDefinition, catalog: ToolCatalog, subagents: Iterable[AgentDefinition]
) -> TranscriptPrefix:
    """Return the transcript's prefix for an agent with the tools of `catalog`.

    Raises UnknownAgent when one of its subagents is not among `subagents`.
    """
    if catalog.prompt and not definition.system_prompt.endswith(catalog.prompt):  # a continued state has it already
        prompt = "\n\n".join(filter(None, (definition.system_prompt, catalog.prompt)))
        definition = replace(definition, system_prompt=prompt)
    known = known_subagents(definition, subagents)
    spawn = spawn_schema(known) if known else None
    names = tuple(each.name for each in catalog.tools)
    return TranscriptPrefix(definition=definition, tools=names, spawn=spawn, mcp=catalog.mcp)


def priced(llm: LLM, catalog: ToolCatalog) -> LLM:
    """Return the model with the prices of the worker's table, where the definition has none."""
    return llm if llm.prices is not None else replace(llm, prices=catalog.prices)


async def resolved(change: DefinitionChange, unwanted: Callable[[], bool]) -> ResolvedChange | None:
    """Return `change` resolved on this worker, recorded; none when it became `unwanted` meanwhile.

    Raises a FailureError where the worker lacks what the definition names, and UnknownAgent.
    """
    mcp = await resolve_mcp(change.definition, None, unwanted)
    if isinstance(mcp, Unlisted):
        return None
    catalog = await resolve_tools(change.definition, mcp)
    opening = opening_of(change.definition, catalog, change.subagents)
    definition = replace(opening.definition, llm=priced(change.definition.llm, catalog))
    return ResolvedChange(catalog, opening, DefinitionChanged(definition, catalog.at, change.budget))
