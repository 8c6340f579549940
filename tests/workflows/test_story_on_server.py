"""The story as a real server keeps it: a line beside every event that can have one, current details at any moment."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.sdk.v1 import WorkflowMetadata

from holdfast import AgentDefinition, ExecutionBudget, __version__, tool
from holdfast.client import Holdfast, Settings
from holdfast.core.agent.execution_state import call_name, named_id
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.bounds import SUMMARY_LINE_CHARS_MAX
from holdfast.core.base.errors import ExecutionFailed
from holdfast.core.conversation.markdown_escaping import GAP
from holdfast.core.conversation.verdicts import Verdict
from holdfast.core.wire.run_metadata import STARTED, memo_of
from holdfast.core.wire.workflow_ids import session_workflow_id
from holdfast.testing.script import Reply, call, say
from tests.rendering import assert_tame
from tests.serving import Serve, served
from tests.workflows.chats import LOOK_SECONDS
from tests.workflows.histories import history_of, markers, replayed
from tests.workflows.rich import HELPER, RICH, Stage
from tests.workflows.waiting import waiting_calls

pytestmark = pytest.mark.temporal

ANSWERED_IN_SECONDS = 90
PATIENT = AgentDefinition.model_validate(
    {
        **RICH.model_dump(),
        "description": "Does all there is to do.",
        "approvals": [{"tools": ["pay"], "expires_seconds": 300}],
        "llm": {"model": "scripted"},
    }
)
FRIEND = AgentDefinition(name="friend", tools=(), budget=ExecutionBudget(max_steps=9))


async def current_details(client: Holdfast, workflow_id: str) -> str:
    """What the Web UI shows under "Current details"."""
    handle = client.temporal.get_workflow_handle(workflow_id)
    told: WorkflowMetadata = await handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
    assert_tame(told.current_details)
    return told.current_details.replace(GAP, "")


async def details_with(client: Holdfast, workflow_id: str, what: str) -> str:
    """The same, once `what` stands in it."""
    async with asyncio.timeout(ANSWERED_IN_SECONDS):
        while what not in (told := await current_details(client, workflow_id)):  # noqa: ASYNC110  # nobody is called back
            await asyncio.sleep(LOOK_SECONDS)
    return told


def line(event: HistoryEvent) -> str:
    """The summary that an event carries, which must be there and fit beside it."""
    told: str = json.loads(event.user_metadata.summary.data)
    assert 0 < len(told) <= SUMMARY_LINE_CHARS_MAX
    return told


def activities(events: Iterable[HistoryEvent]) -> dict[str, str]:
    """The line of each activity by its id, or by its type where the server gave the id."""
    scheduled = [each for each in events if each.HasField("activity_task_scheduled_event_attributes")]
    told: dict[str, str] = {}
    for each in scheduled:
        attributes = each.activity_task_scheduled_event_attributes
        name = attributes.activity_id if "-" in attributes.activity_id else attributes.activity_type.name
        told[name] = line(each)
    return told


def timers(events: Iterable[HistoryEvent]) -> list[str]:
    """The lines of the timers, with T for every moment."""
    told = (line(each) for each in events if each.HasField("timer_started_event_attributes"))
    return [re.sub(r"(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d", "T", each) for each in told]


def children(events: Iterable[HistoryEvent]) -> list[str]:
    return [line(each) for each in events if each.HasField("start_child_workflow_execution_initiated_event_attributes")]


@pytest.mark.slow
async def test_a_rich_run_tells_its_story_at_every_moment_and_beside_every_event(serve: Serve) -> None:
    stage = Stage()
    async with serve(stage.play, offer=stage.offer) as at_work:
        client, budget = at_work.client, ExecutionBudget(max_seconds=600, max_steps=20)
        id_ = await client.start(PATIENT, "do it | all", subagents=[HELPER], budget=budget)
        await stage.tool.until_held()
        at_tool = await current_details(client, id_)
        await client.message(id_, "meanwhile")
        with_message = await details_with(client, id_, "Messages for the next model call")
        stage.tool.release()
        ids = await waiting_calls(client, id_, 4)
        at_approval = await details_with(client, id_, ids[-1])
        for each in ids:
            await client.decide(id_, each, Verdict(decision="approve", by="ann"))
        state = await client.result(id_)
        at_end = await current_details(client, id_)
        events = (await history_of(client, id_)).events
        run = await client.temporal.get_workflow_handle(id_).describe()
        child_id = named_id(id_, call_name(3, 0))
        child = await client.temporal.get_workflow_handle(child_id).describe()
        shown = [await run.static_summary(), await child.static_summary()]
        about, memos = await run.static_details() or "", [await run.memo(), await child.memo()]
        await replayed(client, id_)
    assert state.final_response == '{"right": true}'

    assert at_tool.startswith("**in_progress** · agent `rich` · model `scripted` · since ")
    assert "**Under way in step 1**\n\n- `nap()`: running since " in at_tool
    assert "| steps | 0 | 20 | ░░░░░░░░░░ 0 % |" in at_tool
    assert "- `meanwhile`" in with_message
    assert f"`holdfast approve {id_} CALL` lets it run" in at_approval
    assert re.search(r"^\| `pay\(3\)` \| `\S+` \| `[0-9a-f]{12}` \| [\d: -]+Z \|$", at_approval, re.MULTILINE)
    assert re.search(r"^\| 1 \| `nap\(\)` ✓ \| [\d.]+ m?s \| 100 / 20 \| \? \|$", at_approval, re.MULTILINE)
    assert at_end.startswith("**completed** · agent `rich`")
    assert '**Answer**\n\n```text\n{"right": true}\n```' in at_end
    assert f"- `helper` `look`: succeeded, `{child_id}`" in at_end
    assert "; ".join(f"`pay({n})` ✓ (approved by `ann`)" for n in range(4)) in at_end

    assert activities(events) == {
        "step-1-model": "step 1 · scripted",
        "step-1-tool-0": "nap()",
        "step-2-model": "step 2 · scripted · after 1 call · 120 tok so far",
        **{f"step-2-tool-{n}": f"pay({n})" for n in range(4)},
        "step-3-model": "step 3 · scripted · after 4 calls · 240 tok so far",
        "step-4-summary": "step 4 · summary of older messages",
        "step-4-model": "step 4 · scripted · after 1 call · 2.5k tok so far",
        "step-5-model": "step 5 · scripted · 2.6k tok so far",
        "record_execution": "record: completed, 5 steps",
    }
    payments = [f"approval of pay({n}) until TZ" for n in range(4)]
    of_hooks = ["the model call begins beside the input guard", "what hooks did is recorded"]
    assert sorted(timers(events)) == sorted([*payments, "budget: 10 min until TZ", *of_hooks])
    assert children(events) == ["helper: look"]
    hooks = {line(each) for each in markers(events)}
    assert {"tools and hooks that rich gets here", "step 1 · before_tool nap: at_before_tool"} <= hooks

    assert shown == ["rich: do it | all", "helper: look"]
    assert_tame(about)
    assert about.startswith(
        "**rich**: `Does all there is to do.`\n\nModel: `scripted`\n\nAsked:\n\n```text\ndo it | all\n```"
    )
    assert memos == [memo_of(PATIENT, __version__), memo_of(HELPER, __version__)]


@pytest.mark.slow
async def test_a_stopped_run_and_a_failed_one_say_why(serve: Serve) -> None:
    async def refused(client: Holdfast) -> str:
        id_ = await client.start(FRIEND, "fail")
        with pytest.raises(ExecutionFailed):
            await client.result(id_)
        return id_

    def turn(request: dict[str, object]) -> Reply:
        fails = "fail" in json.dumps(request["messages"])
        return Reply(status=401, text="no such key") if fails else say("too late", delay_seconds=600)

    async with serve(turn) as at_work:
        client = at_work.client
        stopped_id = await client.start(FRIEND, "wait", budget=ExecutionBudget(max_seconds=60))
        await at_work.endpoint.until(lambda requests: len(requests) == 1)
        under_way = await current_details(client, stopped_id)
        await client.stop(stopped_id, "enough <b>of</b> it", source="ann")
        await client.result(stopped_id)
        stopped = await current_details(client, stopped_id)
        events = (await history_of(client, stopped_id)).events
        failed = await current_details(client, await refused(client))
    assert "**Under way**\n\n- the model call of step 1, since " in under_way
    assert stopped.startswith("**stopped (user_requested)** · agent `friend` · ")
    assert "Why: `enough <b>of</b> it`" in stopped
    assert re.search(r"- user_requested by `ann` at [\d: -]+Z: `enough", stopped)
    assert timers(events) == ["budget: 1 min until TZ", "grace: what was cancelled tells its end (model call)"]
    assert activities(events)["record_execution"] == "record: stopped (user_requested), 0 steps"
    assert failed.startswith("**failed (error)** · agent `friend` · ")
    assert "**Errors**\n\n- " in failed
    assert "test-key" not in failed


@pytest.mark.slow
async def test_a_session_tells_its_story(serve: Serve) -> None:
    def answer(_: dict[str, object]) -> Reply:
        return say("hello to you")

    async with serve(answer) as at_work:
        client = at_work.client
        agent = client.agent(definition=FRIEND, idle_seconds=600, tenant="acme")
        first = await agent.ask("hello [there](http://evil/)")
        await agent.ask("and again")
        idle = await details_with(client, session_workflow_id(agent.agent_id), "**idle**")
        run = await client.temporal.get_workflow_handle(session_workflow_id(agent.agent_id)).describe()
        shown, memo, about = await run.static_summary(), await run.memo(), await run.static_details() or ""
        await agent.close()
        await client.temporal.get_workflow_handle(session_workflow_id(agent.agent_id)).result()
        closed = await current_details(client, session_workflow_id(agent.agent_id))
        events = (await history_of(client, session_workflow_id(agent.agent_id))).events
        child = await client.temporal.get_workflow_handle(first.execution_id).describe()
        child_memo = await child.memo()
    assert idle.startswith("**idle** · agent `friend` · 2 executions · 240 tokens · ")
    assert f"| `{first.execution_id}` | 1 | ended |" in idle
    assert "| leaves the server | after 10 min without a message |" in idle
    assert "| limit of an execution: steps | 9 |" in idle
    assert closed.startswith("**closed** · ")
    assert (shown, memo, child_memo) == ("session of friend", memo_of(FRIEND, __version__), memo)
    assert about.startswith("**friend**\n\n")
    assert children(events) == ["execution 1: hello [there]·(http: //evil/)", "execution 2: and again"]
    assert set(timers(events)) == {"idle: leaves the server after 10 min without a message"}
    assert set(activities(events).values()) == {
        f"what is kept of agent {agent.agent_id}",
        "session kept: 2 executions",
    }


@pytest.mark.slow
async def test_a_run_that_went_on_as_a_new_one_tells_the_whole_story(settings: Settings, tmp_path: Path) -> None:
    @tool
    def look(number: int) -> str:
        """Look."""
        return f"seen {number}"

    script = [*(call("look", number=number) for number in range(3)), say("arrived")]
    often = dataclasses.replace(settings, continue_events=1)
    async with served(often, tmp_path / "ledger.jsonl", script, Toolset(tools=(look,))) as at_work:
        id_ = await at_work.client.start(
            AgentDefinition(name="walker", tools="all"), "go", budget=ExecutionBudget(max_seconds=600)
        )
        state = await at_work.client.result(id_)
        told = await current_details(at_work.client, id_)
        last = await at_work.client.temporal.get_workflow_handle(id_).describe()
        memo, events = await last.memo(), (await history_of(at_work.client, id_)).events
    assert last.run_id != last.raw_description.workflow_execution_info.first_run_id
    began = {STARTED: state.running.started_at.isoformat()}
    assert memo == {**memo_of(AgentDefinition(name="walker", tools="all"), __version__), **began}
    assert told.startswith("**completed** · agent `walker` · ")
    assert all(f"| {number + 1} | `look({number})` ✓ |" in told for number in range(3))
    assert timers(events) == ["budget: 10 min until TZ"]
    assert {line(each) for each in markers(events)} == {"when a worker took this run up"}
