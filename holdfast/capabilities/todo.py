"""`todo`: the agent's own list of what is to do, which people watch."""

from __future__ import annotations

from typing import Final

from holdfast.core.agent.capability_bundles import Capability
from holdfast.core.agent.toolset import Toolset
from holdfast.core.conversation.todos import WRITE_TODOS, TodoList
from holdfast.core.tools.loop_tools import loop_tool

PROMPT: Final = (
    "For work of more than two steps keep a list with write_todos: write it before you begin, mark an item in_progress "
    "when you begin it and done as soon as it is done. People watch this list."
)

ABOUT: Final = "Write your list of what is to do. It replaces the whole list: give every item, done ones too."

TODO: Final = Toolset(
    tools=(loop_tool("todo", WRITE_TODOS, ABOUT, TodoList),),
    capabilities=(Capability(name="todo", tools=(WRITE_TODOS,), prompt=PROMPT),),
)
"""The capability `todo` with its tool."""
