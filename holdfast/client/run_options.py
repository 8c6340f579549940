"""`RunOptions`: what starting a run takes besides the agent and the question."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

from pydantic import JsonValue

from holdfast.core.agent.agent import Agent
from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.state import AgentState
from holdfast.runtime.files.message_files import GivenFile


class RunOptions(TypedDict, total=False):
    """What `start` takes besides the agent and the question."""

    state: AgentState | None
    budget: ExecutionBudget | None
    execution_id: str | None
    agent_id: str | None
    subagents: Iterable[AgentDefinition | Agent[Any]]
    metadata: Mapping[str, JsonValue] | None
    tenant: str
    attachments: Iterable[GivenFile]
