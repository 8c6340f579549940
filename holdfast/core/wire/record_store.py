"""The protocols of the record store: `ExecutionStore` for ended executions, `AttachmentStore` for tools' files."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from holdfast.core.agent.state import AgentState
from holdfast.core.wire.records import ExecutionRecord


class ExecutionStore(Protocol):
    """A store of records, as a driver needs it; `holdfast.storage.records.Records` is one, in a folder or a bucket.

    Whatever a method raises besides what is named here counts as StorageFailed.
    """

    async def write_execution(self, state: AgentState, *, agent: str, task: str) -> ExecutionRecord:
        """Store the ended execution of `state`, and return its record.

        Args:
            state: the agent at the end of the execution, steps and all.
            agent: the agent's name.
            task: what the execution was asked, at most TASK_CHARS_MAX.

        The same execution can be written again; that replaces its earlier record.
        """
        ...

    async def by_id(self, execution_id: str) -> ExecutionRecord:
        """Return the record of an execution. Raises RecordNotFound, InvalidInput for what is no id."""
        ...

    async def by_agent(self, agent_id: str, limit: int = 20) -> list[ExecutionRecord]:
        """Return the latest records of an agent, the newest first; none for an agent that has none."""
        ...

    async def state_of(self, record: ExecutionRecord) -> AgentState:
        """Return the agent as it was at the end of that execution: conversation, execution, steps and all."""
        ...


@runtime_checkable
class AttachmentStore(Protocol):
    """A store of the files that tools attach, by their content; `holdfast.storage.records.Records` is one."""

    async def write_attachment(self, data: bytes) -> str:
        """Store a file, and return its SHA-256. Raises StorageFailed."""
        ...

    async def read_attachment(self, digest: str) -> bytes:
        """Return a file. Raises ObjectMissing, StorageFailed (also for changed content)."""
        ...
