"""The result of an execution's workflow, or the details of its failure. Behaviour lives elsewhere."""

from __future__ import annotations

from holdfast.core.agent.budget import TreeUse
from holdfast.core.agent.execution_state import ExecutionStatus, Id
from holdfast.core.agent.state import AgentState
from holdfast.core.base.call_digest import Digest
from holdfast.core.base.frozen import Frozen
from holdfast.core.conversation.stop_reasons import StopReason


class ExecutionResult(Frozen):
    """The result of an execution's workflow; `used` includes its subagents.

    `state` is set when it is small and either no session began the execution or no snapshot has it. Otherwise read the
    `snapshot`; while a worker runs, the `state` query returns it too, page by page.
    """

    execution_id: Id
    status: ExecutionStatus
    stop_reason: StopReason | None
    step_count: int
    used: TreeUse
    final_response: str
    partial_response: str = ""
    """The model's last text, where it ended without a final response."""
    why: str = ""
    """The message of the deciding stop signal."""
    state: AgentState | None = None
    snapshot: Digest | None = None
    """The digest of its snapshot; none if none could be stored."""
    taken: tuple[str, ...] = ()
    """For a session's execution: the ids of the messages in its conversation."""
    messages_before: int = 0
    """How many messages the default section had when it began."""


class ExecutionFailure(Frozen):
    """The failure details of a `failed` execution, with its usage.

    The last three fields are those of `ExecutionResult`.
    """

    execution_id: Id
    reason: StopReason
    message: str
    used: TreeUse = TreeUse()
    snapshot: Digest | None = None
    taken: tuple[str, ...] = ()
    messages_before: int = 0
