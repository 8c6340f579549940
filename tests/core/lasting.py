"""Values of what lasts beyond an execution, for round trips: records, snapshots, and all that concerns sessions."""

from __future__ import annotations

from hypothesis import strategies as st

from holdfast.core.contracts import DefinitionChange, PartPage, PartRequest, Recorded, RecordRequest, SessionStart
from holdfast.core.frozen import Frozen
from holdfast.core.records import ExecutionRecord, KeptState, Part, Snapshot
from holdfast.core.session import Known, SessionInput, SessionState, Turn, TurnEnd
from holdfast.core.session_contracts import (
    Branch,
    Branched,
    BranchRequest,
    FindSession,
    FoundSession,
    KeepSession,
    Receipt,
    SessionChange,
    SessionMessage,
    SessionSettings,
    SessionStop,
    SessionView,
)
from holdfast.core.state import ExecutionStatus
from holdfast.core.stopping import StopReason
from tests.core.defining import definitions, names
from tests.core.strategies import budgets, counts, ids, messages, moments, states, step_executions, texts, usages

costs = st.floats(min_value=0, max_value=1e6)
digests = st.binary(min_size=32, max_size=32).map(bytes.hex)
some_messages = st.lists(messages, max_size=3).map(tuple)
parts = st.builds(Part, series=st.none() | names, count=st.integers(1, 9), rank=counts, digest=digests)
places = st.builds(Branch, agent_id=ids, execution_id=ids, steps=st.none() | counts)
branched = st.builds(Branched, snapshot=digests, messages_before=counts)
session_messages = st.builds(SessionMessage, message_id=names, text=texts, while_running=st.none() | st.just("inject"))
session_settings = st.builds(SessionSettings, while_running=st.just("reject"), tenant=names, searchable=st.booleans())
some_said = st.lists(session_messages, max_size=2).map(tuple)
session_states = st.builds(
    SessionState,
    agent_id=ids,
    definition=definitions,
    settings=session_settings,
    turn=st.none() | st.builds(Turn, execution_id=ids, said=some_said, injected=some_said),
    queue=some_said,
    known=st.lists(st.builds(Known, message_id=names, execution_id=ids), max_size=2).map(tuple),
    snapshot=st.none() | digests,
    usage=usages,
    cost=costs,
    updated_at=moments,
)

LASTING: tuple[st.SearchStrategy[Frozen], ...] = (
    st.builds(
        Snapshot,
        head=states,
        parts=st.lists(parts, max_size=2).map(tuple),
        steps=st.lists(step_executions, max_size=2).map(tuple),
        messages=st.lists(some_messages, max_size=2).map(tuple),
    ),
    st.builds(
        ExecutionRecord,
        agent_id=ids,
        agent=names,
        execution_id=ids,
        number=st.integers(1, 9),
        task=texts,
        answer=texts,
        status=st.sampled_from(ExecutionStatus),
        stop_reason=st.none() | st.sampled_from(StopReason),
        started_at=moments,
        completed_at=moments,
        usage=usages,
        cost=costs,
        step_count=counts,
        steps_used=counts,
        snapshot=digests,
    ),
    st.builds(KeptState, snapshot=digests),
    st.builds(Recorded, snapshot=digests),
    st.builds(RecordRequest, agent=names, task=texts),
    st.builds(PartRequest, digest=digests),
    st.builds(PartPage, data=texts),
    st.builds(SessionStart, snapshot=st.none() | digests, messages=some_messages),
    st.builds(DefinitionChange, definition=definitions, budget=st.none() | budgets),
    st.builds(BranchRequest, branch=places, agent_id=ids),
    branched,
    st.builds(FindSession, agent_id=ids),
    st.builds(FoundSession, kept=st.none() | texts, latest=st.none() | branched),
    st.builds(KeepSession, agent_id=ids, state=texts),
    st.builds(Receipt, message_id=names, state=st.just("waiting"), execution_id=ids, ahead=counts),
    st.builds(SessionStop, reason=texts, source=texts),
    st.builds(SessionChange, definition=st.none() | definitions, system_prompt=st.none() | texts),
    st.builds(
        SessionView,
        agent_id=ids,
        status=st.just("idle"),
        definition=definitions,
        settings=session_settings,
        waiting=st.lists(names, max_size=2).map(tuple),
        usage=usages,
        updated_at=moments,
    ),
    session_states,
    st.builds(
        TurnEnd,
        execution_id=ids,
        status=st.sampled_from(ExecutionStatus),
        stop_reason=st.none() | st.sampled_from(StopReason),
        snapshot=st.none() | digests,
        usage=usages,
        at=moments,
    ),
    st.builds(
        SessionInput,
        definition=st.none() | definitions,
        settings=session_settings,
        forked_from=st.none() | places,
        carried=st.none() | session_states,
    ),
)
