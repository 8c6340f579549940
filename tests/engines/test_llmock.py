"""llmock's faults, its own verdict on how we asked again, and what our state says in the end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import AgentDefinition, ExecutionBudget, ExecutionStatus, StopReason, tool
from holdfast.client import Holdfast, Settings
from holdfast.core.agent.definition import LLM
from holdfast.core.agent.policies import JsonSchemaFormat
from holdfast.core.agent.state import AgentState
from holdfast.core.base.errors import ExecutionFailed
from holdfast.core.base.frozen import replace
from holdfast.testing import assert_every_call_answered
from tests.engines.engine import LLMock, working

pytestmark = [pytest.mark.temporal, pytest.mark.engines]

AGENT = AgentDefinition(name="asker", tools=())
ANSWER = "All is well."
REFUSALS = {400: "RequestRefused", 401: "NotAuthorised", 403: "NotAuthorised", 404: "ModelNotFound"} | dict.fromkeys(
    (413, 422), "RequestRefused"
)


def fail(status: int, **more: Any) -> dict[str, Any]:  # noqa: ANN401  # JSON
    return {"type": "fail", "status": status, **more}


def reply(text: str, *tool_calls: dict[str, Any]) -> dict[str, Any]:
    return {"type": "reply", "text": text, "tool_calls": list(tool_calls)}


def faultless(llmock: LLMock, calls: int, attempts: int) -> None:
    """Check that llmock finds nothing to blame, not even a warning, and that all its faults have struck."""
    verdict = llmock.verdict
    assert verdict["findings"] == []
    assert (verdict["calls"], verdict["attempts"]) == (calls, attempts)
    assert llmock.pending == []


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@pytest.mark.slow
async def test_a_busy_endpoint_is_left_alone_for_as_long_as_it_asks(settings: Settings, llmock: LLMock) -> None:
    llmock.plan(fail(429, retry_after=1), fail(429, retry_after=2), reply(ANSWER))
    async with working(settings, llmock.base_url) as client:
        state = await client.run(AGENT, "How are you?")
    assert (state.status, state.state.final_response) == (ExecutionStatus.COMPLETED, ANSWER)
    faultless(llmock, calls=1, attempts=3)
    assert [each["status"] for each in llmock.requests] == [429, 429, 200]
    assert {each["sdk_retry_count"] for each in llmock.requests} == {0}, "the client's own retries are off"


async def test_every_kind_of_failing_endpoint_is_asked_again(settings: Settings, llmock: LLMock) -> None:
    statuses = (500, 502, 503, 529, 408)
    llmock.plan(*(fail(status, retry_after=0.1) for status in statuses), reply(ANSWER))
    async with working(settings, llmock.base_url) as client:
        state = await client.run(AGENT, "How are you?")
    assert (state.status, state.state.final_response) == (ExecutionStatus.COMPLETED, ANSWER)
    faultless(llmock, calls=1, attempts=len(statuses) + 1)


@pytest.mark.slow
async def test_what_no_repetition_can_help_is_asked_once(settings: Settings, llmock: LLMock) -> None:
    async with working(settings, llmock.base_url) as client:
        for status, kind in REFUSALS.items():
            llmock.plan(fail(status))
            state = await failed(client, f"Give me a {status}.")
            assert [error.type for error in state.errors] == [kind]
            assert str(status) in state.errors[0].message
    faultless(llmock, calls=len(REFUSALS), attempts=len(REFUSALS))


async def test_an_account_without_credit_is_not_asked_again(settings: Settings, llmock: LLMock) -> None:
    llmock.plan(fail(429, code="insufficient_quota", message="You exceeded your current quota"))
    async with working(settings, llmock.base_url) as client:
        state = await failed(client, "How are you?")
    assert [error.type for error in state.errors] == ["QuotaExceeded"]
    assert len(llmock.requests) == 1


async def test_an_endpoint_that_stays_broken_is_asked_with_growing_waits_until_patience_is_over(
    settings: Settings, llmock: LLMock
) -> None:
    llmock.plan(fail(500, times=None))
    async with working(settings, llmock.base_url) as client:
        state = await failed(client, "How are you?", replace(AGENT, model_patience_seconds=3))
    assert [error.type for error in state.errors] == ["ProviderUnavailable"]
    assert "given up after 4 attempts (model_patience_seconds is 3)" in state.errors[0].message
    verdict = llmock.verdict
    assert verdict["findings"] == []
    assert (verdict["calls"], verdict["attempts"]) == (1, 4), "after 0, 0.5, 1.5 and 3 seconds"


@pytest.mark.parametrize("kind", ["disconnect", "truncate", "malformed"])
async def test_a_stream_that_breaks_is_asked_for_again_and_nothing_of_it_is_used(
    settings: Settings, llmock: LLMock, kind: str
) -> None:
    llmock.plan(
        reply(f"Half a word, and then. {ANSWER}"),
        {"type": "stream_fault", "kind": kind, "after_chunks": 3},
        reply(ANSWER),
    )
    async with working(settings, llmock.base_url) as client:
        state = await client.run(AGENT, "How are you?")
    assert (state.status, state.state.final_response) == (ExecutionStatus.COMPLETED, ANSWER)
    faultless(llmock, calls=1, attempts=2)
    assert [each["stream"] for each in llmock.requests] == [True, True]


@pytest.mark.parametrize("kind", ["disconnect", "truncate", "malformed"])
async def test_a_tool_call_whose_stream_breaks_is_not_run(settings: Settings, llmock: LLMock, kind: str) -> None:
    call = {"name": "add", "arguments": {"a": 1, "b": 2}}
    llmock.plan(
        reply("", call), {"type": "stream_fault", "kind": kind, "after_chunks": 2}, reply("", call), reply(ANSWER)
    )
    async with working(settings, llmock.base_url, [add]) as client:
        state = await client.run(AgentDefinition(name="adder", tools="all"), "What is 1 + 2?")
    assert (state.status, state.state.final_response) == (ExecutionStatus.COMPLETED, ANSWER)
    assert [len(step.step.tool_executions) for step in state.state.step_executions] == [1, 0]
    assert_every_call_answered(state.state)
    faultless(llmock, calls=2, attempts=3)


@pytest.mark.slow
async def test_a_stream_that_stalls_is_left_when_the_time_is_up(settings: Settings, llmock: LLMock) -> None:
    llmock.plan({"type": "stream_fault", "kind": "stall", "after_chunks": 2, "stall_seconds": 30})
    async with working(settings, llmock.base_url) as client, asyncio.timeout(90):
        state = await client.run(AGENT, "How are you?", budget=ExecutionBudget(max_seconds=5))
        request = llmock.requests[0]
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.TIME_LIMIT)
    assert request["fault"].startswith("stream:stall")
    assert (len(llmock.requests), llmock.verdict["findings"]) == (1, [])


async def test_a_wait_that_the_endpoint_asks_for_ends_with_the_time_limit(settings: Settings, llmock: LLMock) -> None:
    llmock.plan(fail(429, retry_after=3_600), reply(ANSWER))
    async with working(settings, llmock.base_url) as client, asyncio.timeout(90):
        state = await client.run(AGENT, "How are you?", budget=ExecutionBudget(max_seconds=5))
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.TIME_LIMIT)
    assert len(llmock.requests) == 1


async def test_a_context_that_is_too_long_is_told_as_such(settings: Settings, llmock: LLMock) -> None:
    words = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."
    llmock.plan(fail(400, code="context_length_exceeded", message=words))
    async with working(settings, llmock.base_url) as client:
        state = await failed(client, "A long question.")
    assert [error.type for error in state.errors] == ["ContextTooLong"]
    faultless(llmock, calls=1, attempts=1)


async def test_a_tool_call_whose_arguments_are_no_json_is_answered_and_not_run(
    settings: Settings, llmock: LLMock
) -> None:
    call = {"name": "add", "arguments": {"a": 1, "b": 2}}
    llmock.plan(reply("", call), {"type": "tool_fault", "kind": "malformed_arguments"}, reply("", call), reply(ANSWER))
    async with working(settings, llmock.base_url, [add]) as client:
        state = await client.run(AgentDefinition(name="adder", tools="all"), "What is 1 + 2?")
    assert state.status is ExecutionStatus.COMPLETED
    broken, sound = (step.step.tool_executions[0] for step in state.state.step_executions[:2])
    assert broken.error is not None
    assert sound.result == "3"
    assert_every_call_answered(state.state)
    faultless(llmock, calls=3, attempts=3)


async def test_a_call_of_a_tool_that_was_never_offered_is_answered_and_not_run(
    settings: Settings, llmock: LLMock
) -> None:
    call = {"name": "add", "arguments": {"a": 1, "b": 2}}
    llmock.plan(reply("", call), {"type": "tool_fault", "kind": "unknown_tool"}, reply(ANSWER))
    async with working(settings, llmock.base_url, [add]) as client:
        state = await client.run(AgentDefinition(name="adder", tools="all"), "What is 1 + 2?")
    assert (state.status, state.state.final_response) == (ExecutionStatus.COMPLETED, ANSWER)
    assert state.state.step_executions[0].step.tool_executions[0].error is not None
    assert_every_call_answered(state.state)
    faultless(llmock, calls=2, attempts=2)


async def test_an_endpoint_that_ignores_the_answers_schema_is_asked_so_often_and_no_oftener(
    settings: Settings, llmock: LLMock
) -> None:
    form = JsonSchemaFormat(name="sum", json_schema={"type": "object", "required": ["sum"]}, strict=True)
    agent = AgentDefinition(name="former", tools=(), response_format=form, reasks_max=2)
    async with working(settings, llmock.base_url) as client:
        state = await client.run(agent, "What is 1 + 2?")
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.RETRY_LIMIT)
    faultless(llmock, calls=3, attempts=3)


@pytest.mark.slow
async def test_many_runs_against_an_endpoint_that_fails_at_random_all_end_well(
    settings: Settings, llmock: LLMock
) -> None:
    """Each run has a plan of its own, by the model's name, so that the faults do not depend on who comes first."""
    runs = 12
    for number in range(runs):
        match = {"model": f"model-{number}"}
        faults = [429, 500, 502, 503][number % 4 :][: number % 3 + 1]
        llmock.plan(*(fail(status, retry_after=0.2, match=match) for status in faults))
        llmock.plan({**reply(f"{ANSWER} {number}"), "match": match})
    agents = [AgentDefinition(name="asker", tools=(), llm=LLM(model=f"model-{number}")) for number in range(runs)]
    async with working(settings, llmock.base_url) as client:
        states = await asyncio.gather(*(client.run(agent, "How are you?") for agent in agents))
    assert [state.state.final_response for state in states] == [f"{ANSWER} {number}" for number in range(runs)]
    faultless(llmock, calls=runs, attempts=len(llmock.requests))
    assert len(llmock.requests) > runs


async def failed(client: Holdfast, question: str, agent: AgentDefinition = AGENT) -> AgentState:
    """Return the state of a run that fails."""
    with pytest.raises(ExecutionFailed) as raised:
        await client.run(agent, question)
    assert raised.value.state is not None
    return AgentState.from_dict(raised.value.state)
