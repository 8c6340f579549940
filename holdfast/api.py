"""The names that `holdfast` offers by its own name; it loads them when the first of them is asked for."""

from holdfast.core.agent.agent_builder import AgentBuilder
from holdfast.core.agent.answer_types import format_of, typed
from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.capabilities import Capability
from holdfast.core.agent.context_view import Compiler, CompilerContext, compiler
from holdfast.core.agent.definition import LLM, AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.hooks import Changes, Hook, HookContext, hook
from holdfast.core.agent.registry import AgentRegistry
from holdfast.core.agent.remote_tools import RemoteTool, remote_tool
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.tools import StopRun, Tool, ToolContext, tool
from holdfast.core.base.errors import HoldfastError
from holdfast.core.base.usage import Prices, Usage
from holdfast.core.conversation.messages import ImagePart, Message, TextPart, ToolCall
from holdfast.core.conversation.steps import AgentStepType
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.conversation.verdicts import Verdict
from holdfast.runtime.subprocesses import run_command, run_command_async

__all__ = [
    "LLM",
    "AgentBuilder",
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
    "run_command",
    "run_command_async",
    "tool",
    "typed",
]
