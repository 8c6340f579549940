"""Random values of what outlives an execution: snapshots, records, sessions and what is asked of them."""

from __future__ import annotations

from typing import get_args

from hypothesis import strategies as st

from holdfast.core.agent.definition import LLM
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.base.bounds import RECORDED_TEXT_CHARS_MAX
from holdfast.core.base.frozen import Frozen
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.session.session_state import DeliveredMessage, SessionInput, SessionState, Turn, TurnEnd
from holdfast.core.wire.contracts import DefinitionChange, PartPage, PartRequest, Recorded, RecordRequest, SessionStart
from holdfast.core.wire.records import ExecutionRecord, Part, Snapshot, SnapshotReference
from holdfast.core.wire.session_contracts import (
    Branch,
    Branched,
    BranchRequest,
    FindSession,
    FoundSession,
    Receipt,
    SaveSession,
    SessionChange,
    SessionMessage,
    SessionSettings,
    SessionStatus,
    SessionView,
    WhileRunning,
)
from holdfast.core.wire.sink_contracts import SinkStart
from tests.core.defining import costs, definitions, names
from tests.core.strategies import budgets, counts, ids, messages, moments, states, step_executions, texts, usages

digests = st.from_regex(r"[0-9a-f]{64}", fullmatch=True)
policies: st.SearchStrategy[WhileRunning] = st.sampled_from(get_args(WhileRunning))
statuses = st.sampled_from(ExecutionStatus)
reasons = st.none() | st.sampled_from(StopReason)
some_definitions = st.lists(definitions, max_size=1).map(tuple)
some_messages = st.lists(messages, max_size=2).map(tuple)
message_ids = st.text(min_size=1, max_size=20)
some_ids = st.lists(message_ids, max_size=3).map(tuple)

said = st.builds(SessionMessage, message_id=message_ids, text=texts, while_running=st.none() | policies)
some_said = st.lists(said, max_size=2).map(tuple)
settings = st.builds(
    SessionSettings,
    while_running=policies,
    tenant=texts,
    idle_seconds=st.none() | st.floats(0.001, 1e6),
    searchable=st.booleans(),
    continue_events=st.integers(1, 1_000),
)
branches = st.builds(Branch, agent_id=ids, execution_id=ids, steps=st.none() | counts)
sessions = st.builds(
    SessionState,
    agent_id=ids,
    definition=definitions,
    subagents=some_definitions,
    settings=settings,
    suspended=st.booleans(),
    closing=st.booleans(),
    at_once=st.booleans(),
    turn=st.none()
    | st.builds(
        Turn,
        execution_id=ids,
        said=some_said,
        injected=some_said,
        stop=st.sampled_from([None, "now", "after_step"]),
    ),
    queue=some_said,
    interrupting=counts,
    unanswered=some_said,
    known=st.lists(st.builds(DeliveredMessage, message_id=message_ids, execution_id=ids), max_size=2).map(tuple),
    snapshot=st.none() | digests,
    messages_before=counts,
    clearing=st.booleans(),
    executions=counts,
    last_id=st.none() | ids,
    place=st.none() | st.builds(Branch, agent_id=ids, execution_id=ids, steps=st.none() | counts),
    last_status=st.none() | statuses,
    last_stop_reason=reasons,
    usage=usages,
    cost=costs,
    updated_at=moments,
)

records = st.builds(
    ExecutionRecord,
    agent_id=ids,
    parent_agent_id=st.none() | ids,
    agent=names,
    execution_id=ids,
    number=st.integers(1, 9),
    task=texts,
    answer=st.text(max_size=RECORDED_TEXT_CHARS_MAX),
    status=statuses,
    stop_reason=reasons,
    why=texts,
    started_at=moments,
    completed_at=moments,
    usage=usages,
    cost=costs,
    step_count=counts,
    steps_used=counts,
    snapshot=digests,
)

VALUES: tuple[st.SearchStrategy[Frozen], ...] = (
    st.builds(
        Snapshot,
        head=states,
        parts=st.lists(
            st.builds(Part, series=st.none() | names, count=st.integers(1, 9), rank=counts, digest=digests), max_size=2
        ).map(tuple),
        steps=st.lists(step_executions, max_size=1).map(tuple),
        messages=st.lists(some_messages, max_size=2).map(tuple),
    ),
    records,
    st.builds(Branched, snapshot=digests, messages_before=counts),
    st.builds(SnapshotReference, snapshot=digests),
    st.builds(Recorded, snapshot=digests),
    st.builds(RecordRequest, agent=names, task=texts),
    st.builds(PartRequest, digest=digests),
    st.builds(PartPage, data=texts),
    st.builds(
        SessionStart,
        snapshot=st.none() | digests,
        previous_id=st.none() | ids,
        messages_before=counts,
        messages=some_messages,
    ),
    st.builds(DefinitionChange, definition=definitions, subagents=some_definitions, budget=st.none() | budgets),
    sessions,
    st.builds(
        SessionInput,
        definition=st.none() | definitions,
        subagents=some_definitions,
        settings=settings,
        forked_from=st.none() | branches,
        carried=st.none() | sessions,
    ),
    st.builds(
        TurnEnd,
        execution_id=ids,
        status=statuses,
        stop_reason=reasons,
        snapshot=st.none() | digests,
        messages_before=counts,
        taken=some_ids,
        usage=usages,
        cost=costs,
        at=moments,
    ),
    st.builds(
        Receipt,
        message_id=message_ids,
        state=st.sampled_from(["waiting", "running", "answered"]),
        execution_id=st.none() | ids,
        running_id=st.none() | ids,
        ahead=counts,
    ),
    st.builds(
        SessionChange,
        definition=st.none() | definitions,
        subagents=st.none() | some_definitions,
        system_prompt=st.none() | texts,
        llm=st.none() | st.builds(LLM, model=st.none() | st.just("m")),
        budget=st.none() | budgets,
        while_running=st.none() | policies,
    ),
    st.builds(
        SessionView,
        agent_id=ids,
        status=st.sampled_from(get_args(SessionStatus)),
        definition=definitions,
        settings=settings,
        running_id=st.none() | ids,
        last_id=st.none() | ids,
        place=st.none() | st.builds(Branch, agent_id=ids, execution_id=ids, steps=st.none() | counts),
        subagents=st.lists(definitions, max_size=1).map(tuple),
        last_status=st.none() | statuses,
        last_stop_reason=reasons,
        executions=counts,
        waiting=some_ids,
        snapshot=st.none() | digests,
        usage=usages,
        cost=costs,
        updated_at=moments,
    ),
    st.builds(FindSession, agent_id=ids),
    st.builds(FoundSession, kept=st.none() | texts, latest=st.none() | records),
    st.builds(SaveSession, agent_id=ids, state=texts),
    st.builds(BranchRequest, branch=branches, agent_id=ids),
    st.builds(SinkStart, consumer=names, task_queue=names),
)
