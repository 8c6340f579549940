"""The names that `holdfast` offers by its own name; it loads them when the first of them is asked for."""

from holdfast.core.budget import ExecutionBudget
from holdfast.core.building import Agent
from holdfast.core.capabilities import Capability
from holdfast.core.compiling import Compiler, CompilerContext, compiler
from holdfast.core.definition import LLM, AgentDefinition
from holdfast.core.errors import HoldfastError
from holdfast.core.formats import format_of, typed
from holdfast.core.hooks import Changes, Hook, HookContext, hook
from holdfast.core.messages import ImagePart, Message, TextPart, ToolCall
from holdfast.core.registry import AgentRegistry
from holdfast.core.remote import RemoteTool, remote_tool
from holdfast.core.state import AgentState, ExecutionStatus
from holdfast.core.steps import AgentStepType
from holdfast.core.stopping import StopReason
from holdfast.core.tools import StopRun, Tool, ToolContext, tool
from holdfast.core.usage import Prices, Usage
from holdfast.core.verdicts import Verdict

__all__ = [
    "LLM",
    "Agent",
    "AgentDefinition",
    "AgentRegistry",
    "AgentState",
    "AgentStepType",
    "Capability",
    "Changes",
    "Compiler",
    "CompilerContext",
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
