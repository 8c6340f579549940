"""The registry of agents: which tools each gets from a worker, and which names the worker lacks. Runs nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from holdfast.core.agent.assistants import assistant_names
from holdfast.core.agent.capability_bundles import Capability, capability_suggestion, hook_names, tool_names
from holdfast.core.agent.definition import AgentDefinition, Named, name_of
from holdfast.core.agent.handoffs import HANDOFF_TOOL
from holdfast.core.agent.subagents import SPAWN_TOOL
from holdfast.core.agent.tool_selection import ALL, named
from holdfast.core.base.bounds import NAMES_LISTED_MAX, REPORT_CHARS_MAX, TOOLS_MAX
from holdfast.core.base.did_you_mean import nearest, suggestion
from holdfast.core.base.errors import DefinitionInvalid, InvalidInput, UnknownAgent, UnknownTool
from holdfast.core.base.frozen import replace
from holdfast.core.base.safe_text import clamped
from holdfast.core.tools.tool_names import check_names
from holdfast.core.tools.tools import AnyTool


def resolve(
    definition: AgentDefinition, available: Sequence[AnyTool], capabilities: Collection[Capability] = ()
) -> tuple[AnyTool, ...]:
    """Return the `available` tools that `definition` gets, in its own order (or theirs, when it takes all).

    Those of its capabilities come last; "all" leaves out what belongs to a capability. Raises UnknownTool for a name
    that is not offered, DefinitionInvalid for an unknown capability, InvalidInput for two tools of one name and for
    too many.
    """
    by_name = {tool.name: tool for tool in available}
    check_names(available)
    names = tool_names(definition, tuple(by_name), capabilities)
    for name in (*names, *definition.tools_deny):
        if name not in by_name:
            raise UnknownTool(f"agent {definition.name!r} names the tool {name!r}, {nearest(name, by_name)}")
    own = sum(by_name[name].traits.mcp is None for name in names)  # those of MCP servers can be searched for
    if own > TOOLS_MAX:
        text = f"agent {definition.name!r} gets {own} tools, at most {TOOLS_MAX} are allowed"
        raise InvalidInput(f"{text}; name the ones it needs under `tools`")
    return tuple(by_name[name] for name in names)


@dataclass(frozen=True, slots=True)
class AgentRegistry:
    """Agents by name, in the order they were given. Iterating gives the definitions."""

    by_name: Mapping[str, AgentDefinition]

    @classmethod
    def of(cls, *definitions: AgentDefinition) -> AgentRegistry:
        """Return the registry of `definitions`. Raises DefinitionInvalid for two of one name."""
        registry = cls({})
        for definition in definitions:
            registry = registry.with_(definition)
        return registry

    def with_(self, definition: AgentDefinition) -> AgentRegistry:
        """Return this registry with one agent more. Raises DefinitionInvalid when its name is taken."""
        if definition.name in self.by_name:
            raise DefinitionInvalid(f"two agents are called {definition.name!r}; rename one")
        return AgentRegistry({**self.by_name, definition.name: definition})

    @property
    def names(self) -> tuple[str, ...]:
        """The agents' names."""
        return tuple(self.by_name)

    def get(self, name: str) -> AgentDefinition:
        """Return the agent called `name`. Raises UnknownAgent with the nearest name."""
        if name not in self.by_name:
            raise UnknownAgent(f"no agent is called {name[:80]!r}; {suggestion(name, self.by_name)}")
        return self.by_name[name]

    def __iter__(self) -> Iterator[AgentDefinition]:
        return iter(self.by_name.values())

    def __len__(self) -> int:
        return len(self.by_name)

    def __contains__(self, name: object) -> bool:
        return name in self.by_name

    def report(
        self,
        *,
        tools: Iterable[str | Named] | None = None,
        hooks: Iterable[str | Named] | None = None,
        capabilities: Iterable[Capability] | None = None,
        compilers: Iterable[str | Named] | None = None,
    ) -> tuple[str, ...]:
        """Return every problem of every agent, one line each, with the nearest known name.

        Args:
            tools: what the worker offers, as names or the tools themselves; without it no tool is judged.
            hooks: the same for hooks.
            capabilities: the same for capabilities, which are judged themselves too.
            compilers: the same for the compilers that `context` can name.
        """
        nameable = _Nameable(
            tools=_names(tools),
            hooks=_names(hooks),
            capabilities=None if capabilities is None else tuple(capabilities),
            compilers=_names(compilers),
            agents=self.names,
        )
        bundles = nameable.capabilities or ()
        problems = [problem for bundle in bundles for problem in nameable.problems_of_bundle(bundle)]
        return (*problems, *(problem for agent in self for problem in nameable.problems_of_agent(agent)))

    def choices(
        self,
        *,
        tools: Iterable[str | Named],
        hooks: Iterable[str | Named] = (),
        capabilities: Collection[Capability] = (),
    ) -> tuple[str, ...]:
        """Return the tools and hooks that each agent gets, one line each.

        "agent 'clerk': tools: none (offered: add, echo); hooks: guard". Raises DefinitionInvalid for a capability that
        is not offered.
        """
        tools, hooks = _names(tools) or (), _names(hooks) or ()
        taker = AgentDefinition(name=ALL, tools=ALL, hooks=ALL)
        all_tools, all_hooks = tool_names(taker, tools, capabilities), hook_names(taker, hooks, capabilities)
        return tuple(
            f"agent {agent.name!r}: tools: {_share(tool_names(agent, tools, capabilities), all_tools)}; "
            f"hooks: {_share(hook_names(agent, hooks, capabilities), all_hooks)}"
            for agent in self
        )

    def check(
        self,
        *,
        tools: Iterable[str | Named] | None = None,
        hooks: Iterable[str | Named] | None = None,
        capabilities: Iterable[Capability] | None = None,
        compilers: Iterable[str | Named] | None = None,
    ) -> None:
        """Raise DefinitionInvalid with the whole report, in one line, when there is anything to report."""
        problems = self.report(tools=tools, hooks=hooks, capabilities=capabilities, compilers=compilers)
        if problems:
            raise DefinitionInvalid(" ".join(clamped("; ".join(problems), REPORT_CHARS_MAX).split()))


