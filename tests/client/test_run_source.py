"""What can be told of a run while it is under way, when it has ended, and when the server has forgotten it."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import re
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any
from uuid import uuid4

import pytest

from holdfast.client import Holdfast, Settings
from holdfast.client.events_from_state import reconstructed
from holdfast.client.run_source import RunSource
from holdfast.client.watch_events import AttemptFailed, RateLimitAwaited, TextDelta, ToolProgressed, WorkerAwaited
from holdfast.connection import workflow_reader
from holdfast.core.agent.state import AgentState
from holdfast.core.base import bounds
from holdfast.core.base.errors import ExecutionNotFound, InvalidInput, ServerUnavailable
from holdfast.core.wire import paging
from holdfast.core.wire.contracts import PageRequest
from holdfast.core.wire.execution_events import AnyObserved
from holdfast.testing.script import call, say
from holdfast.view.html import to_html
from holdfast.view.markdown import to_markdown
from holdfast.view.report import Report, RunExport, read_report, to_json_dict
from tests.client.told import QUESTION, SCOUT, let_through, offer, play, waiting_run
from tests.serving import Serve, served

pytestmark = pytest.mark.temporal

PAGE = Path(__file__).parents[2] / "docs" / "reading-runs.md"


async def events_of(run: RunSource) -> list[AnyObserved]:
    async with aclosing(run.events()) as events:
        return [each async for each in events]


async def watched(client: Holdfast, execution_id: str) -> list[AnyObserved]:
    events = client.watch(execution_id, subagents=False)
    return [
        each
        async for each in events
        if not isinstance(each, TextDelta | AttemptFailed | ToolProgressed | WorkerAwaited | RateLimitAwaited)
    ]


async def elsewhere(settings: Settings) -> Holdfast:
    """Return what knows the same records, and none of the runs: as a server that has forgotten them."""
    return await Holdfast.connect(replace(settings, namespace="temporal-system"))


async def with_subagents(holdfast: Holdfast, execution_id: str) -> Report:
    """Return the report once the server lists the run's subagent."""
    until = monotonic() + 20
    while True:
        told = await read_report(holdfast, execution_id)
        if (told.run.children and told.run.children[0].step_count) or monotonic() > until:
            return told
        await asyncio.sleep(0.1)


