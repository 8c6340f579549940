"""Traces on a real server: one per execution, over client, workflow, activities and subagents, and nothing twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import baggage, context
from temporalio.client import WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.worker import Replayer

from holdfast import AgentDefinition, ExecutionBudget, tool
from holdfast.client import Holdfast, Settings
from holdfast.connection.worker_settings import WorkerSettings
from holdfast.core.agent.definition import LLM
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.usage import Prices
from holdfast.core.wire.workflow_ids import session_workflow_id
from holdfast.telemetry.settings import Telemetry
from holdfast.telemetry.traces import tracing
from holdfast.testing.script import Call, Reply, Script, call, calls, say, turn_number
from tests.replay import replaying
from tests.replay.archive import files, read
from tests.serving import Served, served
from tests.telemetry.spans import Told, everything, facts
from tests.workflows.chats import Chat
from tests.workflows.histories import history_of, replayed
from workflows.tracing import WorkflowsTraced
from workflows.workflow_runner import WORKFLOWS, AgentWorkflowRunner

pytestmark = pytest.mark.temporal

PRIVATE = "words nobody may read"
LAZY = WorkerSettings(cached_runs=0)
"""Every workflow task replays its run from the beginning."""

MODEL = LLM(model="scripted", prices=Prices(input_usd=1, output_usd=2))
HELPER = AgentDefinition(name="helper", tools="all", system_prompt="helper", llm=MODEL)
BOSS = AgentDefinition(name="boss", tools="all", system_prompt="boss", subagents=("helper",), llm=MODEL)


@tool
async def add(a: int, b: int) -> str:
    """Add."""
    return f"{a + b} {PRIVATE}"


@tool(local=True, idempotent=True)
async def near(word: str) -> str:
    """Answer from within the workflow task."""
    return word


OFFER = Toolset(tools=(add, near))


def by_agent(**scripts: list[Reply]) -> Script:
    """Each agent plays its own script; it is known by its prompt."""

    def turn(request: dict[str, Any]) -> Reply:
        script, number = scripts[request["messages"][0]["content"]], turn_number(request)
        return script[number] if number < len(script) else say("the script has ended")

    return turn


def traced(settings: Settings, *, content: bool = False, **others: Any) -> Settings:  # noqa: ANN401  # fields of any type
    return replace(settings, telemetry=Telemetry(traces=True, content=content), **others)


BUSY = Reply(status=500, text="busy")
SCRIPT = by_agent(
    boss=[
        calls(Call("add", {"a": 1, "b": 2}, id="call_of_the_model")),
        calls(Call("spawn", {"agent": "helper", "task": "help"})),
        say(f"done, {PRIVATE}", failures=(BUSY,)),
    ],
    helper=[say("helped")],
)


@pytest.mark.slow
async def test_one_trace_spans_client_workflow_calls_and_subagents(
    settings: Settings, tmp_path: Path, told: Told
) -> None:
    chosen = traced(settings, continue_events=1)  # and every step is a run of its own
    async with served(chosen, tmp_path / "ledger", SCRIPT, OFFER) as here:
        id_ = await here.client.start(BOSS, f"go, {PRIVATE}", subagents=[HELPER])
        state = await here.client.result(id_)
    assert len(told.traces) == 1
    assert told.names == Counter(
        {
            "start boss": 1,
            "invoke_agent boss": 1,
            "chat scripted": 5,  # one of them again
            "execute_tool add": 1,
            "invoke_agent helper": 1,
        }
    )
    assert told.tree() == {
        (None, "start boss"),
        ("start boss", "invoke_agent boss"),
        ("invoke_agent boss", "chat scripted"),
        ("invoke_agent boss", "execute_tool add"),
        ("invoke_agent boss", "invoke_agent helper"),
        ("invoke_agent helper", "chat scripted"),
    }
    boss = told.one("invoke_agent boss")
    assert facts(boss) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "boss",
        "gen_ai.agent.id": state.agent_id,
        "gen_ai.request.model": "scripted",
        "gen_ai.usage.input_tokens": state.usage.input_tokens,
        "gen_ai.usage.output_tokens": state.usage.output_tokens,
        "holdfast.execution.id": id_,
        "holdfast.status": "completed",
        "holdfast.stop_reason": "completed",
        "holdfast.steps": 3,
        "holdfast.cost_usd": state.cost,
    }
    assert state.execution is not None
    assert state.execution.completed_at is not None
    assert boss.start_time == int(state.execution.started_at.timestamp() * 1_000_000) * 1_000
    assert boss.end_time == int(state.execution.completed_at.timestamp() * 1_000_000) * 1_000
    chats = [facts(each) for each in told.all("chat scripted")]
    failed = [each for each in chats if "error.type" in each]
    assert [(each["error.type"], each["holdfast.step"], each["holdfast.attempt"]) for each in failed] == [
        ("ProviderUnavailable", 3, 1)
    ]
    assert sum(each.get("gen_ai.usage.output_tokens", 0) for each in chats) == state.usage.output_tokens
    assert all(each["server.address"] == "127.0.0.1" and each["gen_ai.operation.name"] == "chat" for each in chats)
    assert facts(told.one("execute_tool add"))["gen_ai.tool.call.id"] == "call_of_the_model"
    assert PRIVATE not in everything(told)
    assert "test-key" not in everything(told)


@pytest.mark.slow
async def test_another_worker_tells_nothing_again_and_both_ways_of_running_replay(
    settings: Settings, tmp_path: Path, told: Told
) -> None:
    """The run begins without traces anywhere, goes on with a worker that tells, and without a cache."""
    begun, free = asyncio.Event(), asyncio.Event()

    @tool(idempotent=True)
    async def hold() -> str:
        """Wait to be let go."""
        begun.set()
        await free.wait()
        return "held"

    script = [call("add", a=1, b=2), call("hold"), say("done")]
    offer = Toolset(tools=(add, hold))
    agent = AgentDefinition(name="moved", tools="all", llm=MODEL)
    quick = replace(LAZY, grace_seconds=0.1)
    async with served(traced(settings), tmp_path / "one", script, offer, serving=quick) as first:
        id_ = await first.client.start(agent, "go")
        await begun.wait()
    assert told.names["chat scripted"] == 2
    free.set()
    async with served(traced(settings), tmp_path / "two", script, offer, serving=quick) as second:
        await second.client.result(id_)
        with_traces = await history_of(second.client, id_)
        await replayed(second.client, id_)  # without traces
    assert told.names == Counter(
        {
            "start moved": 1,
            "chat scripted": 3,
            "execute_tool add": 1,
            "execute_tool hold": 2,  # the attempt that the first worker's end has cut off, and the next one
            "invoke_agent moved": 1,
        }
    )
    assert len(told.traces) == 1
    headers = [
        event.activity_task_scheduled_event_attributes.header.fields
        for event in with_traces.events
        if event.HasField("activity_task_scheduled_event_attributes")
    ]
    assert headers
    assert all(set(fields) == {"_tracer-data"} for fields in headers)
    async with served(settings, tmp_path / "plain", script, offer, serving=quick) as plain:
        plain_id = await plain.client.start(agent, "go")
        await plain.client.result(plain_id)
        without = await history_of(plain.client, plain_id)
    before = len(told.spans)
    for history in (without, with_traces):
        await replayed_with_traces(plain, history)
    assert len(told.spans) == before


def tracing_replayer(data_converter: DataConverter) -> Replayer:
    telling = tracing(Telemetry(traces=True))
    assert telling is not None
    return Replayer(
        workflows=WORKFLOWS,
        workflow_runner=AgentWorkflowRunner(),
        data_converter=data_converter,
        runtime=replaying.quiet(),
        plugins=telling.plugins,
        interceptors=[WorkflowsTraced(telling)],
    )


async def replayed_with_traces(here: Served, history: WorkflowHistory) -> None:
    await tracing_replayer(here.client.temporal.data_converter).replay_workflow(history)


@pytest.mark.slow
async def test_recorded_runs_go_the_same_way_with_traces_and_tell_nothing(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some of them: all 237 took 12 s, and were the same."""
    runs = [run for each in files() for run in read(each)][::12]
    without = await replaying.deviations(runs)
    monkeypatch.setattr(replaying, "replayer", tracing_replayer)
    assert await replaying.deviations(runs) == without
    assert len(runs) > len(without)
    assert told.spans == ()


