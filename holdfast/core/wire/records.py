"""What is kept of an agent outside Temporal's history: snapshots of its state, and a record of each execution.

A snapshot is written once and never changed. It is named by its digest, and what is long in it stands in sealed parts
(`holdfast.core.wire.carry_over`), objects of their own that later snapshots share: all that a session ever writes grows
linearly with its length, and a fork writes next to nothing.
"""

from __future__ import annotations

from typing import Literal

from pydantic import AwareDatetime, Field

from holdfast.core.agent.execution_state import ExecutionStatus, Id
from holdfast.core.agent.state import AgentState
from holdfast.core.base.bounds import RECORDED_TEXT_CHARS_MAX, TASK_CHARS_MAX
from holdfast.core.base.call_digest import Digest
from holdfast.core.base.frozen import Frozen
from holdfast.core.base.names import Name
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.messages import Message
from holdfast.core.conversation.steps import StepExecution
from holdfast.core.conversation.stop_reasons import StopReason


class Part(Frozen):
    """A sealed part: `count` items of a series, the steps' (none) or a section's; `rank` is how often it was joined.

    The object of that digest can hold more: a branch that was cut within it means its first `count` items alone.
    """

    series: str | None
    count: int = Field(ge=1)
    rank: int = Field(default=0, ge=0)
    digest: Digest


class Snapshot(Frozen):
    """An agent's state: a head without what grows, and that in sealed parts and tails behind them.

    `messages` are the tails of the head's sections, in their order, and `steps` that of the execution's steps.
    """

    format: Literal[1] = 1
    head: AgentState
    parts: tuple[Part, ...] = ()
    steps: tuple[StepExecution, ...] = ()
    messages: tuple[tuple[Message, ...], ...] = ()


class ExecutionRecord(Frozen):
    """What is kept of one execution that has ended; `number` counts the agent's executions from 1.

    `task` is what it was asked, cut to TASK_CHARS_MAX, and `answer` what it said last, cut to RECORDED_TEXT_CHARS_MAX;
    everything stands in its snapshot. Times are the run's own, `cost` is in US dollars.
    """

    format: Literal[1] = 1
    agent_id: Id
    parent_agent_id: Id | None = None
    agent: Name
    execution_id: Id
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
    """Stands for what a snapshot holds. As an argument of a workflow only the digest is sent and kept in histories.

    What arrives are the frames (`holdfast.core.base.framing`) of the snapshot's JSON and of its parts, without those of
    steps.
    """

    snapshot: Digest
