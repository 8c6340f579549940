"""Agents that a run calls: the command that begins one within the budget, and what its end counts."""

from __future__ import annotations

from holdfast.core.agent.assistants import planner
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.subagents import SPAWN_TOOL
from holdfast.core.base.bounds import SUBAGENTS_AT_ONCE_MAX
from holdfast.core.conversation.steps import OpenCall
from holdfast.core.loop.commands import SpawnSubagent
from holdfast.core.loop.events import SubagentReturned
from holdfast.core.loop.transition import Transition
from holdfast.core.wire.execution_events import SubagentCompleted, SubagentSpawned


def spawn(
    transition: Transition, each: OpenCall, child: AgentDefinition, task: str, *, assistant: bool = False
) -> None:
    """Begin `child` for a call; an `assistant` is called on the loop's own behalf, by that very definition."""
    # the step's subagents share the remainder before any of them begins: none can take another's part
    nested = (one.call for one in transition.execution.open_calls if one.parent_call_id is not None)
    calls = (*transition.step.requested_tool_calls, *nested)
    spawn_count = sum(_spawns(transition, call.name) for call in calls)
    beside = min(max(spawn_count, 1), SUBAGENTS_AT_ONCE_MAX)
    remainder = transition.state.budget_remaining.remaining(steps_used=1).shared_by(beside)  # this step is used up, too
    transition.do(
        SpawnSubagent(
            step_number=transition.step.number,
            index=each.index,
            call_id=each.call.id,
            agent=child.name,
            task=task,
            budget=child.budget.for_child(remainder, child.budget_policy),
            depth_left=transition.rules.depth - 1,
            definition=child if assistant else None,
        )
    )
    transition.emit(SubagentSpawned, call_id=each.call.id, index=each.index, agent=child.name, task=task)


def _spawns(transition: Transition, tool: str) -> bool:
    traits = transition.rules.tools.get(tool)
    return tool == SPAWN_TOOL or (traits is not None and traits.loop == "plan")


def runs_agent(transition: Transition, each: OpenCall) -> bool:
    """Return whether an agent works for a call that runs."""
    return _spawns(transition, each.call.name)


def agent_of(transition: Transition, each: OpenCall) -> str:
    """Return the name of the agent that works for a call."""
    traits, rules = transition.rules.tools.get(each.call.name), transition.rules
    if traits is not None and traits.loop == "plan":
        child = planner(rules.definition, rules.assistants)
        return child.name if child else ""
    return str(each.call.arguments.get("agent"))


def count(transition: Transition, agent: str, event: SubagentReturned) -> None:
    """Count the usage of an agent that was called, warn of its unpriced models, and emit SubagentCompleted."""
    used = event.used
    transition.execution = transition.execution.with_subagent(used)
    for model in used.unpriced:
        transition.warn_unpriced(model)
    transition.emit(
        SubagentCompleted,
        call_id=event.call_id,
        agent=agent,
        status=event.status,
        usage=used.usage,
        cost=used.cost,
        unpriced=used.unpriced,
    )
