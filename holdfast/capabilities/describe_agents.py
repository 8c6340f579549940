"""`describe_agents`: what an agent may know of the agents that it can call or hand the conversation to."""

from __future__ import annotations

from typing import Final

from holdfast.core.agent.capability_bundles import Capability
from holdfast.core.agent.toolset import Toolset
from holdfast.core.loop.own_tools.agent_descriptions import DescribeAgents
from holdfast.core.tools.loop_tools import loop_tool

ABOUT: Final = "Look up the agents that you can call or hand over to: what they are for, their tools, what they answer."

DESCRIBE_AGENTS: Final = Toolset(
    tools=(loop_tool("describe_agents", "describe_agents", ABOUT, DescribeAgents),),
    capabilities=(Capability(name="describe_agents", tools=("describe_agents",)),),
)
"""The capability `describe_agents` with its tool."""
