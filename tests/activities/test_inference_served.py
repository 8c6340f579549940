"""The model call under a real worker and a real server: stops, heartbeats, and usage that no failure loses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from holdfast.client import Holdfast
from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import LLM, AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.usage_estimates import HEARTBEAT_TOKENS_MAX
from holdfast.core.base.errors import ExecutionFailed
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.wire.contracts import CallProgress
from holdfast.server.worker_process import WorkerProcess, worker_command, worker_environment
from holdfast.testing.holds import Hold
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import Reply, say
from tests.forked import WarmWorker
from tests.serving import Serve

pytestmark = pytest.mark.temporal

AGENT = AgentDefinition(name="teller")
TEXT = "Once upon a time there was a hare."
USED = Usage(input_tokens=7, output_tokens=3)
CUT = Reply(text=TEXT, usage=(7, 3), usage_in="every", pieces_max=3)
SECONDS_MAX = 90
LOOK_SECONDS = 0.05


async def told(client: Holdfast, execution_id: str, chars: int) -> CallProgress:
    """Return what the model call under way tells in its heartbeats, once it tells of so many characters."""
    handle = client.temporal.get_workflow_handle(execution_id)
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            for call in (await handle.describe()).raw_description.pending_activities:
                for payload in call.heartbeat_details.payloads:
                    (progress,) = await client.temporal.data_converter.decode([payload], [CallProgress])
                    if progress.chars >= chars:
                        return CallProgress.model_validate(progress)
            await asyncio.sleep(LOOK_SECONDS)  # nobody tells of a heartbeat


@pytest.mark.slow
async def test_the_heartbeats_tell_how_far_an_answer_has_come_and_the_history_does_not(serve: Serve) -> None:
    hold = Hold()
    async with serve([say(TEXT, pieces_max=3, usage=(7, 3), usage_in="every", hold=hold)]) as served:
        execution_id = await served.client.start(AGENT, "Tell me.")
        await hold.until_held()
        progress = await told(served.client, execution_id, 24)
        assert progress.begun_at is not None
        if_lost = USED + Usage(output_tokens=HEARTBEAT_TOKENS_MAX, estimated_tokens=HEARTBEAT_TOKENS_MAX)
        so_far = CallProgress(chars=24, tail=TEXT[:24], usage=USED, begun_at=progress.begun_at, if_lost=if_lost)
        assert progress == so_far
        hold.release()
        state = await served.client.result(execution_id)
        history = await served.client.temporal.get_workflow_handle(execution_id).fetch_history()
    assert state.final_response == TEXT
    assert TEXT[:24] not in history.to_json().replace(TEXT, "")


async def test_a_stop_closes_the_connection_at_once_and_keeps_what_had_come(serve: Serve) -> None:
    hold = Hold()
    async with serve([say(TEXT, pieces_max=3, usage=(7, 3), usage_in="every", hold=hold)]) as served:
        execution_id = await served.client.start(AGENT, "Tell me.")
        await told(served.client, execution_id, 24)
        stopped_at = time.monotonic()
        await served.client.stop(execution_id)
        await served.endpoint.until(lambda seen: seen[0].outcome == "disconnected-by-client", seconds_max=90)
        state = await served.client.result(execution_id)
        assert time.monotonic() - stopped_at < 60
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.USER_REQUESTED)
    assert state.usage == USED
    assert state.current_response == TEXT[:24]


async def test_what_failed_attempts_used_is_counted(serve: Serve) -> None:
    async with serve([say(TEXT, usage=(100, 20), failures=(CUT, CUT))]) as served:
        state = await served.client.result(await served.client.start(AGENT, "Tell me."))
    assert state.final_response == TEXT
    assert state.usage == Usage(input_tokens=114, output_tokens=26)
    assert state.last_step is not None
    assert state.last_step.overhead == USED + USED


async def test_what_a_call_used_that_failed_for_good_is_counted(serve: Serve) -> None:
    error = b'data: {"error": {"message": "no credit left", "code": "insufficient_quota"}}\n\n'
    broke = Reply(text=TEXT, usage=(7, 3), usage_in="every", pieces_max=3, then=error)
    async with serve([say(TEXT, failures=(CUT, broke))]) as served:
        execution_id = await served.client.start(AGENT, "Tell me.")
        with pytest.raises(ExecutionFailed, match="no credit left"):
            await served.client.result(execution_id)
        state = await served.client.state(execution_id)
    assert state.usage == USED + USED
    assert state.errors[-1].type == "QuotaExceeded"


async def test_a_failed_attempts_usage_counts_against_the_budget(serve: Serve) -> None:
    spent = ExecutionBudget(max_tokens=15)
    async with serve([say(TEXT, usage=(2, 2), failures=(CUT, CUT))]) as served:
        state = await served.client.result(await served.client.start(AGENT, "Tell me.", budget=spent))
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.TOKEN_LIMIT)
    assert state.usage == USED
    assert not state.final_response


async def test_retry_after_zero_is_no_wait(serve: Serve) -> None:
    at_once = Reply(status=429, headers={"retry-after": "0"})
    async with serve([say(TEXT, failures=(at_once,) * 5)]) as served:
        started = time.monotonic()
        state = await served.client.result(await served.client.start(AGENT, "Tell me."))
        took = time.monotonic() - started
    assert state.status is ExecutionStatus.COMPLETED
    assert took < 14  # the usual waits before five repetitions are 15 s


async def test_an_agent_that_does_not_stream_runs_the_same(serve: Serve) -> None:
    plain = AgentDefinition(name="teller", llm=LLM(stream=False))
    async with serve([say(TEXT, usage=(7, 3))]) as served:
        state = await served.client.result(await served.client.start(plain, "Tell me."))
        assert "stream" not in served.endpoint.requests[0].body
    assert (state.final_response, state.usage) == (TEXT, USED)


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_what_a_killed_worker_had_used_is_counted(serve: Serve) -> None:
    hold = Hold()
    before = Reply(text=TEXT, usage=(7, 3), usage_in="every", pieces_max=3, hold=hold)
    async with FakeOpenAI([say(TEXT, usage=(100, 20), failures=(before,))]) as endpoint:
        async with serve([]) as served:
            client, settings = served.client, served.client.settings
        environment = {**worker_environment(), "OPENAI_BASE_URL": endpoint.base_url, "HOLDFAST_MODEL": "scripted"}

        @asynccontextmanager
        async def worker() -> AsyncGenerator[WorkerProcess]:
            process = WarmWorker(worker_command(settings, []), lambda _: None, environment)
            try:
                assert await asyncio.to_thread(process.wait_until_ready, 30)
                yield process
            finally:
                await asyncio.to_thread(process.stop)

        async with worker() as first:
            execution_id = await client.start(AGENT, "Tell me.")
            assert (await told(client, execution_id, 24)).usage == USED
            first.kill()
        async with worker():
            state = await client.result(execution_id)
    assert state.final_response == TEXT
    unheard = HEARTBEAT_TOKENS_MAX  # what can have come after its last heartbeat
    assert state.usage == Usage(input_tokens=107, output_tokens=23 + unheard, estimated_tokens=unheard)
