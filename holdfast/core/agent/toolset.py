"""`Toolset`: the tools and hooks that a worker or driver offers; `AgentToolset`: those that one agent gets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TypeVar, cast

from holdfast.core.agent.capability_bundles import Capability, hook_names, prompt_functions, resolved
from holdfast.core.agent.capability_prompts import PromptFunction
from holdfast.core.agent.context_view import Compiler
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.handoffs import HANDOFF_TOOL
from holdfast.core.agent.hooks import Hook
from holdfast.core.agent.policies import ApprovalRule
from holdfast.core.agent.registry import resolve
from holdfast.core.agent.subagents import SPAWN_TOOL
from holdfast.core.agent.tool_selection import ALL, ToolChoice, named
from holdfast.core.base.bounds import HOOKS_MAX
from holdfast.core.base.did_you_mean import nearest, suggestion
from holdfast.core.base.errors import InvalidInput, UnknownHook, UnknownTool
from holdfast.core.base.frozen import replace as changed
from holdfast.core.tools.resources import Resource, ResourceTaker, resources_for
from holdfast.core.tools.tool_names import with_prefix
from holdfast.core.tools.tools import AnyTool, Tool
from holdfast.core.tools.workspace_profile import WORKSPACE, WorkspaceProfile, missing_backend

ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True)
class AgentToolset:
    """The tools, hooks and compiler of one agent, and its definition with its capabilities resolved."""

    definition: AgentDefinition
    tools: Mapping[str, AnyTool]
    hooks: Mapping[str, Hook]
    compiler: Compiler | None
    prompts: tuple[tuple[str, PromptFunction], ...] = ()
    """The functions that make prompts of its capabilities, with the capabilities' names."""


