"""Runs that an operator has paused (`temporal workflow pause`), on a server that allows it: open, and not to be asked.

The server (1.32) refuses queries and updates of such a workflow, by a status that the SDK does not know.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from temporalio.api.workflowservice.v1 import PauseWorkflowExecutionRequest, UnpauseWorkflowExecutionRequest
from temporalio.client import WorkflowHistoryEventAsyncIterator
from typer.testing import CliRunner

from activities.attempt_admission import UNHEARD
from activities.transcript_cache import TranscriptCache
from holdfast import AgentDefinition, tool
from holdfast.cli.main import app
from holdfast.client import Holdfast, Settings
from holdfast.client.id_lookup import find
from holdfast.client.run_source import RunSource
from holdfast.client.watch_events import Watched
from holdfast.connection.executions import response
from holdfast.connection.workflow_reader import PAUSED_SECONDS
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.errors import ServerUnavailable
from holdfast.core.conversation.verdicts import Verdict
from holdfast.core.wire.execution_events import AgentExecutionCompleted
from holdfast.core.wire.workflow_ids import session_workflow_id
from holdfast.testing.holds import Hold
from holdfast.testing.script import Reply, call, say
from holdfast.view.run_tree import tree
from holdfast.view.server_overview import overview
from tests.plain_server import running
from tests.serving import Served, served

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(120)]

CLERK = AgentDefinition(name="clerk")
SECONDS_MAX = 60
PATIENCE_SECONDS = 20
"""Less than the waits of five attempts for a paused run; much more than an attempt takes on a busy machine."""
WAITED_SECONDS = 3
UNPAUSE = "temporal workflow unpause --workflow-id {}"


@pytest.fixture(scope="module")
def pausing(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """The address of a server whose workflows can be paused."""
    with running(tmp_path_factory.mktemp("pausing"), "frontend.WorkflowPauseEnabled=true") as address:
        yield address


@pytest.fixture
def at_pausing(pausing: str, tmp_path: Path) -> Settings:
    return Settings(address=pausing, task_queue=f"test-{uuid4()}", storage=(tmp_path / "objects").as_uri())


async def pause(client: Holdfast, id_: str) -> None:
    temporal = client.temporal
    request = PauseWorkflowExecutionRequest(namespace=temporal.namespace, workflow_id=id_, request_id=str(uuid4()))
    await temporal.workflow_service.pause_workflow_execution(request)


async def unpause(client: Holdfast, id_: str) -> None:
    temporal = client.temporal
    request = UnpauseWorkflowExecutionRequest(namespace=temporal.namespace, workflow_id=id_, request_id=str(uuid4()))
    await temporal.workflow_service.unpause_workflow_execution(request)


async def last_failure(client: Holdfast, id_: str, *, attempt: int) -> str:
    """Why the last attempt at a run's only call failed, once that one or a later one is waited for or under way."""
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            found = await response(client.temporal, id_, rpc_timeout=timedelta(seconds=10))
            if any(each.attempt >= attempt for each in found.pending_activities):
                return found.pending_activities[0].last_failure.message
            await asyncio.sleep(0.05)


@tool
def look() -> str:
    """Look."""
    return "seen"


@asynccontextmanager
async def paused_run(
    settings: Settings, folder: Path, *, fails: bool = False
) -> AsyncGenerator[tuple[Served, str, Hold]]:
    """A worker with a run that was paused during its model call, which the hold lets go on, and once `fails`."""
    hold = Hold()
    reply = Reply(text="done", failures=(Reply(status=503, hold=hold),)) if fails else Reply(text="done", hold=hold)
    async with served(settings, folder / "ledger.jsonl", [reply], Toolset()) as at_work:
        id_ = await at_work.client.start(CLERK, "go")
        await hold.until_held()
        await pause(at_work.client, id_)
        yield at_work, id_, hold


