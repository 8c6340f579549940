"""What an execution's workflow ends with: its result, or the details of its failure. Behaviour lives elsewhere."""

from __future__ import annotations

from holdfast.core.agent.budget import TreeUse
from holdfast.core.agent.execution_state import ExecutionStatus, Id
from holdfast.core.agent.state import AgentState
from holdfast.core.base.call_digest import Digest
from holdfast.core.base.frozen import Frozen
from holdfast.core.conversation.stop_reasons import StopReason


class ExecutionResult(Frozen):
    """What an execution's workflow returns, with what it used, its subagents included.

    `state` is whole when it is small and no session began the execution, or nothing else has it. Else it is what the
    `snapshot` holds; while a worker is there, the `state` query gives it too, page by page.
    """

    execution_id: Id
    status: ExecutionStatus
    stop_reason: StopReason | None
    step_count: int
    used: TreeUse
    final_response: str
    partial_response: str = ""
    """What its model said last, where it ended without a final response."""
    why: str = ""
    """What the deciding stop signal says."""
    state: AgentState | None = None
    snapshot: Digest | None = None
    """The digest of what was kept of it; none where nothing could be."""
    taken: tuple[str, ...] = ()
    """Of an execution of a session: the ids of the messages that stand in its conversation."""
    messages_before: int = 0
    """How many messages the default section had when it began."""


class ExecutionFailure(Frozen):
    """The details of the failure that a `failed` execution ends with, and what it used until then.

    The last three fields are those of `ExecutionResult`.
    """

    execution_id: Id
    reason: StopReason
    message: str
    used: TreeUse = TreeUse()
    snapshot: Digest | None = None
    taken: tuple[str, ...] = ()
    messages_before: int = 0
