"""`ExecuteOptions`: what an execution in this process takes besides the question."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from pydantic import JsonValue

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.state import AgentState


class ExecuteOptions(TypedDict, total=False):
    """What `LocalDriver.execute` takes besides the question."""

    state: AgentState | None
    budget: ExecutionBudget | None
    metadata: Mapping[str, JsonValue] | None
    tenant: str
