"""The names that `holdfast` offers by its own name; it loads them when the first of them is asked for."""

from holdfast.core.agent.agent import Agent
from holdfast.core.agent.answer_types import format_of, typed
from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.capability_bundles import Capability
from holdfast.core.agent.context_view import Compiler, CompilerContext, compiler
from holdfast.core.agent.definition import LLM, AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.hooks import Changes, Hook, HookContext, hook
from holdfast.core.agent.policies import ApprovalRule, ContextPolicy, SummaryPolicy
from holdfast.core.agent.registry import AgentRegistry
from holdfast.core.agent.run_result import RunResult
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.errors import HoldfastError
from holdfast.core.base.model_retry import ModelRetry
from holdfast.core.base.usage import Prices, Usage
from holdfast.core.conversation.attachments import Attachment
from holdfast.core.conversation.messages import ImagePart, Message, TextPart, ToolCall, user_message
from holdfast.core.conversation.model_call_changes import ModelCallChanges
from holdfast.core.conversation.steps import AgentStep, AgentStepType, Outcome, ToolExecution
from holdfast.core.conversation.stop_reasons import StopReason, StopSignal
from holdfast.core.conversation.verdicts import Verdict
from holdfast.core.tools.remote_tools import RemoteTool, remote_tool
from holdfast.core.tools.resources import Resource, resource
from holdfast.core.tools.tool_context import ToolContext
from holdfast.core.tools.tool_results import StopRun
from holdfast.core.tools.tools import Tool, tool
from holdfast.runtime.subprocesses import run_command, run_command_async
from holdfast.runtime.thread_interruption import shielded

__all__ = [
    "LLM",
    "Agent",
    "AgentDefinition",
    "AgentRegistry",
    "AgentState",
    "AgentStep",
    "AgentStepType",
    "ApprovalRule",
    "Attachment",
    "Capability",
    "Changes",
    "Compiler",
    "CompilerContext",
    "ContextPolicy",
    "ExecutionBudget",
    "ExecutionStatus",
    "HoldfastError",
    "Hook",
    "HookContext",
    "ImagePart",
    "Message",
    "ModelCallChanges",
    "ModelRetry",
    "Outcome",
    "Prices",
    "RemoteTool",
    "Resource",
    "RunResult",
    "StopReason",
    "StopRun",
    "StopSignal",
    "SummaryPolicy",
    "TextPart",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolExecution",
    "Toolset",
    "Usage",
    "Verdict",
    "compiler",
    "format_of",
    "hook",
    "remote_tool",
    "resource",
    "run_command",
    "run_command_async",
    "shielded",
    "tool",
    "typed",
    "user_message",
]
