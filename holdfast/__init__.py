"""Holdfast runs AI agents as Temporal workflows: a crash loses nothing, a stop stops, a budget holds."""

from holdfast.core.budget import ExecutionBudget
from holdfast.core.building import Agent
from holdfast.core.capabilities import Capability
from holdfast.core.definition import LLM, AgentDefinition
from holdfast.core.errors import HoldfastError
from holdfast.core.registry import AgentRegistry
from holdfast.core.state import AgentState, ExecutionStatus
from holdfast.core.stopping import StopReason
from holdfast.core.tools import Tool, ToolContext, tool

__version__ = "0.1.0"

__all__ = [
    "LLM",
    "Agent",
    "AgentDefinition",
    "AgentRegistry",
    "AgentState",
    "Capability",
    "ExecutionBudget",
    "ExecutionStatus",
    "HoldfastError",
    "StopReason",
    "Tool",
    "ToolContext",
    "tool",
]
