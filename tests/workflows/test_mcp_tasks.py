"""Calls that MCP servers make tasks of, in runs on the real server: one call, whatever happens to workers; stopped."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import yaml

from holdfast import AgentDefinition, ExecutionBudget
from holdfast.client import Holdfast, Settings, ToolProgressed
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.state import AgentState
from holdfast.core.base.errors import DecisionRefused
from holdfast.core.base.frozen import replace
from holdfast.core.conversation.steps import OpenCall
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.tools.mcp_servers import McpServer
from holdfast.core.tools.tool_traits import ATTEMPTS_MAX
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import call, say
from tests.chaos.processes import frozen, guardian_of
from tests.chaos.processes import worker as worker_process
from tests.mcp.places import noted, oven, oven_over_http, until_noted
from tests.serving import Serve
from tests.workflows.histories import replayed
from tests.workflows.waiting import state_when

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(240)]

SURE = 'tasks/update sure {"action": "accept", "content": {"sure": true}}'
AGENT = AgentDefinition(name="baker", mcp=("oven",))


def gate(folder: Path) -> None:
    """Let the tasks end."""
    (folder / "gate").touch()


def counted(folder: Path, line: str) -> int:
    return noted(folder / "ledger").count(line)


def effects(folder: Path) -> int:
    return sum(line.startswith("effect") for line in noted(folder / "ledger"))


async def until_polled(folder: Path, times: int = 1) -> None:
    while counted(folder, "tasks/get") < times:  # noqa: ASYNC110  # a file calls nobody
        await asyncio.sleep(0.02)


def answer(state: AgentState) -> str | None:
    """What the first call gave the model: its result, or the type of its error."""
    [ended] = state.steps[0].tool_executions
    return ended.error.type if ended.error else ended.result


@asynccontextmanager
async def killable(
    settings: Settings, server: McpServer, folder: Path, tool: str = "oven_bake"
) -> AsyncGenerator[tuple[Settings, FakeOpenAI]]:
    """What worker processes need to serve an agent with that server."""
    file = folder / "mcp.yaml"
    entry = server.model_dump(mode="json", exclude_defaults=True, exclude={"name"})
    file.write_text(yaml.safe_dump({"servers": {server.name: entry}}))
    async with FakeOpenAI([call(tool), say("done")]) as endpoint:
        yield dataclasses.replace(settings, mcp_file=file), endpoint


@pytest.mark.slow
async def test_a_task_is_polled_within_one_activity_and_its_status_is_seen(serve: Serve, tmp_path: Path) -> None:
    async with serve([call("oven_bake"), say("done")], mcp={"oven": oven(tmp_path)}) as served:
        execution_id = await served.client.start(AGENT, "bake")
        await until_polled(tmp_path, 3)
        gate(tmp_path)
        seen = [each async for each in served.client.watch(execution_id)]
        state = await served.client.result(execution_id)
        history = await served.client.temporal.get_workflow_handle(execution_id).fetch_history()
        await replayed(served.client, execution_id)
    scheduled = (each.activity_task_scheduled_event_attributes.activity_type.name for each in history.events)
    assert [each for each in scheduled if each == "call_mcp_tool"] == ["call_mcp_tool"]
    assert answer(state) == "baked"
    assert "in the oven" in {each.text for each in seen if isinstance(each, ToolProgressed)}
    assert (counted(tmp_path, "tools/call bake"), effects(tmp_path)) == (1, 1)


@pytest.mark.parametrize(
    ("tool", "kind", "text"),
    [
        ("refuse", "McpCallFailed", "no stock"),
        ("fail", "McpCallFailed", "failed: the oven broke"),
        ("lose", "OutcomeUnknown", "the server does not know it any more"),
    ],
)
async def test_the_model_is_told_how_a_task_ended(
    tool: str, kind: str, text: str, serve: Serve, tmp_path: Path
) -> None:
    gate(tmp_path)
    async with serve([call(f"oven_{tool}"), say("sorry")], mcp={"oven": oven(tmp_path)}) as served:
        state = (await served.client.run(AGENT, "bake")).state
    [ended] = state.steps[0].tool_executions
    assert ended.error is not None
    assert ended.error.type == kind
    assert text in ended.error.message
    assert counted(tmp_path, f"tools/call {tool}") == 1


@pytest.mark.parametrize("http", [True, False])
async def test_a_stop_cancels_the_task_at_the_server(serve: Serve, tmp_path: Path, *, http: bool) -> None:
    async with _place(tmp_path, http=http) as server, serve([call("oven_bake"), say("never")], mcp=server) as served:
        execution_id = await served.client.start(AGENT, "bake")
        await until_polled(tmp_path)
        await served.client.stop(execution_id, "enough")
        await until_noted(tmp_path / "ledger", "tasks/cancel")
        state = await served.client.result(execution_id)
        await replayed(served.client, execution_id)
    assert state.status is ExecutionStatus.STOPPED
    assert effects(tmp_path) == 0


@pytest.mark.slow
async def test_a_stop_before_there_is_a_task_cancels_the_call(serve: Serve, tmp_path: Path) -> None:
    async with serve([call("oven_stuck"), say("never")], mcp={"oven": oven(tmp_path)}) as served:
        execution_id = await served.client.start(AGENT, "bake")
        await until_noted(tmp_path / "ledger", "tools/call stuck")
        await served.client.stop(execution_id, "enough")
        await until_noted(tmp_path / "ledger", "call cancelled")
        state = await served.client.result(execution_id)
    assert state.status is ExecutionStatus.STOPPED
    assert counted(tmp_path, "tasks/cancel") == 0


async def test_a_run_that_is_terminated_cancels_its_task(serve: Serve, tmp_path: Path) -> None:
    async with serve([call("oven_bake"), say("never")], mcp={"oven": oven(tmp_path)}) as served:
        execution_id = await served.client.start(AGENT, "bake")
        await until_polled(tmp_path)
        await served.client.temporal.get_workflow_handle(execution_id).terminate("enough")
        await until_noted(tmp_path / "ledger", "tasks/cancel")
    assert effects(tmp_path) == 0


@pytest.mark.slow
async def test_a_lost_task_of_an_idempotent_tool_is_made_anew_where_its_server_is_trusted(
    serve: Serve, tmp_path: Path
) -> None:
    gate(tmp_path)
    server = {"oven": oven(tmp_path, trusted=True)}
    async with serve([call("oven_lose"), say("sorry")], mcp=server) as served:
        state = (await served.client.run(AGENT, "bake")).state
    assert answer(state) == "McpOutcomeUnknown"
    assert counted(tmp_path, "tools/call lose") == ATTEMPTS_MAX


@pytest.mark.slow
async def test_the_time_limit_of_the_run_cancels_the_task(serve: Serve, tmp_path: Path) -> None:
    agent = replace(AGENT, budget=ExecutionBudget(max_seconds=15))
    async with serve([call("oven_bake"), say("never")], mcp={"oven": oven(tmp_path)}) as served:
        execution_id = await served.client.start(agent, "bake")
        await until_noted(tmp_path / "ledger", "tasks/cancel")
        state = await served.client.result(execution_id)
    assert state.stop_reason is StopReason.TIME_LIMIT


@pytest.mark.slow
async def test_a_task_may_take_longer_than_a_call_but_not_than_its_own_limit(serve: Serve, tmp_path: Path) -> None:
    server = oven(tmp_path, timeout_seconds=5, task_seconds_max=6)
    async with serve([call("oven_bake"), say("sorry")], mcp={"oven": server}) as served:
        state = (await served.client.run(AGENT, "bake")).state
    [ended] = state.steps[0].tool_executions
    assert ended.error is not None
    assert ended.error.type == "OutcomeUnknown"
    assert "took longer than 6 s and was cancelled" in ended.error.message
    assert counted(tmp_path, "tasks/cancel") == 1


@pytest.mark.slow
async def test_workers_that_are_killed_hand_the_task_on_and_the_server_sees_one_call(
    settings: Settings, tmp_path: Path
) -> None:
    async with oven_over_http(tmp_path) as (server, _), killable(settings, server, tmp_path) as (mine, endpoint):
        client = await Holdfast.connect(mine)
        execution_id = await client.start(AGENT, "bake")
        for _ in range(3):
            polls = counted(tmp_path, "tasks/get")
            async with worker_process(mine, endpoint, tmp_path / "model", modules=()) as process:
                await until_polled(tmp_path, polls + 2)
                process.kill()
        async with worker_process(mine, endpoint, tmp_path / "model", modules=()):
            gate(tmp_path)
            state = await client.result(execution_id)
        await replayed(client, execution_id)
    assert answer(state) == "baked"
    assert (counted(tmp_path, "tools/call bake"), effects(tmp_path)) == (1, 1)
    assert counted(tmp_path, "tasks/cancel") == 0


@pytest.mark.slow
async def test_tasks_that_are_taken_up_need_no_free_slot_so_that_none_is_called_anew(
    settings: Settings, tmp_path: Path
) -> None:
    async with oven_over_http(tmp_path) as (server, _), killable(settings, server, tmp_path) as (mine, endpoint):
        client = await Holdfast.connect(mine)
        ids = [await client.start(AGENT, "bake") for _ in range(3)]
        async with worker_process(mine, endpoint, tmp_path / "model", modules=()) as process:
            while counted(tmp_path, "tools/call bake") < len(ids):  # noqa: ASYNC110  # a file calls nobody
                await asyncio.sleep(0.02)
            await until_polled(tmp_path, counted(tmp_path, "tasks/get") + 3 * len(ids))
            process.kill()
        polls = counted(tmp_path, "tasks/get")
        narrow = {"HOLDFAST_TOOL_SLOTS": "1"}
        async with worker_process(mine, endpoint, tmp_path / "model", narrow, ()):
            await until_polled(tmp_path, polls + 3 * len(ids))
            gate(tmp_path)
            answers = [answer(await client.result(each)) for each in ids]
    assert answers == ["baked"] * len(ids)
    assert (counted(tmp_path, "tools/call bake"), effects(tmp_path)) == (len(ids), len(ids))


@pytest.mark.slow
async def test_a_worker_that_wakes_after_another_took_the_task_up_does_not_cancel_it(
    settings: Settings, tmp_path: Path
) -> None:
    async with oven_over_http(tmp_path) as (server, _), killable(settings, server, tmp_path) as (mine, endpoint):
        client = await Holdfast.connect(mine)
        execution_id = await client.start(AGENT, "bake")
        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(worker_process(mine, endpoint, tmp_path / "model", modules=()))
            await until_polled(tmp_path)
            with frozen(first.pid):
                polls = counted(tmp_path, "tasks/get")
                second = worker_process(mine, endpoint, tmp_path / "model", modules=())
                await stack.enter_async_context(second)
                await until_polled(tmp_path, polls + 2)
            # both ask after the task until the first hears that nobody waits for it any more
            await until_polled(tmp_path, counted(tmp_path, "tasks/get") + 20)
            gate(tmp_path)
            state = await client.result(execution_id)
    assert answer(state) == "baked"
    assert counted(tmp_path, "tasks/cancel") == 0
    assert (counted(tmp_path, "tools/call bake"), effects(tmp_path)) == (1, 1)


@pytest.mark.slow
async def test_a_lost_machine_leaves_the_task_with_the_server(settings: Settings, tmp_path: Path) -> None:
    async with oven_over_http(tmp_path) as (server, _), killable(settings, server, tmp_path) as (mine, endpoint):
        client = await Holdfast.connect(mine)
        execution_id = await client.start(AGENT, "bake")
        async with worker_process(mine, endpoint, tmp_path / "model", modules=()) as process:
            await until_polled(tmp_path)
            os.kill(guardian_of(process), signal.SIGKILL)
            process.kill()
        async with worker_process(mine, endpoint, tmp_path / "model", modules=()):
            await until_polled(tmp_path, counted(tmp_path, "tasks/get") + 1)
            gate(tmp_path)
            state = await client.result(execution_id)
    assert answer(state) == "baked"
    assert (counted(tmp_path, "tools/call bake"), effects(tmp_path)) == (1, 1)


@pytest.mark.slow
async def test_a_worker_that_is_restarted_hands_the_task_on_and_a_stop_reaches_it_there(
    settings: Settings, tmp_path: Path
) -> None:
    async with oven_over_http(tmp_path) as (server, _), killable(settings, server, tmp_path) as (mine, endpoint):
        client = await Holdfast.connect(mine)
        execution_id = await client.start(AGENT, "bake")
        environment = {"HOLDFAST_GRACE_SECONDS": "0.1"}
        async with worker_process(mine, endpoint, tmp_path / "model", environment, ()) as process:
            await until_polled(tmp_path)
            os.kill(process.pid, signal.SIGTERM)
            assert await asyncio.to_thread(process.ended_within, 60) == 0
        assert counted(tmp_path, "tasks/cancel") == 0
        polls = counted(tmp_path, "tasks/get")
        async with worker_process(mine, endpoint, tmp_path / "model", modules=()):
            await until_polled(tmp_path, polls + 1)
            await client.stop(execution_id, "enough")
            await until_noted(tmp_path / "ledger", "tasks/cancel")
            state = await client.result(execution_id)
    assert state.status is ExecutionStatus.STOPPED
    assert (counted(tmp_path, "tools/call bake"), effects(tmp_path)) == (1, 0)


@pytest.mark.slow
async def test_a_worker_that_dies_before_there_is_a_task_leaves_an_unknown_outcome_and_no_second_call(
    settings: Settings, tmp_path: Path
) -> None:
    async with (
        oven_over_http(tmp_path) as (server, _),
        killable(settings, server, tmp_path, "oven_stuck") as (mine, endpoint),
    ):
        client = await Holdfast.connect(mine)
        execution_id = await client.start(AGENT, "bake")
        async with worker_process(mine, endpoint, tmp_path / "model", modules=()) as process:
            await until_noted(tmp_path / "ledger", "tools/call stuck")
            process.kill()
        async with worker_process(mine, endpoint, tmp_path / "model", modules=()):
            state = await client.result(execution_id)
    assert answer(state) == "OutcomeUnknown"
    assert counted(tmp_path, "tools/call stuck") == 1


async def question(client: Holdfast, execution_id: str, message: str) -> OpenCall:
    """The call whose task asks `message`, once it waits."""

    def there(state: AgentState) -> bool:
        requests = [each.input_request for each in state.input_calls]
        return any(each is not None and each.message == message for each in requests)

    [waiting] = (await state_when(client, execution_id, there)).input_calls
    return waiting


@pytest.mark.slow
async def test_a_task_that_asks_waits_for_a_person_without_a_poll_and_gets_each_answer(
    serve: Serve, tmp_path: Path
) -> None:
    gate(tmp_path)
    async with serve([call("oven_order"), say("done")], mcp={"oven": oven(tmp_path)}) as served:
        client = served.client
        execution_id = await client.start(AGENT, "bake")
        waiting = await question(client, execution_id, "How many loaves?")
        polls = counted(tmp_path, "tasks/get")
        with pytest.raises(DecisionRefused, match="0 is less than 1"):
            await client.answer_question(execution_id, waiting.call.id, {"loaves": 0})
        assert counted(tmp_path, "tasks/get") == polls
        assert await client.answer_question(execution_id, waiting.call.id, {"loaves": 3}, by="ann")
        await question(client, execution_id, "Bake 3?")
        assert await client.answer_question(execution_id, waiting.call.id, {"sure": True}, by="ben")
        state = await client.result(execution_id)
        history = await client.temporal.get_workflow_handle(execution_id).fetch_history()
        await replayed(client, execution_id)
    scheduled = [each.activity_task_scheduled_event_attributes for each in history.events]
    assert [each.activity_id for each in scheduled if each.activity_type.name == "call_mcp_tool"] == [
        "step-1-tool-0",
        "step-1-tool-0-input-1",
        "step-1-tool-0-input-2",
    ]
    assert answer(state) == "baked"
    [execution] = state.steps[0].tool_executions
    assert [(each.action, each.by) for each in execution.inputs] == [("accept", "ann"), ("accept", "ben")]
    assert (counted(tmp_path, "tools/call order"), effects(tmp_path)) == (1, 1)


@pytest.mark.slow
async def test_workers_killed_before_and_after_a_tasks_question_is_answered_leave_one_effect(
    settings: Settings, tmp_path: Path
) -> None:
    async with (
        oven_over_http(tmp_path) as (server, _),
        killable(settings, server, tmp_path, "oven_order") as (mine, endpoint),
    ):
        client = await Holdfast.connect(mine)
        execution_id = await client.start(AGENT, "bake")
        async with worker_process(mine, endpoint, tmp_path / "model", modules=()) as process:
            waiting = await question(client, execution_id, "How many loaves?")
            process.kill()
        async with worker_process(mine, endpoint, tmp_path / "model", modules=()) as process:
            assert await client.answer_question(execution_id, waiting.call.id, {"loaves": 3})
            await question(client, execution_id, "Bake 3?")
            assert await client.answer_question(execution_id, waiting.call.id, {"sure": True})
            await until_noted(tmp_path / "ledger", SURE)
            await until_polled(tmp_path, counted(tmp_path, "tasks/get") + 1)
            process.kill()
        assert effects(tmp_path) == 0
        async with worker_process(mine, endpoint, tmp_path / "model", modules=()):
            await until_polled(tmp_path, counted(tmp_path, "tasks/get") + 1)
            gate(tmp_path)
            state = await client.result(execution_id)
        await replayed(client, execution_id)
    assert answer(state) == "baked"
    assert (counted(tmp_path, "tools/call order"), effects(tmp_path)) == (1, 1)
    assert counted(tmp_path, SURE) == 1
    assert counted(tmp_path, "tasks/cancel") == 0


@asynccontextmanager
async def _place(folder: Path, *, http: bool) -> AsyncGenerator[dict[str, McpServer]]:
    if not http:
        yield {"oven": oven(folder)}
        return
    async with oven_over_http(folder) as (server, _):
        yield {"oven": server}
