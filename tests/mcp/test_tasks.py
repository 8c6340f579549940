"""Tasks at real MCP servers: how each end of one is told, when it is asked after, and when it is cancelled."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.core.base.frozen import replace
from holdfast.core.conversation.attachments import Attachment
from holdfast.core.conversation.input_requests import InputResponse
from holdfast.core.tools.mcp_servers import McpServer
from holdfast.core.tools.tool_context import NO_REPORTER
from holdfast.mcp import tasks
from holdfast.mcp.answers import McpAnswer
from holdfast.mcp.connection import McpConnection
from holdfast.mcp.errors import McpCallFailed, McpOutcomeUnknown, McpUnavailable
from holdfast.mcp.pool import McpPool
from holdfast.mcp.task_keeper import NO_KEEPER
from holdfast.mcp.task_messages import CreatedTask, TaskState
from holdfast.mcp.tasks import TaskAtServer, task_of
from tests.mcp.places import noted, oven, oven_over_http, until_noted

pytestmark = pytest.mark.timeout(120)


class Keeper:
    """Keeps the task for nobody, or for somebody who goes on with it."""

    def __init__(self, *, final: bool) -> None:
        self.kept = ""
        self.final = final

    async def keep(self, task_id: str) -> None:
        self.kept = task_id

    async def is_final(self) -> bool:
        return self.final


class Reports:
    """A reporter that remembers the texts."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def progress(self, text: str, fraction: float | None) -> None:
        assert fraction is None
        self.texts.append(text)

    def log(self, message: str, fields: object) -> None:
        raise AssertionError((message, fields))

    def set_metadata(self, changes: object) -> None:
        raise AssertionError(changes)

    def attach(self, content: object, name: object, media_type: object) -> Attachment:
        raise AssertionError((content, name, media_type))


@asynccontextmanager
async def pool_of(server: McpServer) -> AsyncGenerator[McpPool]:
    pool = McpPool({server.name: server}, os.environ, sys.stderr)
    try:
        yield pool
    finally:
        await pool.close()


async def called(
    pool: McpPool, server: McpServer, tool: str, keeper: Keeper | None = None, reports: Reports | None = None
) -> McpAnswer:
    async def on_task(created: CreatedTask) -> McpAnswer:
        return await task_of(pool, server, created.task_id).begun(created, keeper or NO_KEEPER, reports or NO_REPORTER)

    async with pool.connection(server) as connection:
        return await connection.call(tool, {}, on_task=on_task)


async def resumed(
    pool: McpPool, server: McpServer, keeper: Keeper, responses: Mapping[str, InputResponse]
) -> McpAnswer:
    return await task_of(pool, server, keeper.kept).resumed(0.0, keeper, NO_REPORTER, responses)


def gate(folder: Path) -> None:
    """Let the tasks end."""
    (folder / "gate").touch()


def counted(folder: Path, line: str) -> int:
    return noted(folder / "ledger").count(line)


async def test_a_task_is_polled_to_its_end_over_stdio_and_its_status_is_progress(tmp_path: Path) -> None:
    server, reports = oven(tmp_path), Reports()
    async with pool_of(server) as pool:
        calling = asyncio.create_task(called(pool, server, "bake", reports=reports))
        await until_noted(tmp_path / "ledger", "tasks/get")
        gate(tmp_path)
        answer = await calling
    assert (answer.text, answer.value) == ("baked", {"result": "baked"})
    assert reports.texts == ["in the oven"]
    assert counted(tmp_path, "tools/call bake") == 1


async def test_over_http_a_call_of_the_same_server_that_needs_no_task_is_answered_at_once(tmp_path: Path) -> None:
    gate(tmp_path)
    async with oven_over_http(tmp_path) as (server, _), pool_of(server) as pool:
        assert (await called(pool, server, "bake")).text == "baked"
        assert (await called(pool, server, "quick")).text == "at once"