async def test_a_paused_run_is_found_and_listed_as_paused(at_pausing: Settings, tmp_path: Path) -> None:
    async with paused_run(at_pausing, tmp_path) as (at_work, id_, _):
        client = at_work.client
        found, shown = await RunSource.find(client, id_), await tree(client, id_)
        async with asyncio.timeout(30):
            while [each.status for each in await client.runs() if each.execution_id == id_] != ["paused"]:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert (found.is_paused, found.begun, shown.status) == (True, False, "paused")
        assert await find(client.temporal, id_[:13], "run") == id_
        assert id_ in [each.id for each in (await overview(client)).rows]


async def test_who_asks_a_paused_run_is_told_how_it_goes_on(at_pausing: Settings, tmp_path: Path) -> None:
    async with paused_run(at_pausing, tmp_path) as (at_work, id_, _):
        client = at_work.client
        for asked in (client.state(id_), client.debug(id_), client.decide(id_, "call", Verdict(decision="approve"))):
            with pytest.raises(ServerUnavailable, match=UNPAUSE.format(id_)):
                await asked


async def test_a_watch_of_a_paused_run_tells_its_events_once_it_goes_on(at_pausing: Settings, tmp_path: Path) -> None:
    async with paused_run(at_pausing, tmp_path) as (at_work, id_, hold), aclosing(at_work.client.watch(id_)) as events:
        first = asyncio.create_task(anext(events))
        hold.release()
        await asyncio.sleep(0.5)
        assert not first.done()
        await unpause(at_work.client, id_)
        assert (await first).execution_id == id_
        assert isinstance([each async for each in events][-1], AgentExecutionCompleted)


