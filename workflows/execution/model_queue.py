"""`ModelQueue`: where calls to a route with rate limits wait for them, and in which order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from temporalio import workflow
from temporalio.common import Priority

from holdfast.core.agent.definition import LLM
from holdfast.core.wire.contracts import limited_queue
from holdfast.core.wire.tool_catalog import ToolCatalog
from holdfast.core.wire.workflow_ids import SESSION_PREFIX

INTERACTIVE: Final = 1
"""The priority of sessions' calls to such routes; all others have the server's own, 3 of 5."""


@dataclass(frozen=True, slots=True)
class ModelQueue:
    """The task queue of calls to a route with rate limits. The server gives them out no faster than the route allows.

    In it those of sessions come first: a person waits for them.
    """

    name: str
    priority: Priority


def model_queue(llm: LLM, catalog: ToolCatalog | None) -> ModelQueue | None:
    """Return the task queue of calls with `llm`; none for the run's own, where the SDK begins them without a server."""
    route = catalog.queued_route(llm.model) if catalog is not None else None
    if route is None:
        return None
    info = workflow.info()
    priority = Priority.default  # the run's own, with its tenant
    if info.root is not None and info.root.workflow_id.startswith(SESSION_PREFIX) and not info.priority.priority_key:
        priority = replace(info.priority, priority_key=INTERACTIVE)
    return ModelQueue(limited_queue(info.task_queue, route), priority)
