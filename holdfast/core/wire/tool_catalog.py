"""What an agent gets on its worker: the request of its tools, hooks and models, and the catalog that answers it."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Final, Self

from pydantic import AwareDatetime, Field

from holdfast.core.agent.definition import LLM, AgentDefinition, FallbackRoute
from holdfast.core.agent.hooks import HookTraits
from holdfast.core.agent.policies import ApprovalRule
from holdfast.core.agent.tool_selection import HookChoice, ToolChoice
from holdfast.core.base.call_digest import Digest
from holdfast.core.base.frozen import Frozen, is_empty, is_none
from holdfast.core.base.usage import Prices
from holdfast.core.conversation.attachments import Attachment, FileKind, kinds_of
from holdfast.core.tools.code_mode import CodeMode
from holdfast.core.tools.mcp_changes import McpToolsChange, PinnedCatalog
from holdfast.core.tools.tool_traits import ToolSchema, ToolTraits
from holdfast.core.tools.workspace_profile import WorkspaceProfile

QUEUED_MODELS_MAX: Final = 64
"""As many as a worker has routes."""


def needed_kinds(definition: AgentDefinition, files: Iterable[Attachment]) -> tuple[FileKind, ...]:
    """Return the kinds of files that a model must take: those sent to the agent, and the pictures that it is to see."""
    kinds = kinds_of(files)
    return ("images", *kinds) if definition.context.images and "images" not in kinds else kinds


class ToolsRequest(Frozen):
    """The tools and hooks that an agent names, for its worker to resolve. `at` is the workflow time of the request."""

    agent: str
    tools: ToolChoice = ()
    tools_deny: tuple[str, ...] = ()
    hooks: HookChoice = ()
    capabilities: tuple[str, ...] = ()
    workspace: WorkspaceProfile | None = Field(default=None, exclude_if=is_none)
    compiler: str | None = None
    approvals: tuple[ApprovalRule, ...] = ()
    model: str | None = None
    llm: LLM | None = Field(default=None, exclude_if=is_none)
    """Its model's settings, where there are others than the name."""
    mcp: Digest | None = None
    """The catalog of its MCP servers' tools, in the record store."""
    code: CodeMode | None = Field(default=None, exclude_if=is_none)
    loop_tools: int = 0
    """How many tools the loop itself adds to them."""
    files: tuple[FileKind, ...] = Field(default=(), exclude_if=is_empty)
    """The kinds of files that its model must take."""
    at: AwareDatetime

    @classmethod
    def of(
        cls, definition: AgentDefinition, at: datetime, mcp: Digest | None = None, files: Iterable[Attachment] = ()
    ) -> Self:
        """Return the request of an agent with this definition, that catalog of MCP tools, and files sent to it."""
        return cls(
            agent=definition.name,
            tools=definition.tools,
            tools_deny=definition.tools_deny,
            hooks=definition.hooks,
            capabilities=definition.capabilities,
            workspace=definition.workspace,
            compiler=definition.context.compiler,
            approvals=definition.approvals,
            model=definition.llm.model,
            llm=None if definition.llm == LLM(model=definition.llm.model) else definition.llm,
            mcp=mcp,
            code=definition.code,
            loop_tools=bool(definition.subagents) + bool(definition.handoffs) + bool(definition.code),
            files=needed_kinds(definition, files),
            at=at,
        )


class ToolCatalog(Frozen):
    """The tools an agent gets, in the order the model is offered them, its hooks, and the request's `at`.

    `prompt` is what its capabilities add to its system prompt. `prices` are those of its model in the worker's price
    table, none where the table does not list it.

    The result repeats `at` because the result is recorded: a replay of the run's first task does not see the same time
    again, and decisions by the time must not change.
    """

    at: AwareDatetime
    tools: tuple[ToolTraits, ...]
    hooks: tuple[HookTraits, ...] = ()
    prompt: str = ""
    prompts: bool = Field(default=False, exclude_if=operator.not_)
    """Whether functions make prompts of its capabilities, for each model call."""
    prices: Prices | None = None
    window: int | None = Field(default=None, exclude_if=is_none)
    """The context window of its model in tokens, none where the worker does not know it."""
    longest_answer: int | None = Field(default=None, exclude_if=is_none)
    """The longest answer of its model in tokens, likewise."""
    fallback: tuple[FallbackRoute, ...] = Field(default=(), exclude_if=is_empty)
    """The models that it falls back to, with what the worker knows of them."""
    queued_models: Annotated[Mapping[str, str], Field(max_length=QUEUED_MODELS_MAX)] = Field(
        default_factory=dict[str, str], exclude_if=operator.not_
    )
    """The routes with rate limits, whose calls have task queues of their own, each under its name. A route without
    limits whose name begins like one of those and "/" is there, too, with nothing behind it."""
    mcp: Digest | None = None
    """The catalog of MCP tools that those of `tools` with a server are from."""
    search: tuple[ToolSchema, ...] = Field(default=(), exclude_if=is_empty)
    """The tools that stand in for deferred ones, for the model."""
    mcp_changes: tuple[McpToolsChange, ...] = Field(default=(), exclude_if=is_empty)
    """How the catalog differs from the one before."""

    @property
    def pinned(self) -> PinnedCatalog | None:
        """The catalog of MCP tools, as the loop is told of it."""
        return None if self.mcp is None else PinnedCatalog(digest=self.mcp, changes=self.mcp_changes)

    def queued_route(self, model: str | None) -> str | None:
        """Return the route in whose task queue calls of `llm.model` wait; none for those without."""
        if model is None or not self.queued_models:
            return None
        name = model if model in self.queued_models else model.partition("/")[0]
        return self.queued_models.get(name) or None
