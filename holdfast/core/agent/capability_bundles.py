"""Capabilities: named bundles of tools, hooks and prompt text that a worker offers and a definition asks for."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Final

from pydantic import SkipValidation

from holdfast.core.agent.capability_prompts import PromptFunction
from holdfast.core.agent.definition import AgentDefinition, Text
from holdfast.core.agent.tool_selection import ALL, chosen, named
from holdfast.core.base.bounds import DEFINITION_BYTES_MAX, HOOKS_MAX, TOOLS_MAX
from holdfast.core.base.did_you_mean import suggestion
from holdfast.core.base.errors import DefinitionInvalid
from holdfast.core.base.frozen import Frozen, canonical, replace
from holdfast.core.base.names import Name, Names

CONFIGURED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "fetch_url": "a worker offers it for the hosts that its HOLDFAST_FETCH_HOSTS names",
        "skills": "a worker offers those of the folder that its HOLDFAST_SKILLS names",
    }
)
"""What has a worker offer a capability of ours that it has by its environment alone."""


class Capability(Frozen):
    """What an agent that names it gets in addition to its own: `tools`, `hooks`, and `prompt` below its prompt.

    A `prompt` that is a function makes its text anew for each model call, on the worker (`capability_prompts`).

    A capability's tools and hooks are offered only through it or by name: `tools: all` leaves them out, so that
    a worker can offer what not every agent is to have. `tools_deny` holds against a capability's tools too.
    """

    name: Name
    tools: Names = ()
    hooks: Names = ()
    prompt: Text | Annotated[PromptFunction, SkipValidation] = ""

    @property
    def fixed_prompt(self) -> str:
        """Its prompt, unless a function makes it."""
        return self.prompt if isinstance(self.prompt, str) else ""


def capability_suggestion(name: str, offered: Collection[str]) -> str:
    """Return what to do about a capability that is not offered, as the end of an error's sentence."""
    return CONFIGURED.get(name) or suggestion(name, offered)


def prompt_functions(
    definition: AgentDefinition, capabilities: Iterable[Capability]
) -> tuple[tuple[str, PromptFunction], ...]:
    """Return the functions that make prompts of an agent's capabilities, with the capabilities' names, in its order."""
    by_name = {each.name: each.prompt for each in capabilities}
    prompts = ((name, by_name.get(name, "")) for name in definition.capabilities)
    return tuple((name, prompt) for name, prompt in prompts if not isinstance(prompt, str))


def resolved(definition: AgentDefinition, capabilities: Iterable[Capability]) -> AgentDefinition:
    """Return `definition` with its capabilities' tools, hooks and prompts added; `capabilities` still lists them.

    A choice of every tool (or hook) stays one, and `tool_names` adds the capabilities' own. Apply it once: the
    prompt texts are appended each time. Raises DefinitionInvalid for a capability that is not offered, and when the
    whole passes what a definition may hold.
    """
    bundles = _bundles_of(definition, capabilities)
    if not bundles:
        return definition
    hooks = [hook for capability in bundles for hook in capability.hooks]
    whole = replace(
        definition,
        tools=ALL if definition.tools == ALL else _extended(definition.tools, _tools_of(definition, bundles)),
        hooks=ALL if definition.hooks == ALL else _extended(definition.hooks, hooks),
        system_prompt="\n\n".join(filter(None, (definition.system_prompt, *(each.fixed_prompt for each in bundles)))),
    )
    for count, most, what in (
        (len(named(whole.tools)), TOOLS_MAX, "tools"),
        (len(named(whole.hooks)), HOOKS_MAX, "hooks"),
        (len(canonical(whole)), DEFINITION_BYTES_MAX, "bytes"),
    ):
        if count > most:
            text = f"agent {definition.name!r} has {count:,} {what} with its capabilities, at most {most:,} are allowed"
            raise DefinitionInvalid(f"{text}; name fewer under `capabilities`")
    return whole


def tool_names(
    definition: AgentDefinition, available: Sequence[str], capabilities: Collection[Capability] = ()
) -> tuple[str, ...]:
    """Return the names of the tools `definition` gets, denied ones left out; they need not be `available`.

    Its own choice comes first (of `all` those that no capability holds), then what its capabilities bring.
    """
    bundles = _bundles_of(definition, capabilities)
    bundled = {tool for capability in capabilities for tool in capability.tools}
    own = chosen(definition.tools, (name for name in available if name not in bundled))
    denied = set(definition.tools_deny)
    return tuple(name for name in _extended(own, _tools_of(definition, bundles)) if name not in denied)


def hook_names(
    definition: AgentDefinition, available: Sequence[str], capabilities: Collection[Capability] = ()
) -> tuple[str, ...]:
    """Return the names of the hooks `definition` gets, by the same rule as its tools."""
    bundles = _bundles_of(definition, capabilities)
    bundled = {hook for capability in capabilities for hook in capability.hooks}
    own = chosen(definition.hooks, (name for name in available if name not in bundled))
    return _extended(own, [hook for capability in bundles for hook in capability.hooks])


def _bundles_of(definition: AgentDefinition, capabilities: Iterable[Capability]) -> tuple[Capability, ...]:
    if not definition.capabilities:
        return ()
    by_name: Mapping[str, Capability] = {capability.name: capability for capability in capabilities}
    for name in definition.capabilities:
        if name not in by_name:
            text = f"agent {definition.name!r} names the capability {name!r}, which is not there"
            raise DefinitionInvalid(f"{text}; {capability_suggestion(name, by_name)}")
    return tuple(by_name[name] for name in definition.capabilities)


def _tools_of(definition: AgentDefinition, bundles: Iterable[Capability]) -> list[str]:
    return [tool for capability in bundles for tool in capability.tools if tool not in definition.tools_deny]


def _extended(own: Iterable[str], more: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*own, *more)))
