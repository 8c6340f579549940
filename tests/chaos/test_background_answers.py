"""Workers that die or drain while a provider makes an answer in the background: it is resumed, and paid for once."""

from __future__ import annotations

import asyncio
from itertools import chain, count
from pathlib import Path
from uuid import UUID, uuid4, uuid5

import pytest

from holdfast.client import Holdfast, Settings
from holdfast.core.agent.definition import LLM, AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.usage_estimates import HIDDEN_TOKENS_MAX
from holdfast.core.base.usage import Usage
from holdfast.core.wire.contracts import CallProgress
from holdfast.local import LocalDriver
from holdfast.models import OpenAIResponses, ProviderSettings
from holdfast.testing import assert_same_run
from holdfast.testing.holds import Hold
from holdfast.testing.ledger import Ledger
from holdfast.testing.responses_server import FakeResponses
from holdfast.testing.script import Reply, say
from tests.chaos.processes import worker
from tests.scenarios.driving import UNEQUAL

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(240)]

KNOWN_SECONDS_MAX = 60
WORDS = "It left this morning, by rail."
ENVIRONMENT = {"HOLDFAST_MODEL_API": "openai_responses", "OPENAI_API_KEY": "test-key", "HOLDFAST_WORKER_GRACE": "1"}
USED = Usage(input_tokens=100, output_tokens=20)


def clerk(*, stream: bool = True) -> AgentDefinition:
    return AgentDefinition(name="clerk", llm=LLM(background=True, stream=stream))


async def known(client: Holdfast, execution_id: str) -> None:
    """Wait until the server has the id of the answer under way, for the next attempt."""
    async with asyncio.timeout(KNOWN_SECONDS_MAX):
        while True:
            description = await client.temporal.get_workflow_handle(execution_id).describe()
            for pending in description.raw_description.pending_activities:
                for payload in pending.heartbeat_details.payloads:
                    (progress,) = await client.temporal.data_converter.decode([payload], [CallProgress])
                    if CallProgress.model_validate(progress).background is not None:
                        return
            await asyncio.sleep(0.05)


def asked(ledger: Path) -> int:
    """Return how many answers were asked for, by the provider's own ledger."""
    return Ledger(ledger).count(kind="model", phase="started")


async def in_process(agent: AgentDefinition, ids: tuple[str, str], turn: Reply) -> AgentState:
    """Return the same run without a worker."""
    agent_id, execution_id = ids
    more = chain(ids, (str(uuid5(UUID(execution_id), f"child/{n}")) for n in count()))
    async with FakeResponses([turn]) as endpoint:
        model = OpenAIResponses(ProviderSettings(base_url=endpoint.base_url, api_key="test-key", model="scripted"))
        state = await LocalDriver(agent, model=model, new_id=lambda: next(more)).execute("Where is it?")
        await model.close()
    assert state.agent_id == agent_id
    return state


@pytest.mark.slow
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("end", ["kill", "drain"])
async def test_a_lost_workers_answer_is_resumed_by_another_one(
    settings: Settings, tmp_path: Path, end: str, *, stream: bool
) -> None:
    agent, hold, ledger = clerk(stream=stream), Hold(), tmp_path / "ledger.jsonl"
    ids = str(uuid4()), str(uuid4())
    async with FakeResponses([say(WORDS, pieces_max=6, hold=hold)], ledger=ledger) as endpoint:
        client = await Holdfast.connect(settings)
        async with worker(settings, endpoint, tmp_path / "tools.jsonl", ENVIRONMENT) as first:
            await client.start(agent, "Where is it?", agent_id=ids[0], execution_id=ids[1])
            await known(client, ids[1])
            await asyncio.to_thread(first.kill if end == "kill" else first.stop)
        assert endpoint.background[0].status == "in_progress", "nobody has cancelled it"
        before = len(endpoint.requests)
        async with worker(settings, endpoint, tmp_path / "tools.jsonl", ENVIRONMENT):
            await endpoint.until(lambda requests: len(requests) > before)
            hold.release()
            state = await client.result(ids[1])
        assert (asked(ledger), len(endpoint.background)) == (1, 1)
    assert isinstance(state, AgentState)
    assert (state.final_response, state.usage) == (WORDS, USED)
    local = await in_process(agent, ids, say(WORDS))
    assert_same_run(state, local, ignoring=UNEQUAL)


@pytest.mark.slow
async def test_an_answer_that_is_gone_after_a_kill_is_asked_for_once_more(settings: Settings, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.jsonl"
    lost = Reply(pieces_max=4, hang=True)
    async with FakeResponses([say(WORDS, failures=(lost,))], ledger=ledger) as endpoint:
        client = await Holdfast.connect(settings)
        async with worker(settings, endpoint, tmp_path / "tools.jsonl", ENVIRONMENT) as first:
            execution_id = await client.start(clerk(), "Where is it?")
            await known(client, execution_id)
            first.kill()
        endpoint.forget()
        async with worker(settings, endpoint, tmp_path / "tools.jsonl", ENVIRONMENT):
            state = await client.result(execution_id)
        assert (asked(ledger), len(endpoint.background)) == (2, 2)
    assert state.final_response == WORDS
    assert state.usage.total_tokens > USED.total_tokens, "the lost one was paid for as well"


@pytest.mark.slow
@pytest.mark.parametrize("end", ["kill", "drain"])
async def test_a_stop_while_no_worker_lives_cancels_it(settings: Settings, tmp_path: Path, end: str) -> None:
    async with FakeResponses([say(WORDS, pieces_max=4, hang=True)]) as endpoint:
        client = await Holdfast.connect(settings)
        async with worker(settings, endpoint, tmp_path / "tools.jsonl", ENVIRONMENT) as first:
            execution_id = await client.start(clerk(), "Where is it?")
            await known(client, execution_id)
            await asyncio.to_thread(first.kill if end == "kill" else first.stop)
        await client.stop(execution_id, "enough")
        async with worker(settings, endpoint, tmp_path / "tools.jsonl", ENVIRONMENT):
            state = await client.result(execution_id)
            await endpoint.background[0].until("cancelled")
        assert state.status is ExecutionStatus.STOPPED
        assert state.usage.output_tokens == HIDDEN_TOKENS_MAX, "the most that it can have used"
