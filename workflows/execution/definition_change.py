"""Resolves an agent's definition on a worker: at the start of a run, and when it changes between two steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from temporalio.exceptions import FailureError

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import LLM, AgentDefinition
from holdfast.core.agent.handoffs import definition_digest, handoff_schema
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.subagents import known_handoffs, known_subagents, spawn_schema
from holdfast.core.base.errors import HoldfastError, InvalidInput
from holdfast.core.base.frozen import replace
from holdfast.core.conversation.error_records import error_record
from holdfast.core.conversation.steps import ErrorRecord
from holdfast.core.loop.events import DefinitionChanged
from holdfast.core.wire.contracts import DefinitionChange, ExecutionInput
from holdfast.core.wire.tool_catalog import ToolCatalog
from holdfast.core.wire.transcript_digest import TranscriptPrefix
from workflows.execution.activity_calls import resolve_tools
from workflows.execution.call_errors import call_error
from workflows.execution.mcp_calls import Unlisted, resolve_mcp


@dataclass(frozen=True, slots=True)
class ResolvedChange:
    """A change resolved on this worker: the run's input by it, the catalog, the transcript's prefix, the event."""

    start: ExecutionInput
    catalog: ToolCatalog
    opening: TranscriptPrefix
    event: DefinitionChanged


def opening_of(
    definition: AgentDefinition, catalog: ToolCatalog, subagents: Iterable[AgentDefinition]
) -> TranscriptPrefix:
    """Return the transcript's prefix for an agent with the tools of `catalog`.

    Raises UnknownAgent when one of its subagents or handoffs is not among `subagents`.
    """
    if catalog.prompt and not definition.system_prompt.endswith(catalog.prompt):  # a continued state has it already
        prompt = "\n\n".join(filter(None, (definition.system_prompt, catalog.prompt)))
        definition = replace(definition, system_prompt=prompt)
    stand_ins = {schema.name for schema in catalog.search}
    known, successors = known_subagents(definition, subagents), known_handoffs(definition, subagents)
    return TranscriptPrefix(
        definition=definition,
        tools=tuple(each.name for each in catalog.tools if not each.deferred and each.name not in stand_ins),
        spawn=spawn_schema(known) if known else None,
        handoff=handoff_schema(successors) if successors else None,
        mcp=catalog.mcp,
        search=catalog.search,
        prompts=catalog.prompts,
    )


def priced(llm: LLM, catalog: ToolCatalog) -> LLM:
    """Return the model with what the worker knows of it and of its fallbacks, where the definition does not say it."""
    return llm.known(catalog.prices, catalog.window, catalog.longest_answer, catalog.fallback or llm.fallback)


async def resolved(
    change: DefinitionChange, start: ExecutionInput, unwanted: Callable[[], bool], state: AgentState
) -> ResolvedChange:
    """Return `change` of the run that began as `start` and is in `state` now, resolved on this worker, recorded.

    Raises a FailureError where the worker lacks what the definition names, UnknownAgent, and InvalidInput when it
    became `unwanted` while MCP servers were listed.
    """
    changed = replace(start, definition=change.definition, subagents=change.subagents, origin=None)
    return await _resolved(changed, change.budget, unwanted, state)


async def resolved_handoff(
    agent: str, start: ExecutionInput, unwanted: Callable[[], bool], state: AgentState
) -> ResolvedChange:
    """Return the change to `agent`, which the run that goes on as `start` may hand the conversation to.

    Raises as `resolved` does.
    """
    definition = next(each for each in start.subagents if each.name == agent)
    changed = replace(start, definition=definition, origin=origin_of(start))
    return await _resolved(changed, None, unwanted, state, handoff=True)


def refusal(error: FailureError | HoldfastError) -> ErrorRecord:
    """Return why a change failed, as data."""
    return call_error(error, "worker") if isinstance(error, FailureError) else error_record(error, "worker")


def origin_of(start: ExecutionInput) -> str:
    """Return the digest of the definition that the run's conversation began with, as far as no handoff says."""
    return start.origin or definition_digest(start.definition)


async def _resolved(
    start: ExecutionInput,
    budget: ExecutionBudget | None,
    unwanted: Callable[[], bool],
    state: AgentState,
    *,
    handoff: bool = False,
) -> ResolvedChange:
    mcp = await resolve_mcp(start, None, unwanted, state.mcp_catalog)
    if isinstance(mcp, Unlisted):
        about = f"while the MCP servers of {start.definition.name!r} were listed"
        raise InvalidInput(f"{about}, the run was to end or to be changed once more")
    catalog = await resolve_tools(start.definition, mcp)
    opening = opening_of(start.definition, catalog, start.subagents)
    definition = replace(opening.definition, llm=priced(start.definition.llm, catalog))
    event = DefinitionChanged(definition, catalog.at, budget, handoff, catalog.pinned)
    return ResolvedChange(start, catalog, opening, event)