@pytest.mark.slow
async def test_each_message_of_a_session_has_a_trace_of_its_own(settings: Settings, tmp_path: Path, told: Told) -> None:
    async with served(traced(settings), tmp_path / "ledger", [say("one"), say("two")], OFFER) as here:
        chat = Chat(here.client, AgentDefinition(name="clerk", tools="all", llm=MODEL))
        for text in ("first", "second"):
            await chat.ask(text)
        for run in (
            session_workflow_id(chat.agent_id),
            *(str(facts(each)["holdfast.execution.id"]) for each in told.all("invoke_agent clerk")),
        ):
            await replayed_with_traces(here, await history_of(here.client, run))
    assert told.names == Counter({"send": 2, "invoke_agent clerk": 2, "chat scripted": 2})
    assert told.tree() == {(None, "send"), ("send", "invoke_agent clerk"), ("invoke_agent clerk", "chat scripted")}
    assert len(told.traces) == 2
    for name in ("send", "invoke_agent clerk"):
        assert {facts(each)["gen_ai.conversation.id"] for each in told.all(name)} == {chat.agent_id}


async def test_what_was_said_is_told_when_asked_for_and_a_failure_and_baggage_are_not_more(
    settings: Settings, tmp_path: Path, told: Told
) -> None:
    script = by_agent(good=[call("add", a=1, b=2), say(f"done, {PRIVATE}")], bad=[Reply(status=401, text=PRIVATE)])
    async with served(traced(settings, content=True), tmp_path / "ledger", script, OFFER) as here:
        good = await here.client.start(
            AgentDefinition(name="good", tools="all", system_prompt="good", llm=MODEL), "the question"
        )
        await here.client.result(good)
        token = context.attach(baggage.set_baggage("password", "not-for-temporal"))
        bad = await here.client.start(AgentDefinition(name="bad", tools="all", system_prompt="bad", llm=MODEL), "go")
        context.detach(token)
        history = await ended(here, bad)
    assert b"not-for-temporal" not in b"".join(event.SerializeToString() for event in history.events)
    first, second, refused = (facts(each) for each in told.all("chat scripted"))
    assert '"content":"the question"' in first["gen_ai.input.messages"]
    assert first["gen_ai.system_instructions"] == '[{"type":"text","content":"good"}]'
    assert '"name":"add"' in first["gen_ai.output.messages"]
    assert PRIVATE in second["gen_ai.output.messages"]
    call_of_add = facts(told.one("execute_tool add"))
    assert call_of_add["gen_ai.tool.call.arguments"] == '{"a":1,"b":2}'
    assert call_of_add["gen_ai.tool.call.result"] == f"3 {PRIVATE}"
    assert PRIVATE in facts(told.one("invoke_agent good"))["gen_ai.output.messages"]
    assert refused["error.type"] == "NotAuthorised"
    failed = told.one("invoke_agent bad")
    assert (failed.status.is_ok, facts(failed)["holdfast.status"]) == (False, "failed")
    assert PRIVATE not in failed.to_json()


async def ended(here: Served, execution_id: str) -> WorkflowHistory:
    async for _ in here.client.follow(execution_id):
        pass
    return await history_of(here.client, execution_id)


async def test_a_run_that_nobody_traced_begins_a_trace_at_its_worker(
    settings: Settings, tmp_path: Path, told: Told
) -> None:
    chosen = traced(settings, continue_events=1)
    async with served(chosen, tmp_path / "ledger", [call("near", word="x"), say("done")], OFFER) as here:
        quiet = await Holdfast.connect(replace(settings, continue_events=1))
        id_ = await quiet.start(
            AgentDefinition(name="lone", tools="all", llm=MODEL), "go", budget=ExecutionBudget(max_steps=5)
        )
        await here.client.result(id_)
    assert told.tree() == {
        (None, "invoke_agent lone"),
        ("invoke_agent lone", "chat scripted"),
        ("invoke_agent lone", "execute_tool near"),
    }
    assert len(told.traces) == 1
