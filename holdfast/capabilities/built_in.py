"""The capabilities that every worker and in-process driver offers. An agent gets one only where it names it."""

from __future__ import annotations

from typing import Final

from holdfast.capabilities.describe_agents import DESCRIBE_AGENTS
from holdfast.capabilities.go_back import GO_BACK
from holdfast.capabilities.plan import PLANNING
from holdfast.capabilities.todo import TODO
from holdfast.capabilities.user_questions import ASK_USER
from holdfast.core.agent.toolset import Toolset

BUILT_IN: Final = (TODO, ASK_USER, GO_BACK, PLANNING, DESCRIBE_AGENTS)


def with_built_in(toolset: Toolset) -> Toolset:
    """Return `toolset` with the capabilities that come with Holdfast; what has such a name there already stays."""
    tools = {each.name for each in toolset.tools}
    bundles = {each.name for each in toolset.capabilities}
    added = (
        each
        for each in BUILT_IN
        if tools.isdisjoint(tool.name for tool in each.tools)
        and bundles.isdisjoint(one.name for one in each.capabilities)
    )
    return toolset.joined(*added)
