"""`plan`: another agent plans the work, and its plan becomes the list of what is to do."""

from __future__ import annotations

from typing import Final

from holdfast.core.agent.capability_bundles import Capability
from holdfast.core.agent.definition import PLAN
from holdfast.core.agent.toolset import Toolset
from holdfast.core.conversation.todos import MAKE_PLAN, WRITE_TODOS
from holdfast.core.loop.own_tools.planning import PlanRequest
from holdfast.core.tools.loop_tools import loop_tool

PROMPT: Final = (
    "Before work of more than a few steps have it planned with make_plan: the plan becomes your list. Keep the list "
    "with write_todos: mark an item in_progress when you begin it and done as soon as it is done. People watch it."
)

ABOUT: Final = "Have another agent plan a task. Its plan replaces your list of what is to do."

PLANNING: Final = Toolset(
    tools=(loop_tool("plan", MAKE_PLAN, ABOUT, PlanRequest),),
    capabilities=(Capability(name=PLAN, tools=(MAKE_PLAN, WRITE_TODOS), prompt=PROMPT),),
)
"""The capability `plan` with its tool; it keeps the list with that of the capability `todo`."""
