"""Answers that a provider makes in the background, in-process: asked and counted once, cancelled when given up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from holdfast.core.agent.definition import LLM, AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.model import BackgroundAnswer
from holdfast.core.agent.usage_estimates import HIDDEN_TOKENS_MAX
from holdfast.core.base.errors import ModelFailure
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.local import LocalDriver
from holdfast.models import OpenAIResponses, ProviderSettings
from holdfast.models.openai_responses import background_call
from holdfast.testing.holds import Hold
from holdfast.testing.responses_server import FakeResponses
from holdfast.testing.script import Reply, say
from tests.activities.asking import KEY
from tests.models.asking_responses import Known

CLERK = AgentDefinition(name="clerk", llm=LLM(background=True))
PLAIN = AgentDefinition(name="clerk", llm=LLM(background=True, stream=False))
ONCE = AgentDefinition(name="clerk", llm=LLM(background=True), model_patience_seconds=0)
USED = Usage(input_tokens=100, output_tokens=20)
WORDS = "It left this morning."


@asynccontextmanager
async def driving(agent: AgentDefinition, *turns: Reply) -> AsyncGenerator[tuple[FakeResponses, LocalDriver, Known]]:
    """Serve `turns` and give the endpoint, a driver that asks it, and its model."""
    async with FakeResponses(turns) as endpoint:
        model = Known(ProviderSettings(base_url=endpoint.base_url, api_key=KEY, model="scripted"))
        try:
            yield endpoint, LocalDriver(agent, model=model), model
        finally:
            await model.close()


def asked(endpoint: FakeResponses) -> int:
    """Return how many answers were asked for."""
    return sum(each.path == "/v1/responses" for each in endpoint.requests)


async def logged(caplog: pytest.LogCaptureFixture, text: str) -> None:
    """Wait until the log says so."""
    while text not in caplog.text:  # noqa: ASYNC110  # it has no event
        await asyncio.sleep(0.05)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_call, "POLLS", replace(background_call.POLLS, first_seconds=0.01))


@pytest.mark.parametrize("agent", [CLERK, PLAIN])
async def test_an_answer_that_takes_longer_than_an_attempt_is_asked_for_and_counted_once(
    agent: AgentDefinition, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(background_call, "MODEL_SECONDS_MAX", 0.5)
    caplog.set_level(logging.INFO, "holdfast.model")
    hold = Hold()
    async with driving(agent, say(WORDS, pieces_max=4, hold=hold)) as (endpoint, driver, _):
        run = asyncio.create_task(driver.execute("Where is it?"))
        await logged(caplog, "did not answer in time")
        hold.release()
        state = await run
        assert (asked(endpoint), len(endpoint.background)) == (1, 1)
    assert (state.final_response, state.usage, state.status) == (WORDS, USED, ExecutionStatus.COMPLETED)


@pytest.mark.parametrize("agent", [CLERK, PLAIN])
@pytest.mark.parametrize("pieces", [None, 5])
async def test_a_stop_cancels_it_at_the_provider(agent: AgentDefinition, pieces: int | None) -> None:
    async with driving(agent, say(WORDS, pieces_max=pieces, hang=True)) as (endpoint, driver, model):
        run = asyncio.create_task(driver.execute("Where is it?"))
        await model.known.wait()
        driver.stop("enough")
        state = await run
        assert (asked(endpoint), endpoint.background[0].status) == (1, "cancelled")
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.USER_REQUESTED)
    assert 0 < state.usage.total_tokens == state.usage.estimated_tokens


async def test_a_call_that_is_given_up_cancels_it_and_counts_all_that_it_can_have_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(background_call, "MODEL_SECONDS_MAX", 0.5)
    async with driving(ONCE, say(WORDS, pieces_max=4, hang=True)) as (endpoint, driver, _):
        state = await driver.execute("Where is it?")
        assert (asked(endpoint), endpoint.background[0].status) == (1, "cancelled")
    assert state.status is ExecutionStatus.FAILED
    assert state.usage.output_tokens == HIDDEN_TOKENS_MAX


async def test_an_answer_that_is_gone_is_asked_for_once_more_and_both_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_call, "MODEL_SECONDS_MAX", 0.5)
    slow = say(WORDS, failures=(Reply(pieces_max=4, hang=True),))
    async with driving(CLERK, slow) as (endpoint, driver, model):
        run = asyncio.create_task(driver.execute("Where is it?"))
        await model.known.wait()
        endpoint.forget()
        state = await run
        assert (asked(endpoint), len(endpoint.background)) == (2, 2)
    assert (state.final_response, state.status) == (WORDS, ExecutionStatus.COMPLETED)
    lost = state.usage.output_tokens - USED.output_tokens
    assert lost == HIDDEN_TOKENS_MAX


async def test_a_cancel_that_fails_is_tried_again_and_told_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries = 0

    async def refuse(_: OpenAIResponses, __: BackgroundAnswer) -> Usage | None:
        nonlocal tries
        tries += 1
        raise ModelFailure("away", kind="ProviderUnavailable", again=tries < 2)

    monkeypatch.setattr(OpenAIResponses, "cancel", refuse)
    async with driving(CLERK, say(WORDS, pieces_max=5, hang=True)) as (_, driver, model):
        run = asyncio.create_task(driver.execute("Where is it?"))
        await model.known.wait()
        driver.stop()
        state = await run
        await logged(caplog, "could not be cancelled at its provider")
    assert (tries, state.status) == (2, ExecutionStatus.STOPPED)
    assert state.usage.output_tokens == HIDDEN_TOKENS_MAX, "it goes on there"