@dataclass(frozen=True, slots=True)
class _Nameable:
    """The names that agents can use, by kind; none where they are not known."""

    tools: tuple[str, ...] | None
    hooks: tuple[str, ...] | None
    capabilities: tuple[Capability, ...] | None
    compilers: tuple[str, ...] | None
    agents: tuple[str, ...]

    def problems_of_bundle(self, bundle: Capability) -> Iterator[str]:
        whose = f"capability {bundle.name!r}"
        yield from _unknown(whose, "tools", bundle.tools, self.tools)
        yield from _unknown(whose, "hooks", bundle.hooks, self.hooks)

    def problems_of_agent(self, agent: AgentDefinition) -> Iterator[str]:
        whose = f"agent {agent.name!r}"
        bundles = None if self.capabilities is None else tuple(bundle.name for bundle in self.capabilities)
        compiler = agent.context.compiler
        own = ((SPAWN_TOOL, agent.subagents), (HANDOFF_TOOL, agent.handoffs))
        own_names = tuple(name for name, agents in own if agents)
        callable_names = None if self.tools is None else (*self.tools, *own_names)
        if agent.mcp:  # what its servers bring is known when a run begins
            callable_names = None
        tools = None if agent.mcp else self.tools
        yield from _unknown(whose, "tools", named(agent.tools), tools)
        yield from _unknown(whose, "tools_deny", agent.tools_deny, tools)
        yield from self._too_many_tools(agent)
        yield from _unknown(whose, "hooks", named(agent.hooks), self.hooks)
        yield from _unknown(whose, "capabilities", agent.capabilities, bundles, capability_suggestion)
        yield from _unknown(whose, "subagents", agent.subagents, self.agents)
        yield from _unknown(whose, "handoffs", agent.handoffs, self.agents)
        for field, name in assistant_names(agent).items():
            yield from _unknown(whose, field, (name,), self.agents)
        for number, rule in enumerate(agent.approvals):
            literal = [name for name in rule.tools if not {"*", "?"} & set(name)]
            yield from _unknown(whose, f"approvals.{number}.tools", literal, callable_names)
        yield from _unknown(whose, "context.compiler", () if compiler is None else (compiler,), self.compilers)

    def _too_many_tools(self, agent: AgentDefinition) -> Iterator[str]:
        """Count the tools of the model, those for subagents and handoffs included, as far as they are known."""
        available, bundles = self.tools or (), self.capabilities or ()
        bundle_names = {bundle.name for bundle in bundles}
        checkable = replace(agent, capabilities=tuple(name for name in agent.capabilities if name in bundle_names))
        count = len(tool_names(checkable, available, bundles)) + bool(agent.subagents) + bool(agent.handoffs)
        if count > TOOLS_MAX:
            text = f"it gets {count} tools, at most {TOOLS_MAX} are allowed"
            yield f"agent {agent.name!r}, tools: {text} (name the ones it needs)"


def _unknown(
    whose: str,
    field: str,
    names: Iterable[str],
    choices: Sequence[str] | None,
    suggest: Callable[[str, Sequence[str]], str] = suggestion,
) -> Iterator[str]:
    if choices is None:
        return
    for name in names:
        if name not in choices:
            yield f"{whose}, {field}: {name!r} is not there ({suggest(name, choices)})"


def _share(names: Sequence[str], available: Sequence[str]) -> str:
    """Return the names that an agent gets, or that it gets none of those available."""
    if names or not available:
        return _listed(names) or "none"
    return f"none (offered: {_listed(available)})"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES_LISTED_MAX} more" if len(names) > NAMES_LISTED_MAX else ""
    return ", ".join(names[:NAMES_LISTED_MAX]) + more


def _names(values: Iterable[str | Named] | None) -> tuple[str, ...] | None:
    return None if values is None else tuple(name_of(value) for value in values)
