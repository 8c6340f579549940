"""What an execution begins with: a new agent, a given state, or its session's snapshot; and which agent goes on."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from temporalio import workflow

from holdfast.core.agent.handoffs import conversation_holder, taken_over
from holdfast.core.agent.initial_state import as_defined, first_run, new_agent
from holdfast.core.agent.state import AgentState
from holdfast.core.base.frozen import replace
from holdfast.core.conversation.attachments import Attachment
from holdfast.core.conversation.messages import user_message
from holdfast.core.loop.events import ExecutionStarted
from holdfast.core.wire.carry_over import SealedHistory
from holdfast.core.wire.contracts import ExecutionInput
from holdfast.core.wire.tool_catalog import ToolCatalog
from workflows.execution.definition_change import origin_of


def at_first(
    start: ExecutionInput, segments: Sequence[bytes], history: SealedHistory, at: datetime
) -> tuple[ExecutionInput, AgentState]:
    """Return the agent at the start of the first run, and the run's input, with the agent that has the conversation.

    `history` takes over the sealed segments.
    """
    if start.state is not None:
        opened = history.opened(start.state, segments)
        return start, first_run(opened, start.definition, agent_id=start.agent_id, at=at)
    session = start.session
    if session is None or session.snapshot is None:
        state = new_agent(start.definition, agent_id=start.agent_id, at=at, parent_agent_id=start.parent_agent_id)
    else:
        state = history.restored(segments[0], agent_id=start.agent_id)
        holder = conversation_holder(state, start.definition, start.subagents)
        state = as_defined(taken_over(state, holder), holder, at)
        start = replace(start, definition=holder, origin=origin_of(start))
    return start, state if session is None else replace(state, execution_count=session.executions)


def started(start: ExecutionInput, catalog: ToolCatalog | None) -> ExecutionStarted:
    """Return the event that begins the execution: with its session's messages, or with its question."""
    question = (user_message(start.question, start.attachments),) if start.question else ()
    return ExecutionStarted(
        execution_id=workflow.info().workflow_id,
        messages=start.session.messages if start.session else question,
        budget=start.budget,
        at=workflow.info().workflow_start_time,
        metadata=start.metadata,
        mcp=catalog.pinned if catalog else None,
        tenant=start.tenant,
    )


def files_sent(start: ExecutionInput) -> tuple[Attachment, ...]:
    """Return the files that the messages came with which begin the execution."""
    said = start.session.messages if start.session else ()
    return (*start.attachments, *(file for message in said for file in message.files))
