"""Calls of the tools that the loop answers itself (`ToolTraits.loop`), without an activity."""

from __future__ import annotations

from typing import assert_never

from holdfast.core.conversation.steps import ErrorRecord, OpenCall
from holdfast.core.loop.own_tools import questions, todo_list
from holdfast.core.loop.transition import Transition
from holdfast.core.tools.tool_traits import LoopTool

Answer = tuple[str | None, ErrorRecord | None]
"""What the model is told: a result or an error."""


def own_answer(transition: Transition, each: OpenCall, tool: LoopTool) -> Answer | OpenCall:
    """Answer a call, or return it as it waits for its answer."""
    match tool:
        case "todo":
            return todo_list.write(transition, each.call)
        case "ask_user":
            return questions.ask(transition, each)
        case "go_back" | "plan":
            raise NotImplementedError
        case _:
            assert_never(tool)
