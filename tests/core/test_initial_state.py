"""What a state does not say itself when a run begins with it, the definition says."""

from __future__ import annotations

from datetime import UTC, datetime

from holdfast.core.agent.definition import LLM, AgentDefinition, FallbackRoute
from holdfast.core.agent.initial_state import first_run
from holdfast.core.agent.policies import JsonObjectFormat
from holdfast.core.agent.state import AgentState
from holdfast.core.base.frozen import replace
from holdfast.core.base.usage import Prices

AT = datetime(2026, 1, 1, tzinfo=UTC)
ID = "6f1c0000-0000-4000-8000-000000000001"
OTHER = "6f1c0000-0000-4000-8000-000000000002"
PRICES = Prices(input_usd=1, output_usd=2)
CLERK = AgentDefinition(
    name="clerk", system_prompt="Be brief.", llm=LLM(model="small", temperature=0.5, prices=PRICES), metadata={"a": 1}
)


def born(**changes: object) -> AgentState:
    """An agent that was made elsewhere, by a definition that says nothing."""
    return replace(AgentState.empty(), agent_id=OTHER, llm=LLM(), **changes)


def test_an_empty_state_gets_its_id_its_time_and_all_of_the_definition() -> None:
    state = first_run(AgentState.empty(), CLERK, agent_id=ID, at=AT)
    assert (state.agent_id, state.created_at, state.llm) == (ID, AT, CLERK.llm)
    assert (state.context.system_prompt, state.metadata) == ("Be brief.", {"agent": "clerk", "a": 1})


def test_an_agent_from_elsewhere_stays_itself_and_gets_what_it_lacks() -> None:
    state = first_run(born(), CLERK, agent_id=ID, at=AT)
    assert (state.agent_id, state.updated_at, dict(state.metadata)) == (OTHER, AgentState.empty().updated_at, {})
    assert (state.llm, state.context.system_prompt) == (CLERK.llm, "Be brief.")


def test_what_a_state_says_itself_counts() -> None:
    own = born().with_llm(LLM(model="small", temperature=1)).with_system_prompt("Be long.")
    own = own.with_response_format(JsonObjectFormat())
    state = first_run(own, CLERK, agent_id=ID, at=AT)
    assert state.llm == LLM(model="small", temperature=1, prices=PRICES)
    assert (state.context.system_prompt, state.context.response_format) == ("Be long.", JsonObjectFormat())
    assert first_run(state, CLERK, agent_id=ID, at=AT) is state


def test_prices_are_those_of_their_model_alone() -> None:
    state = first_run(born().with_llm(LLM(model="large")), CLERK, agent_id=ID, at=AT)
    assert state.llm == LLM(model="large", temperature=0.5)


def test_routes_to_fall_back_to_are_the_definitions_where_the_agent_has_none() -> None:
    routes, own = (FallbackRoute(model="second"),), (FallbackRoute(model="third"),)
    falling = replace(CLERK, llm=replace(CLERK.llm, fallback=routes))
    for llm, fallback in ((LLM(model="large"), routes), (LLM(model="large", fallback=own), own)):
        state = first_run(born().with_llm(llm), falling, agent_id=ID, at=AT)
        assert state.llm is not None
        assert (state.llm.model, state.llm.fallback) == ("large", fallback)
