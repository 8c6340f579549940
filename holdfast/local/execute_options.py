"""`ExecuteOptions`: what an execution in this process takes besides the question."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypedDict

from pydantic import JsonValue

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.state import AgentState
from holdfast.runtime.files.message_files import GivenFile


class ExecuteOptions(TypedDict, total=False):
    """What `LocalDriver.execute` takes besides the question."""

    state: AgentState | None
    """The agent so far, for a question; a new one by default."""
    budget: ExecutionBudget | None
    """Limits that override the definition's, one by one."""
    metadata: Mapping[str, JsonValue] | None
    """What the run is about, for tools, hooks, compilers and its subagents; added to the agent's own, at most
    RUN_METADATA_BYTES_MAX. The model does not see them."""
    tenant: str
    """On whose account it works; tools and the credentials of MCP servers go by it."""
    attachments: Iterable[GivenFile]
    """Files that come with the question, by path or by their bytes; at most 16."""
