"""Holdfast runs AI agents as Temporal workflows: a crash loses nothing, a stop stops, a budget holds.

What agents are written with. Where they run has a place of its own: `holdfast.client` (Temporal), `holdfast.local`
(this process), `holdfast.testing` (scripts in the model's place); what listeners hear is in `holdfast.core.observed`.
"""

from holdfast.core.budget import ExecutionBudget
from holdfast.core.building import Agent
from holdfast.core.capabilities import Capability
from holdfast.core.compiling import Compiler, compiler
from holdfast.core.definition import LLM, AgentDefinition
from holdfast.core.errors import HoldfastError
from holdfast.core.formats import format_of, typed
from holdfast.core.hooks import Changes, Hook, HookContext, hook
from holdfast.core.messages import ImagePart, Message, TextPart, ToolCall
from holdfast.core.registry import AgentRegistry
from holdfast.core.remote import RemoteTool, remote_tool
from holdfast.core.state import AgentState, ExecutionStatus
from holdfast.core.stopping import StopReason
from holdfast.core.tools import StopRun, Tool, ToolContext, tool
from holdfast.core.usage import Prices, Usage
from holdfast.core.verdicts import Verdict

__version__ = "0.1.0"

__all__ = [
    "LLM",
    "Agent",
    "AgentDefinition",
    "AgentRegistry",
    "AgentState",
    "Capability",
    "Changes",
    "Compiler",
    "ExecutionBudget",
    "ExecutionStatus",
    "HoldfastError",
    "Hook",
    "HookContext",
    "ImagePart",
    "Message",
    "Prices",
    "RemoteTool",
    "StopReason",
    "StopRun",
    "TextPart",
    "Tool",
    "ToolCall",
    "ToolContext",
    "Usage",
    "Verdict",
    "compiler",
    "format_of",
    "hook",
    "remote_tool",
    "tool",
    "typed",
]
