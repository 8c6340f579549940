"""The record store's activities as a session calls them: find its agent, branch, and store its state."""

from __future__ import annotations

from temporalio import workflow

from holdfast.core.base.frozen import canonical
from holdfast.core.session.session_state import SessionState
from holdfast.core.wire.session_contracts import (
    BRANCH_ACTIVITY,
    FIND_SESSION_ACTIVITY,
    KEEP_SESSION_ACTIVITY,
    Branch,
    Branched,
    BranchRequest,
    FindSession,
    FoundSession,
    SaveSession,
)
from workflows import summaries
from workflows.execution.activity_calls import HEARTBEAT_TIMEOUT
from workflows.timeouts import BRANCH, FIND, KEEP


async def find_session(agent_id: str) -> FoundSession:
    """Return the stored state of the agent; waits while the store is unreachable. Raises ActivityError."""
    session: FoundSession = await workflow.execute_activity(
        FIND_SESSION_ACTIVITY,
        FindSession(agent_id=agent_id),
        result_type=FoundSession,
        start_to_close_timeout=FIND.attempt,
        schedule_to_close_timeout=FIND.total,
        heartbeat_timeout=HEARTBEAT_TIMEOUT,
        retry_policy=FIND.retry,
        summary=summaries.of_finding(agent_id),
    )
    return session


async def branched(branch: Branch, agent_id: str) -> Branched:
    """Return the snapshot of that place; raises ActivityError when there is none."""
    origin: Branched = await workflow.execute_activity(
        BRANCH_ACTIVITY,
        BranchRequest(branch=branch, agent_id=agent_id),
        result_type=Branched,
        start_to_close_timeout=BRANCH.attempt,
        schedule_to_close_timeout=BRANCH.total,
        heartbeat_timeout=HEARTBEAT_TIMEOUT,
        retry_policy=BRANCH.retry,
        summary=summaries.of_branch(branch),
    )
    return origin


async def keep_session(state: SessionState) -> None:
    """Store the session, so that the next message finds it again. Raises ActivityError."""
    await workflow.execute_activity(
        KEEP_SESSION_ACTIVITY,
        SaveSession(agent_id=state.agent_id, state=canonical(state).decode()),
        start_to_close_timeout=KEEP.attempt,
        schedule_to_close_timeout=KEEP.total,
        heartbeat_timeout=HEARTBEAT_TIMEOUT,
        retry_policy=KEEP.retry,
        summary=summaries.of_keeping(state),
    )