@pytest.mark.slow
async def test_a_run_is_told_under_way_ended_without_a_worker_and_from_its_record(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(settings, tmp_path / "ledger.jsonl", play, offer()) as serving:
        holdfast = serving.client
        execution_id = await waiting_run(serving)
        under_way = await read_report(holdfast, execution_id)
        run = await RunSource.find(holdfast, execution_id.upper())
        facts = await run.debug()
        await let_through(serving, execution_id)
        state = await serving.client.result(execution_id)
        as_watched = await watched(serving.client, execution_id)
        ended = await with_subagents(holdfast, execution_id)
    check_under_way(under_way)
    assert (facts["status"], facts["steps"]) == ("in_progress", 2)
    check_ended(ended, state, as_watched)
    monkeypatch.setattr(workflow_reader, "LOST_TIMEOUT", workflow_reader.ASK_TIMEOUT / 20)
    monkeypatch.setattr(workflow_reader, "ASK_TIMEOUT", workflow_reader.ASK_TIMEOUT / 10)
    without_worker = await read_report(await Holdfast.connect(settings), execution_id)
    assert (without_worker.source, without_worker.reconstructed) == ("server", True)
    assert [*without_worker.events] == [*reconstructed(state, "lead")]
    assert without_worker.state == state
    holdfast = await elsewhere(settings)
    by_record = await read_report(holdfast, execution_id)
    check_by_record(by_record, state, ended)
    found = await RunSource.find(holdfast, execution_id)
    assert (found.agent, found.source, await found.whole(), await found.debug()) == (
        "lead",
        "record",
        state,
        state.debug(),
    )
    if folder := os.environ.get("HOLDFAST_REPORTS"):  # to be looked at
        for name, told in {"under-way": under_way, "ended": ended, "record": by_record}.items():
            (Path(folder) / f"{name}.html").write_text(to_html(told), encoding="utf-8")
            (Path(folder) / f"{name}.md").write_text(to_markdown(told), encoding="utf-8")
            (Path(folder) / f"{name}.json").write_text(json.dumps(to_json_dict(told)), encoding="utf-8")


def check_under_way(told: Report) -> None:
    assert (told.run.status, told.run.completed_at, told.source) == ("in_progress", None, "server")
    assert told.run.task == QUESTION
    assert [(each.number, each.kind) for each in told.run.steps] == [
        (1, "error"),
        (2, "tool_execution"),
        (3, "under_way"),
    ]
    assert [(each.tool, each.outcome) for each in told.run.steps[2].calls] == [("publish", "approval")]
    assert told.events[-1].kind == "ApprovalRequested"


def check_ended(told: Report, state: AgentState, as_watched: list[AnyObserved]) -> None:
    assert (told.state, [*told.events], told.reconstructed) == (state, as_watched, False)
    assert [call.outcome for call in told.run.steps[0].calls] == ["succeeded", "failed", "succeeded"]
    [scout] = told.run.children
    assert (scout.agent, scout.status, scout.step_count, scout.usage.total_tokens) == ("scout", "completed", 2, 240)
    assert scout.started_at is not None
    document = to_json_dict(told)
    assert RunExport.model_validate_json(json.dumps(document)).model_dump(mode="json") == document
    assert AgentState.from_dict(document["state"]) == state
    assert document["messages"][0]["content"] == QUESTION


def check_by_record(told: Report, state: AgentState, before: Report) -> None:
    assert (told.source, told.reconstructed, told.state) == ("record", True, state)
    assert dataclasses.replace(told.run, children=()) == dataclasses.replace(before.run, children=())
    [scout] = told.run.children
    assert (scout.execution_id, scout.agent, scout.usage) == (
        before.run.children[0].execution_id,
        "scout",
        before.run.children[0].usage,
    )


@pytest.mark.slow
async def test_a_run_that_went_on_in_new_ones_is_told_in_order(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TEMPORAL_ADDRESS", settings.address or "")
    monkeypatch.setenv("HOLDFAST_STORAGE", settings.storage or "")
    [keep] = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    page: dict[str, Any] = {}
    exec(keep, page)  # noqa: S102  # our own page's example
    chosen = replace(settings, continue_events=1)
    turns = [*(call("read_file", path=f"{n}.csv") for n in range(3)), say("done")]
    async with served(chosen, tmp_path / "ledger.jsonl", turns, offer()) as serving:
        execution_id = await serving.client.start(SCOUT, "go")
        state = await serving.client.result(execution_id)
        run = await RunSource.find(serving.client, execution_id)
        told = await events_of(run)
        expected = await watched(serving.client, execution_id)
        assert len(await run.runs()) > 1, "it did not go on in a new run"
        await page["keep"](execution_id)
    assert told == expected
    assert [(each.step_number, each.kind) for each in told if each.kind == "AgentStepCompleted"] == [
        (n, "AgentStepCompleted") for n in (1, 2, 3, 4)
    ]
    assert state.step_count == 4
    check_files(tmp_path)


def check_files(folder: Path) -> None:
    assert (folder / "run.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    told = RunExport.model_validate_json((folder / "run.json").read_text(encoding="utf-8"))
    assert told.summary.step_count == 4


async def test_a_long_run_is_read_in_pages(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "PAGE_BYTES_MAX", 12_000)
    monkeypatch.setattr(paging.page, "__defaults__", (12_000,))
    turns = [*(call("read_file", path=f"{n}.csv") for n in range(5)), say("done")]
    async with serve(turns, offer=offer()) as serving:
        execution_id = await serving.client.start(SCOUT, "go")
        state = await serving.client.result(execution_id)
        run = await RunSource.find(serving.client, execution_id)
        steps = [page async for page in run.pages(PageRequest(messages_total=0))]
        messages = [page async for page in run.pages(PageRequest(steps_total=0))]
    assert len(steps) > 2
    assert len(messages) > 2
    assert [each for page in steps for each in page.steps] == [*state.step_executions]
    assert [each for page in messages for each in page.messages] == [*state.messages]
    assert not any(page.messages for page in steps)
    assert not any(page.steps for page in messages)


async def test_what_is_no_run_is_told_as_such(settings: Settings) -> None:
    holdfast = await Holdfast.connect(settings)
    with pytest.raises(InvalidInput, match="is not an id of a run"):
        await RunSource.find(holdfast, "no run")
    with pytest.raises(ExecutionNotFound, match="no run"):
        await RunSource.find(holdfast, str(uuid4()))


async def test_a_run_that_the_server_has_ended_before_its_first_task_has_not_begun(settings: Settings) -> None:
    holdfast = await Holdfast.connect(settings)
    execution_id = await holdfast.start(SCOUT, "go")
    await holdfast.temporal.get_workflow_handle(execution_id).terminate()
    run = await RunSource.find(holdfast, execution_id)
    assert (run.begun, run.ended_as) == (False, "terminated")


async def test_without_a_worker_a_run_that_the_server_has_ended_is_told_to_have_ended(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve(play, offer=offer()) as serving:
        execution_id = await waiting_run(serving)
        await serving.client.temporal.get_workflow_handle(execution_id).terminate()
        run = await RunSource.find(serving.client, execution_id)
        assert (run.begun, run.ended_as) == (True, "terminated")
    monkeypatch.setattr(workflow_reader, "LOST_TIMEOUT", workflow_reader.ASK_TIMEOUT / 20)
    monkeypatch.setattr(workflow_reader, "ASK_TIMEOUT", workflow_reader.ASK_TIMEOUT / 10)
    with pytest.raises(ServerUnavailable, match=r"the run has ended \(terminated\): no worker answers for"):
        await RunSource.find(serving.client, execution_id)


async def test_a_run_under_way_without_a_worker_is_not_guessed_at(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflow_reader, "LOST_TIMEOUT", workflow_reader.ASK_TIMEOUT / 20)
    monkeypatch.setattr(workflow_reader, "ASK_TIMEOUT", workflow_reader.ASK_TIMEOUT / 10)
    holdfast = await Holdfast.connect(settings)
    execution_id = await holdfast.start(SCOUT, "go")
    with pytest.raises(ServerUnavailable, match="no worker answers"):
        await read_report(holdfast, execution_id)
