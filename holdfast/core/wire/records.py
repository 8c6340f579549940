"""Snapshots of an agent's state and the records of its executions, stored outside Temporal's history.

A snapshot is written once and never changed. Its name is its digest. Long data are in sealed parts
(`holdfast.core.wire.carry_over`), separate objects that later snapshots share: the total that a session writes grows
linearly with its length, and a fork writes next to nothing.
"""

from __future__ import annotations

from typing import Literal

from pydantic import AwareDatetime, Field

from holdfast.core.agent.execution_state import ExecutionStatus, Id
from holdfast.core.agent.state import AgentState
from holdfast.core.base.bounds import RECORDED_TEXT_CHARS_MAX, TASK_CHARS_MAX, TENANT_CHARS_MAX
from holdfast.core.base.call_digest import Digest
from holdfast.core.base.frozen import Frozen
from holdfast.core.base.names import Name
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.messages import Message
from holdfast.core.conversation.steps import StepExecution
from holdfast.core.conversation.stop_reasons import StopReason


class Part(Frozen):
    """A sealed part: `count` items of a series, the steps' (none) or a section's; `rank` is how often it was joined.

    The object of that digest can hold more: a branch that was cut within it uses only its first `count` items.
    """

    series: str | None
    count: int = Field(ge=1)
    rank: int = Field(default=0, ge=0)
    digest: Digest


class Snapshot(Frozen):
    """An agent's state: a head without messages and steps, and those in sealed parts with tails after them.

    `messages` are the tails of the head's sections, in their order, and `steps` that of the execution's steps.
    """

    format: Literal[1] = 1
    head: AgentState
    parts: tuple[Part, ...] = ()
    steps: tuple[StepExecution, ...] = ()
    messages: tuple[tuple[Message, ...], ...] = ()


class ExecutionRecord(Frozen):
    """The record of one ended execution; `number` counts the agent's executions from 1.

    `task` is its question, cut to TASK_CHARS_MAX, and `answer` its last text, cut to RECORDED_TEXT_CHARS_MAX; the
    snapshot has both whole. Times are the run's own, `cost` is in US dollars.
    """

    format: Literal[1] = 1
    agent_id: Id
    parent_agent_id: Id | None = None
    agent: Name
    execution_id: Id
    tenant: str = Field(default="", max_length=TENANT_CHARS_MAX)
    number: int = Field(ge=1)
    task: str = Field(default="", max_length=TASK_CHARS_MAX)
    answer: str = Field(default="", max_length=RECORDED_TEXT_CHARS_MAX)
    status: ExecutionStatus
    stop_reason: StopReason | None
    why: str = ""
    started_at: AwareDatetime
    completed_at: AwareDatetime
    usage: Usage = Usage()
    cost: float = Field(default=0.0, ge=0)
    unpriced: tuple[str, ...] = ()
    step_count: int = Field(ge=0)
    steps_used: int = Field(ge=0)
    snapshot: Digest


class SnapshotReference(Frozen):
    """A reference to a snapshot. As a workflow argument only the digest is sent and stored in histories.

    The worker receives frames (`holdfast.core.base.framing`): the snapshot's JSON and its parts, without those of
    steps.
    """

    snapshot: Digest