@pytest.mark.parametrize("asked", ["result", "follow", "watch"])
async def test_who_waits_for_a_paused_run_leaves_the_server_alone(
    at_pausing: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    """The server answers a long poll for it at once."""
    fetch, fetched = WorkflowHistoryEventAsyncIterator.fetch_next_page, list[int]()

    async def counted(pages: WorkflowHistoryEventAsyncIterator) -> None:
        await fetch(pages)
        fetched.append(len(pages.current_page or ()))

    monkeypatch.setattr(WorkflowHistoryEventAsyncIterator, "fetch_next_page", counted)
    async with paused_run(at_pausing, tmp_path) as (at_work, id_, hold):
        client = at_work.client
        began, waiting = time.monotonic(), asyncio.create_task(_to_its_end(client, id_, asked))
        await asyncio.sleep(WAITED_SECONDS)
        assert len(fetched) <= (time.monotonic() - began) / PAUSED_SECONDS + 2
        hold.release()
        await unpause(client, id_)
        async with asyncio.timeout(SECONDS_MAX):
            await waiting


async def _to_its_end(client: Holdfast, id_: str, asked: str) -> None:
    if asked == "result":
        await client.result(id_)
    else:
        assert [each async for each in getattr(client, asked)(id_)]


async def test_the_commands_say_that_a_run_is_paused(
    at_pausing: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", at_pausing.address or "")
    monkeypatch.setenv("HOLDFAST_TASK_QUEUE", at_pausing.task_queue)
    monkeypatch.setenv("HOLDFAST_STORAGE", at_pausing.storage or "")
    monkeypatch.setenv("COLUMNS", "300")
    async with paused_run(at_pausing, tmp_path) as (at_work, id_, hold):
        for options in ((), ("--events",), ("--steps",), ("--debug",)):
            shown = await asyncio.to_thread(CliRunner().invoke, app, ["show", id_, *options])
            assert (shown.exit_code, UNPAUSE.format(id_) in shown.stdout) == (0, True), shown.output
        as_json = await asyncio.to_thread(CliRunner().invoke, app, ["show", id_, "--json"])
        assert json.loads(as_json.stdout)["status"] == "paused"
        begun, watch = threading.Event(), Holdfast.watch

        def watched_from(client: Holdfast, execution_id: str) -> AsyncGenerator[Watched, None]:
            begun.set()
            return watch(client, execution_id)

        monkeypatch.setattr(Holdfast, "watch", watched_from)
        watching = asyncio.create_task(asyncio.to_thread(CliRunner().invoke, app, ["watch", id_]))
        assert await asyncio.to_thread(begun.wait, SECONDS_MAX), "what it says of the pause comes before"
        hold.release()
        await unpause(at_work.client, id_)
        watched = await watching
    assert (watched.exit_code, UNPAUSE.format(id_) in watched.stderr) == (0, True), watched.output


async def test_who_talks_to_a_paused_session_is_told_how_it_goes_on(at_pausing: Settings, tmp_path: Path) -> None:
    async with served(at_pausing, tmp_path / "ledger.jsonl", [say("one"), say("two")], Toolset()) as at_work:
        agent = at_work.client.agent(definition=CLERK)
        await agent.ask("go")
        session_id = session_workflow_id(agent.agent_id)
        await pause(at_work.client, session_id)
        for asked in (agent.send("more"), agent.view()):
            with pytest.raises(ServerUnavailable, match=UNPAUSE.format(session_id)):
                await asked
        watch = agent.watch()
        first = asyncio.create_task(anext(watch))
        await asyncio.sleep(0.5)
        assert not first.done(), first
        await unpause(at_work.client, session_id)
        await agent.ask("more")
        await first
        await watch.aclose()


async def test_a_model_call_that_fails_while_its_run_is_paused_is_made_again(
    at_pausing: Settings, tmp_path: Path
) -> None:
    async with paused_run(at_pausing, tmp_path, fails=True) as (at_work, id_, hold):
        hold.release()
        await at_work.endpoint.until(lambda requests: len(requests) > 1)
        await unpause(at_work.client, id_)
        assert (await at_work.client.result(id_)).final_response == "done"


@pytest.mark.slow
async def test_a_paused_run_whose_conversation_no_worker_has_waits_and_its_patience_stands_still(
    at_pausing: Settings, tmp_path: Path
) -> None:
    hold, nothing_cached = Hold(), TranscriptCache(bytes_max=0)
    script = [call("look"), Reply(text="done", failures=(Reply(status=503, hold=hold),))]
    patient = AgentDefinition(name="clerk", tools=("look",), model_patience_seconds=PATIENCE_SECONDS)
    async with served(at_pausing, tmp_path / "ledger.jsonl", script, Toolset(tools=(look,)), nothing_cached) as at_work:
        id_ = await at_work.client.start(patient, "go")
        await hold.until_held()
        await pause(at_work.client, id_)
        hold.release()
        assert UNPAUSE.format(id_) in await last_failure(at_work.client, id_, attempt=7)
        await unpause(at_work.client, id_)
        assert (await at_work.client.result(id_)).final_response == "done"


async def test_a_stop_of_a_paused_run_keeps_its_tool_from_being_begun_again(
    at_pausing: Settings, tmp_path: Path
) -> None:
    hold, begun = Hold(), list[str]()

    @tool(retry_on=(ConnectionError,))
    async def fetch() -> str:
        """Fetch."""
        begun.append("fetch")
        await hold.stand()
        raise ConnectionError("away")

    fetching, offer = AgentDefinition(name="clerk", tools=("fetch",)), Toolset(tools=(fetch,))
    async with served(at_pausing, tmp_path / "ledger.jsonl", [call("fetch"), say("done")], offer) as at_work:
        client = at_work.client
        id_ = await client.start(fetching, "go")
        await hold.until_held()
        await pause(client, id_)
        assert await client.stop(id_, "enough")
        hold.release()
        assert await last_failure(client, id_, attempt=3) == UNHEARD
        await unpause(client, id_)
        assert (await client.result(id_)).stop_reason == "user_requested"
    assert begun == ["fetch"]


async def test_a_stop_of_a_paused_run_keeps_its_model_from_being_asked_again(
    at_pausing: Settings, tmp_path: Path
) -> None:
    async with paused_run(at_pausing, tmp_path, fails=True) as (at_work, id_, hold):
        client = at_work.client
        assert await client.stop(id_, "enough")
        hold.release()
        assert UNPAUSE.format(id_) in await last_failure(client, id_, attempt=3)
        await unpause(client, id_)
        assert (await client.result(id_)).stop_reason == "user_requested"
        assert len(at_work.endpoint.requests) == 1