@dataclass(frozen=True, slots=True)
class Toolset:
    """Tools, hooks, compilers, capabilities and resources, in the order they were registered.

    A module of `--import`, and the `tools` of an `Agent`, can hold toolsets as they hold tools.
    """

    tools: tuple[AnyTool, ...] = ()
    hooks: tuple[Hook, ...] = ()
    compilers: tuple[Compiler, ...] = ()
    capabilities: tuple[Capability, ...] = ()
    resources: tuple[Resource, ...] = ()
    workspaces: tuple[str, ...] = ()
    """The backends that workspaces can have here."""

    @classmethod
    def of_modules(cls, modules: Iterable[ModuleType]) -> Toolset:
        """Return everything of these kinds that the modules hold, each once."""
        values = [value for module in modules for value in vars(module).values()]
        own = cls(
            tools=cast("tuple[AnyTool, ...]", _of_kind(values, Tool)),
            hooks=_of_kind(values, Hook),
            compilers=_of_kind(values, Compiler),
            capabilities=_of_kind(values, Capability),
            resources=_of_kind(values, Resource),
        )
        return own.joined(*_of_kind(values, Toolset))

    @property
    def takers(self) -> tuple[ResourceTaker, ...]:
        """What takes resources: its tools and hooks."""
        return (*self.tools, *self.hooks)

    def joined(self, *others: Toolset) -> Toolset:
        """Return what this one and the others offer, each thing once."""
        every = (self, *others)
        return Toolset(
            tools=_distinct(each for one in every for each in one.tools),
            hooks=_distinct(each for one in every for each in one.hooks),
            compilers=_distinct(each for one in every for each in one.compilers),
            capabilities=_distinct(each for one in every for each in one.capabilities),
            resources=_distinct(each for one in every for each in one.resources),
            workspaces=tuple(dict.fromkeys(each for one in every for each in one.workspaces)),
        )

    def prefixed(self, prefix: str) -> Toolset:
        """Return this toolset with `prefix` before each tool's name: `prefixed("git")` makes `search` `git_search`.

        A `_` stands between them unless the prefix ends with `_` or `-`. Capabilities and hooks of this toolset that
        name a tool follow it. Raises InvalidInput for a name that becomes illegal or too long, and for remote tools.
        """
        return self._with_names({tool.name: with_prefix(prefix, tool.name) for tool in self.tools})

    def renamed(self, names: Mapping[str, str]) -> Toolset:
        """Return this toolset with other names of tools, given as `{new name: old name}`; the rest keep theirs.

        Raises UnknownTool for an old name that is not here, with the nearest one, and otherwise as `prefixed`.
        """
        here = [tool.name for tool in self.tools]
        for old in names.values():
            if old not in here:
                raise UnknownTool(f"renamed({{new: old}}) names the tool {old!r}, {nearest(old, here)}")
        return self._with_names({old: new for new, old in names.items()})

    def filtered(self, keeps: Callable[[AnyTool], bool]) -> Toolset:
        """Return this toolset with only those tools for which `keeps(tool)` is true; capabilities lose the others."""
        tools = tuple(tool for tool in self.tools if keeps(tool))
        dropped = {tool.name for tool in self.tools} - {tool.name for tool in tools}
        left = (
            changed(each, tools=tuple(name for name in each.tools if name not in dropped)) for each in self.capabilities
        )
        return replace(self, tools=tools, capabilities=tuple(left))

    def _with_names(self, names: Mapping[str, str]) -> Toolset:
        """Return this toolset with the tools renamed, `names` being `{old: new}`; what names them here follows."""
        bundles = (
            changed(each, tools=tuple(names.get(name, name) for name in each.tools)) for each in self.capabilities
        )
        return replace(
            self,
            tools=tuple(tool.renamed(names[tool.name]) if tool.name in names else tool for tool in self.tools),
            hooks=tuple(_following(each, names) for each in self.hooks),
            capabilities=tuple(bundles),
        )

    def equip(self, definition: AgentDefinition) -> AgentToolset:
        """Return what `definition` names.

        Raises UnknownTool (also for one that an approval rule names), UnknownHook, DefinitionInvalid (a capability) and
        InvalidInput (a compiler, an argument in a rule, two of one name, too many), each with the nearest name or
        all names; InvalidInput also for a tool or hook whose resource is not offered, and for a workspace's backend.
        """
        self.check_workspace(definition)
        tools = {tool.name: tool for tool in resolve(definition, self.tools, self.capabilities)}
        hooks = {hook.name: hook for hook in self._hooks_of(definition)}
        resources_for((*tools.values(), *hooks.values()), self.resources)
        for number, rule in enumerate(definition.approvals):
            _check_rule(definition, rule, (*(tool.name for tool in self.tools), SPAWN_TOOL, HANDOFF_TOOL))
            _check_places(definition.name, number, rule, self.tools)
        foreign = {name for name, tool in tools.items() if tool.traits.mcp is not None}
        own = definition
        if foreign and definition.tools != ALL:  # what a catalog holds does not count against a definition's bounds
            own = changed(definition, tools=tuple(name for name in definition.tools if name not in foreign))
        prompts = prompt_functions(definition, self.capabilities)
        return AgentToolset(resolved(own, self.capabilities), tools, hooks, self._compiler_of(definition), prompts)

    def unused_warnings(self, agents: Collection[AgentDefinition]) -> tuple[str, ...]:
        """Return a warning for tools, and one for hooks, when some are offered and none of `agents` takes any."""
        kinds = {
            "tools": (self.tools, any(agent.tools or agent.capabilities for agent in agents)),
            "hooks": (self.hooks, any(agent.hooks or agent.capabilities for agent in agents)),
        }
        return tuple(
            f"{kind} are offered and no agent takes any; name them in its definition, or write {kind}='all'"
            for kind, (available, used) in kinds.items()
            if available and not used
        )

    def _hooks_of(self, definition: AgentDefinition) -> tuple[Hook, ...]:
        by_name = {each.name: each for each in self.hooks}
        if len(by_name) < len(self.hooks):
            twice = next(each.name for each in self.hooks if by_name[each.name] is not each)
            raise InvalidInput(f"two hooks are called {twice!r}: rename one with @hook(..., name=...)")
        names = hook_names(definition, tuple(by_name), self.capabilities)
        for name in names:
            if name not in by_name:
                raise UnknownHook(f"agent {definition.name!r} names the hook {name!r}, {nearest(name, by_name)}")
        if len(names) > HOOKS_MAX:
            text = f"agent {definition.name!r} gets {len(names)} hooks, at most {HOOKS_MAX} are allowed"
            raise InvalidInput(f"{text}; name the ones it needs under `hooks`")
        return tuple(each for each in self.hooks if each.name in names)

    def check_workspace(self, definition: AgentDefinition) -> None:
        """Raise InvalidInput where the agent has a workspace of a backend that is not here."""
        backend = (definition.workspace or WorkspaceProfile()).backend
        if WORKSPACE in definition.capabilities and backend not in self.workspaces:
            raise InvalidInput(f"agent {definition.name!r}: {missing_backend(backend, self.workspaces)}")

    def _compiler_of(self, definition: AgentDefinition) -> Compiler | None:
        name = definition.context.compiler
        if name is None:
            return None
        by_name = {each.name: each for each in self.compilers}
        if name not in by_name:
            raise InvalidInput(f"agent {definition.name!r} names the compiler {name!r}, {nearest(name, by_name)}")
        return by_name[name]


