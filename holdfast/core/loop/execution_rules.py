"""`Rules`: the definition, tools and hooks of an execution. Holds no state and decides nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.handoffs import HANDOFF_TOOL, definition_digest, loop_tools
from holdfast.core.agent.hooks import HookTraits, Trigger, in_order
from holdfast.core.agent.policies import ApprovalRule
from holdfast.core.agent.subagents import SPAWN_TOOL
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.conversation.stop_reasons import OverrideRule
from holdfast.core.tools.tool_traits import ToolSchema, ToolTraits


@dataclass(frozen=True)
class Rules:
    """The rules for one agent.

    Args:
        definition: the agent.
        tools: what it may call, by name.
        hooks: the hooks that run, in the order they were registered.
        subagents: the agents it may call, by name.
        handoffs: the agents it may hand the conversation to, by name.
        assistants: the agents that are called on its behalf (`core.agent.assistants`), by name.
        origin_digest: the digest of the definition that the run was started with; by default this one's.
        depth_left: how deep agents may nest below it; by default the definition's `max_depth`.
        observed: whether `Emit` commands are wanted.
        step_by_step: whether the loop rests between two steps until `StepDue` comes.
    """

    definition: AgentDefinition
    tools: Mapping[str, ToolTraits] = field(default_factory=dict[str, ToolTraits])
    hooks: Sequence[HookTraits] = ()
    subagents: Mapping[str, AgentDefinition] = field(default_factory=dict[str, AgentDefinition])
    handoffs: Mapping[str, AgentDefinition] = field(default_factory=dict[str, AgentDefinition])
    assistants: Mapping[str, AgentDefinition] = field(default_factory=dict[str, AgentDefinition])
    origin_digest: str = ""
    depth_left: int | None = None
    observed: bool = False
    step_by_step: bool = False
    override: OverrideRule = field(init=False)
    hooks_at: Mapping[Trigger, tuple[HookTraits, ...]] = field(init=False)

    def __post_init__(self) -> None:
        """Derive the values that every step needs."""
        by_trigger: dict[Trigger, tuple[HookTraits, ...]] = {}
        for each in in_order(self.hooks):
            by_trigger[each.trigger] = (*by_trigger.get(each.trigger, ()), each)
        rule = OverrideRule(reasons=self.definition.overridable, times_max=self.definition.max_overrides)
        object.__setattr__(self, "hooks_at", by_trigger)
        object.__setattr__(self, "override", rule)

    @property
    def own_tools(self) -> tuple[ToolSchema, ...]:
        """The tools that the loop itself offers the model."""
        return loop_tools(self.subagents, self.handoffs)

    @property
    def callable_names(self) -> tuple[str, ...]:
        """Every name that the model may call."""
        own = ((SPAWN_TOOL, self.subagents), (HANDOFF_TOOL, self.handoffs))
        return (*self.tools, *(name for name, agents in own if agents))

    @property
    def shown_names(self) -> tuple[str, ...]:
        """The names of the tools that the model is shown, in no order that means something."""
        own = (schema.name for schema in self.own_tools)
        return (*(name for name, traits in self.tools.items() if not traits.deferred), *own)

    @property
    def origin(self) -> str:
        """The digest of the definition that a handoff starts from."""
        return self.origin_digest or definition_digest(self.definition)

    @property
    def depth(self) -> int:
        """How deep agents may nest below this one."""
        own = self.definition.max_depth
        return own if self.depth_left is None else min(self.depth_left, own)

    def hooks_for(self, trigger: Trigger, tool: str | None = None) -> tuple[HookTraits, ...]:
        """Return the hooks that run at `trigger`, around a call of `tool`."""
        hooks = self.hooks_at.get(trigger, ())
        if tool is None or not hooks:
            return hooks
        return tuple(each for each in hooks if each.concerns(tool))

    def may_ask(self, tool: str) -> bool:
        """Return whether some call of `tool` would wait for a person."""
        return any(rule.when == "always" and rule.names(tool) for rule in self.definition.approvals)

    def approval_for(self, call: ToolCall, cost: float | None) -> ApprovalRule | None:
        """Return the rule by which `call` waits for a person, if there is one.

        Rules are tried in order; the first match applies. `cost` is in US dollars so far, none if unknown.
        """
        for rule in self.definition.approvals:
            if rule.concerns(call.name, call.arguments, cost):
                return rule if rule.when == "always" else None
        return None

    def alone(self, tool: str) -> bool:
        """Return whether a call of `tool` runs while no other call of its step does."""
        traits = self.tools.get(tool)
        return self.definition.sequential or (traits is not None and traits.sequential)
