"""Calls of the tools that the loop answers itself (`ToolTraits.loop`), without an activity."""

from __future__ import annotations

from typing import assert_never

from holdfast.core.agent.subagents import subagent_outcome
from holdfast.core.conversation.steps import ErrorRecord, OpenCall
from holdfast.core.loop.events import SubagentReturned
from holdfast.core.loop.own_tools import agent_calls, agent_descriptions, planning, questions, steps_back, todo_list
from holdfast.core.loop.transition import Transition
from holdfast.core.tools.tool_traits import LoopTool

Answer = tuple[str | None, ErrorRecord | None]
"""What the model is told: a result or an error."""


def own_answer(transition: Transition, each: OpenCall, tool: LoopTool, *, again: bool = False) -> Answer | OpenCall:
    """Answer a call, or return it as it waits for its answer."""
    match tool:
        case "todo":
            return todo_list.write(transition, each.call)
        case "ask_user":
            return questions.ask(transition, each)
        case "go_back":
            return steps_back.ask(transition, each.call)
        case "plan":
            return planning.begin(transition, each, again=again)
        case "describe_agents":
            return agent_descriptions.describe(transition, each.call)
        case _:
            assert_never(tool)


def agent_ended(transition: Transition, each: OpenCall, event: SubagentReturned) -> Answer:
    """Count what the agent of a call has used, and return what the model is told of its end."""
    agent = agent_calls.agent_of(transition, each)
    agent_calls.count(transition, agent, event)
    traits = transition.rules.tools.get(each.call.name)
    if traits is not None and traits.loop == "plan":
        return planning.take_in(transition, each, event)
    return subagent_outcome(agent, event.status, event.answer, event.why)