@pytest.mark.parametrize(
    ("tool", "error", "text"),
    [
        ("fail", McpCallFailed, "failed: the oven broke"),
        ("drop", McpCallFailed, "was cancelled by the server, perhaps with part of it done: out of gas"),
        ("lose", McpOutcomeUnknown, "does not know it any more"),
        ("garble", McpOutcomeUnknown, "its result is no answer of the protocol"),
        ("sample", McpCallFailed, "asks for something that cannot be given, and was cancelled"),
    ],
)
async def test_how_a_task_ended_is_said(tool: str, error: type[Exception], text: str, tmp_path: Path) -> None:
    gate(tmp_path)
    server = oven(tmp_path)
    async with pool_of(server) as pool:
        with pytest.raises(error, match=text):
            await called(pool, server, tool)
    assert counted(tmp_path, "tasks/cancel") == (tool == "sample")


async def test_an_error_of_the_tool_itself_is_its_answer(tmp_path: Path) -> None:
    gate(tmp_path)
    server = oven(tmp_path)
    async with pool_of(server) as pool:
        answer = await called(pool, server, "refuse")
    assert (answer.text, answer.is_error) == ("no stock", True)


async def test_neither_an_error_of_the_tool_nor_a_question_repeats_a_credential(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate(tmp_path)
    monkeypatch.setenv("KEPT", "canary-4711")
    server = oven(tmp_path)
    server = replace(server, env={**server.env, "TOKEN": "${KEPT}"})
    async with pool_of(server) as pool:
        answer = await called(pool, server, "refuse")
        asked = (await called(pool, server, "order", Keeper(final=False))).questions
    assert (answer.text, answer.is_error) == ("no stock ***", True)
    assert asked is not None
    assert [each.message for each in asked.requests] == ["How many loaves? ***"]


async def test_a_task_returns_its_question_and_goes_on_with_the_answer_that_it_still_lacks(tmp_path: Path) -> None:
    gate(tmp_path)
    server, keeper = oven(tmp_path), Keeper(final=False)
    loaves, sure = InputResponse(action="accept", content={"loaves": 3}), InputResponse(action="decline")
    async with pool_of(server) as pool:
        first = (await called(pool, server, "order", keeper)).questions
        second = (await resumed(pool, server, keeper, {"loaves": loaves})).questions
        again = (await resumed(pool, server, keeper, {"loaves": loaves})).questions
        answer = await resumed(pool, server, keeper, {"sure": sure})
        assert (await resumed(pool, server, keeper, {"sure": sure})).text == answer.text == "baked"
    assert first is not None
    assert second is not None
    assert second == again
    assert (first.task, second.task) == (keeper.kept, keeper.kept)
    assert [each.message for each in (*first.requests, *second.requests)] == ["How many loaves?", "Bake 3?"]
    updates = [each for each in noted(tmp_path / "ledger") if each.startswith("tasks/update")]
    assert updates == [
        'tasks/update loaves {"action": "accept", "content": {"loaves": 3}}',
        'tasks/update sure {"action": "decline"}',
    ]


async def test_a_cancelled_call_cancels_its_task_only_if_nobody_goes_on_with_it(tmp_path: Path) -> None:
    server, mine, anothers = oven(tmp_path), Keeper(final=True), Keeper(final=False)
    async with pool_of(server) as pool:
        for keeper in (anothers, mine):
            calling = asyncio.create_task(called(pool, server, "bake", keeper))
            while not keeper.kept:  # noqa: ASYNC110  # a test's few lines
                await asyncio.sleep(0.02)
            calling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await calling
        assert counted(tmp_path, "tasks/cancel") == 1
        with pytest.raises(McpCallFailed, match="was cancelled by the server"):
            await task_of(pool, server, mine.kept).resumed(1.0, mine, NO_REPORTER)
        gate(tmp_path)
        assert (await task_of(pool, server, anothers.kept).resumed(1.0, mine, NO_REPORTER)).text == "baked"


async def test_a_server_that_cannot_be_reached_is_asked_again_to_cancel_a_task(tmp_path: Path) -> None:
    server, keeper, lent = oven(tmp_path), Keeper(final=False), 0
    async with pool_of(server) as pool:
        calling = asyncio.create_task(called(pool, server, "bake", keeper))
        await until_noted(tmp_path / "ledger", "tasks/get")
        calling.cancel()
        await asyncio.wait([calling])

        @asynccontextmanager
        async def lend() -> AsyncGenerator[McpConnection]:
            nonlocal lent
            lent += 1
            if lent < 3:
                raise McpUnavailable("it is being started anew")
            async with pool.connection(server) as connection:
                yield connection

        await TaskAtServer(server, keeper.kept, lend).cancel()
    assert lent == 3
    assert counted(tmp_path, "tasks/cancel") == 1


async def test_a_task_that_takes_too_long_is_cancelled_and_its_outcome_unknown(tmp_path: Path) -> None:
    server = oven(tmp_path, task_seconds_max=1)
    async with pool_of(server) as pool:
        with pytest.raises(McpOutcomeUnknown, match="took longer than 1 s and was cancelled"):
            await called(pool, server, "bake")
    assert counted(tmp_path, "tasks/cancel") == 1


async def test_a_task_that_is_taken_up_too_late_is_asked_once_more(tmp_path: Path) -> None:
    server, keeper = oven(tmp_path, task_seconds_max=60), Keeper(final=False)
    async with pool_of(server) as pool:
        calling = asyncio.create_task(called(pool, server, "bake", keeper))
        await until_noted(tmp_path / "ledger", "tasks/get")
        gate(tmp_path)
        await calling
        assert (await task_of(pool, server, keeper.kept).resumed(3600.0, keeper, NO_REPORTER)).text == "baked"


async def test_a_server_that_is_started_anew_is_asked_on(tmp_path: Path) -> None:
    async with oven_over_http(tmp_path) as (server, process), pool_of(server) as pool:
        calling = asyncio.create_task(called(pool, server, "bake"))
        await until_noted(tmp_path / "ledger", "tasks/get")
        process.kill()
        await process.wait()
        [task] = [each for each in (tmp_path / "tasks").iterdir() if not each.suffix]
        done = {"status": "completed", "result": {"content": [{"type": "text", "text": "baked meanwhile"}]}}
        task.write_text(json.dumps({**json.loads(task.read_text()), **done}))
        assert server.url is not None
        async with oven_over_http(tmp_path, port=int(server.url.split(":")[2].split("/")[0])):
            assert (await calling).text == "baked meanwhile"
    assert counted(tmp_path, "tools/call bake") == 1


async def test_a_server_that_stays_silent_leaves_the_outcome_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "SILENT_SECONDS_MAX", 1.0)
    async with oven_over_http(tmp_path) as (server, process), pool_of(server) as pool:
        calling = asyncio.create_task(called(pool, server, "bake"))
        await until_noted(tmp_path / "ledger", "tasks/get")
        process.kill()
        with pytest.raises(McpOutcomeUnknown, match="does not answer any more"):
            await calling


@pytest.mark.parametrize(("named", "seconds"), [(None, 1.0), (0, 0.5), (2500, 2.5), (86_400_000, 60.0)])
def test_the_interval_that_a_server_names_is_kept_within_bounds(named: float | None, seconds: float) -> None:
    state = TaskState(task_id="t", status="working", poll_interval_ms=named)
    assert state.poll_seconds == seconds


def test_a_task_is_looked_at_before_it_expires() -> None:
    state = TaskState(task_id="t", status="working", poll_interval_ms=50_000, ttl_ms=30_000)
    assert tasks.next_poll(state, 100.0, 110.0) == (19.0, 130.0)
    assert tasks.next_poll(state, 100.0, 140.0) == (50.0, 130.0), "it works on, so it is asked on"
