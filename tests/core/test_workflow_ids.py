"""A run and a session never have the same workflow id, whatever their ids are; a type tells its agent."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.agent.execution_state import checked_id
from holdfast.core.wire.contracts import AGENT_EXECUTION
from holdfast.core.wire.session_contracts import AGENT_SESSION
from holdfast.core.wire.workflow_ids import agent_in, base_type, kind_of, named_type, own_id, session_workflow_id

UUIDS = st.uuids().map(str)
NAMES = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)


@given(UUIDS)
def test_a_sessions_workflow_id_is_no_id_that_a_run_can_have(id_: str) -> None:
    workflow_id = session_workflow_id(id_)
    assert own_id(workflow_id) == own_id(id_) == id_ == str(UUID(id_))
    try:
        checked_id(workflow_id)
    except ValueError:
        return
    raise AssertionError(f"{workflow_id} can be a run's")


@given(NAMES)
def test_a_type_names_its_agent_and_stays_what_it_is(agent: str) -> None:
    run, session = named_type(AGENT_EXECUTION, agent), named_type(AGENT_SESSION, agent)
    assert (kind_of(run), kind_of(session)) == ("run", "session")
    assert (agent_in(run), agent_in(session)) == (agent, agent)
    assert (base_type(run), base_type(session)) == (AGENT_EXECUTION, AGENT_SESSION)


def test_a_type_without_a_name_is_ours_and_anothers_is_not() -> None:
    assert (named_type(AGENT_SESSION, None), kind_of(AGENT_SESSION), agent_in(AGENT_SESSION)) == (
        "AgentSession",
        "session",
        "",
    )
    assert kind_of("AgentExecutionOfAnother") is kind_of("EventSink") is None
