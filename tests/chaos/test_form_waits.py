"""A form of an MCP server outlives every worker: the server's process, which asked, dies with the first of them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from temporalio.api.testservice.v1 import UnlockTimeSkippingRequest
from temporalio.testing import WorkflowEnvironment

from holdfast.client import Holdfast, Settings
from holdfast.connection.worker_settings import WorkerSettings
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.toolset import Toolset
from holdfast.core.conversation.steps import OpenCall
from holdfast.models import OpenAIChat, ProviderSettings
from holdfast.storage.data_converter import converter
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import call, say
from tests.chaos.processes import worker
from tests.mcp.places import asking, command, noted
from tests.workflows.waiting import state_when
from workers import make_worker

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(300)]

AGENT = AgentDefinition(name="clerk", mcp=("theatre",))
BOOKS = [call("theatre_book", show="Hamlet"), say("done")]
DAY = 24 * 3_600.0


async def asked(client: Holdfast, execution_id: str, message: str) -> OpenCall:
    def there(state: AgentState) -> bool:
        requests = (each.input_request for each in state.input_calls)
        return message in [request.message for request in requests if request is not None]

    [waiting] = (await state_when(client, execution_id, there)).input_calls
    return waiting


def effects(ledger: Path) -> list[str]:
    lines = [line.rsplit(" ", 1) for line in noted(ledger)]
    assert len({key for _, key in lines}) == 1, "every request had the same idempotency key"
    return [line for line, _ in lines]


@pytest.mark.slow
async def test_the_worker_is_killed_while_a_form_waits_and_another_goes_on_with_the_answers(
    settings: Settings, tmp_path: Path
) -> None:
    ledger, file = tmp_path / "mcp", tmp_path / "mcp.yaml"
    program = json.dumps(command("asking_server.py", "stdio"))
    file.write_text(f"servers: {{theatre: {{command: {program}, env: {{LEDGER: {ledger}}}}}}}")
    client = await Holdfast.connect(settings)
    environment = {"HOLDFAST_MCP": str(file)}
    async with FakeOpenAI(BOOKS, ledger=tmp_path / "models") as endpoint:
        async with worker(settings, endpoint, tmp_path / "tools", environment) as first:
            execution_id = await client.start(AGENT, "book")
            waiting = await asked(client, execution_id, "How many seats for Hamlet?")
            first.kill()
            assert _is_gone(first.pid)
        async with worker(settings, endpoint, tmp_path / "tools", environment) as second:
            assert await client.answer_question(execution_id, waiting.call.id, {"seats": 4}, by="ann")
            await asked(client, execution_id, "Book 4?")
            second.kill()
        async with worker(settings, endpoint, tmp_path / "tools", environment):
            assert await client.answer_question(execution_id, waiting.call.id, {"sure": True}, by="ann")
            state = await client.result(execution_id)
    assert state.status is ExecutionStatus.COMPLETED
    assert state.steps[0].tool_executions[0].result == "booked 4 for Hamlet"
    assert effects(ledger) == ["asks seats", "asks sure", "booked 4"]


def _is_gone(pid: int | None) -> bool:
    try:
        os.kill(pid or 0, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z"


@pytest.mark.slow
async def test_a_day_later_another_worker_serves_and_the_call_goes_on(settings: Settings, tmp_path: Path) -> None:
    """The time of the server is skipped; the worker is another one, with another process of the MCP server."""
    program = Path(sys.executable).with_name("temporal-test-server")
    assert program.exists(), "it comes with the dependency group `engines`"
    ledger = tmp_path / "mcp"
    servers = {"theatre": asking(ledger, answer_seconds=2 * DAY)}
    async with (
        FakeOpenAI(BOOKS) as endpoint,
        await WorkflowEnvironment.start_time_skipping(
            test_server_existing_path=str(program), data_converter=converter(settings.storage_place, None)
        ) as environment,
    ):
        client = Holdfast(environment.client, settings)
        model = OpenAIChat(ProviderSettings(base_url=endpoint.base_url, api_key="test-key", model="scripted"))
        try:
            uncached = WorkerSettings(
                cached_runs=0
            )  # the test server asks a worker that is gone for what it had cached
            async with make_worker(environment.client, settings, Toolset(), model, None, uncached, mcp=servers):
                execution_id = await client.start(AGENT, "book")
                waiting = await asked(client, execution_id, "How many seats for Hamlet?")
            await environment.sleep(DAY)
            async with make_worker(environment.client, settings, Toolset(), model, mcp=servers):
                assert await client.answer_question(execution_id, waiting.call.id, {"seats": 2})
                await asked(client, execution_id, "Book 2?")
                assert await client.answer_question(execution_id, waiting.call.id, {"sure": True})
                state = await client.result(execution_id)
        finally:
            await model.close()
    assert state.steps[0].tool_executions[0].result == "booked 2 for Hamlet"
    assert effects(ledger) == ["asks seats", "asks sure", "booked 2"]
    answered = state.steps[0].tool_executions[0].inputs[0]
    assert waiting.pending_input is not None
    assert (answered.at - waiting.pending_input.asked_at).total_seconds() >= DAY


async def test_a_form_that_nobody_answers_for_a_week_expires(settings: Settings, tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("temporal-test-server")
    ledger = tmp_path / "mcp"
    async with (
        FakeOpenAI(BOOKS) as endpoint,
        await WorkflowEnvironment.start_time_skipping(
            test_server_existing_path=str(program), data_converter=converter(settings.storage_place, None)
        ) as environment,
    ):
        model = OpenAIChat(ProviderSettings(base_url=endpoint.base_url, api_key="test-key", model="scripted"))
        try:
            async with make_worker(environment.client, settings, Toolset(), model, mcp={"theatre": asking(ledger)}):
                await environment.client.test_service.unlock_time_skipping(UnlockTimeSkippingRequest())
                result = await Holdfast(environment.client, settings).run(AGENT, "book")
        finally:
            await model.close()
    [execution] = result.state.steps[0].tool_executions
    assert execution.error is not None
    assert execution.error.type == "InputExpired"
    assert execution.duration.total_seconds() >= 7 * DAY
    assert effects(ledger) == ["asks seats"]