def with_mcp_tools(
    toolset: Toolset, definition: AgentDefinition, tools: Iterable[AnyTool]
) -> tuple[Toolset, AgentDefinition]:
    """Return what an agent with these tools of its MCP servers is equipped from: the tools are offered and named."""
    every = tuple(tools)
    names = [tool.name for tool in chosen_mcp_tools(every, definition.tools, definition.tools_deny)]
    if definition.tools != ALL:
        definition = changed(definition, tools=tuple(dict.fromkeys((*definition.tools, *names))))
    return toolset.joined(Toolset(tools=every)), definition


def chosen_mcp_tools(tools: Iterable[AnyTool], choice: ToolChoice, denied: Collection[str]) -> tuple[AnyTool, ...]:
    """Return those of a catalog's tools that an agent gets: of a server of which it names tools, those alone."""
    every, names = tuple(tools), named(choice)
    chosen = {tool.traits.mcp for tool in every if tool.name in names}
    allowed = (tool for tool in every if tool.name not in denied)
    return tuple(tool for tool in allowed if tool.traits.mcp not in chosen or tool.name in names)


def _following(hook: Hook, names: Mapping[str, str]) -> Hook:
    """Return the hook with the new names of the tools that its patterns match; it keeps its patterns for others."""
    patterns = hook.traits.tools
    if patterns is None:
        return hook
    added = (new for old, new in names.items() if hook.traits.concerns(old) and new not in patterns)
    return replace(hook, traits=changed(hook.traits, tools=(*patterns, *added)))


def _check_rule(definition: AgentDefinition, rule: ApprovalRule, callable_names: Collection[str]) -> None:
    """Refuse a rule whose name matches no tool: a typo would let the call run without approval."""
    for pattern in rule.tools:
        if not {"*", "?"} & set(pattern) and pattern not in callable_names:
            text = (
                f"agent {definition.name!r} wants approval of the tool {pattern!r}, {nearest(pattern, callable_names)}"
            )
            raise UnknownTool(text)


def _check_places(agent: str, number: int, rule: ApprovalRule, tools: Iterable[AnyTool]) -> None:
    """Refuse a pattern on an argument that no tool of the rule has, for the same reason.

    A tool whose schema allows further arguments is not checked, nor is a path's part after the first dot.
    """
    schemas = [tool.schema.parameters for tool in tools if rule.names(tool.name)]
    arguments = {"agent", "task"} if rule.names(SPAWN_TOOL) else set[str]()
    arguments |= {"agent", "reason"} if rule.names(HANDOFF_TOOL) else set[str]()
    for parameters in schemas:
        properties = parameters.get("properties")
        if not isinstance(properties, dict) or parameters.get("additionalProperties") not in (None, False):
            return
        arguments |= properties.keys()
    for place in rule.arguments if schemas else ():
        if place not in arguments and place.split(".")[0] not in arguments:
            text = f"agent {agent!r}, approvals.{number}.arguments: no tool of the rule has the argument {place!r}"
            raise InvalidInput(f"{text}; {suggestion(place.split('.')[0], arguments)}")


def _of_kind(values: Iterable[object], kind: type[ValueT]) -> tuple[ValueT, ...]:
    return _distinct(value for value in values if isinstance(value, kind))


def _distinct(values: Iterable[ValueT]) -> tuple[ValueT, ...]:
    return tuple({id(value): value for value in values}.values())
