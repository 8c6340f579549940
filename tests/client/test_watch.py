"""Watching runs on a real server: all events once and in order, text while it comes, whoever watches and whenever."""

from __future__ import annotations

import asyncio
import json
import os
import re
import runpy
import signal
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager
from itertools import groupby
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest

from holdfast.client import Holdfast, Settings
from holdfast.client.watch_events import AttemptFailed, TextDelta, Watched, to_dict
from holdfast.connection import workflow_reader
from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import LLM, AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus, call_name, named_id
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.bounds import PROGRESS_CHARS_MAX
from holdfast.core.base.errors import ExecutionFailed, ExecutionNotFound, HoldfastError, InvalidInput, ServerUnavailable
from holdfast.core.tools.tools import tool
from holdfast.core.wire.contracts import AGENT_EXECUTION, ExecutionInput
from holdfast.core.wire.execution_events import (
    AgentExecutionCompleted,
    AgentExecutionFailed,
    AgentExecutionStarted,
    AgentExecutionStopped,
    InferenceRequestStarted,
    InferenceResponseReceived,
    Observed,
    SubagentCompleted,
    SubagentSpawned,
)
from holdfast.server.embedded import EmbeddedServer
from holdfast.server.ports import choose_ports
from holdfast.testing.holds import Hold
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import Call, Reply, Script, call, calls, say, turn_number
from tests.chaos.processes import worker
from tests.scenarios.driving import on_temporal
from tests.scenarios.hooks import HOOKS
from tests.scenarios.scenario import CASES, Scenario, load
from tests.scenarios.tools import Gate, tools_at
from tests.serving import Serve
from tests.serving import served as served_by
from tests.workflows.histories import history_of, taken

pytestmark = pytest.mark.temporal

AGENT = AgentDefinition(name="watched", tools="all")
SECONDS_MAX = 90
TIME = re.compile(r"at|\w+_at|\w+_seconds")
"""The names of fields that hold a moment or a length of time."""
WATCHERS = 20
PAGE = Path(__file__).parents[2] / "docs" / "watching.md"
WORDS = "".join(f"word {number:03} " for number in range(120))
NOBODY = "00000000-0000-4000-8000-000000000000"


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def slowly(text: str, seconds: float = 0.05, chars: int = 54, **options: Any) -> Reply:  # noqa: ANN401  # of any type
    """An answer that comes piece by piece."""
    return Reply(text=text, piece_seconds=seconds, piece_chars=chars, **options)


async def all_of(client: Holdfast, execution_id: str, **options: Any) -> list[Watched]:  # noqa: ANN401  # `watch`'s own
    async with asyncio.timeout(SECONDS_MAX):
        return [each async for each in client.watch(execution_id, **options)]


async def all_amid(client: Holdfast, execution_id: str, hold: Hold, watchers: int = 1) -> list[list[Watched]]:
    """Watch a run to its end, whose answer stands at `hold` until each watcher has a piece of it."""
    amid = 0

    async def watch() -> list[Watched]:
        nonlocal amid
        told: list[Watched] = []
        async for each in client.watch(execution_id):
            if isinstance(each, TextDelta) and not any(isinstance(one, TextDelta) for one in told):
                amid += 1
                if amid == watchers:
                    hold.release()
            told.append(each)
        return told

    async with asyncio.timeout(SECONDS_MAX):
        return await asyncio.gather(*(watch() for _ in range(watchers)))


async def told(
    client: Holdfast, execution_id: str, seconds_max: float = SECONDS_MAX
) -> tuple[list[Watched], HoldfastError | None]:
    """What a watcher is told of a run that is there or is about to be, and the error that its watch ends with."""
    watched: list[Watched] = []
    try:
        async with asyncio.timeout(seconds_max):
            async for each in client.watch(execution_id):
                watched.append(each)  # noqa: PERF401  # what was told before an error is kept
    except ExecutionNotFound:
        await asyncio.sleep(0.02)  # a start tells nobody
        return await told(client, execution_id)
    except HoldfastError as error:
        return watched, error
    return watched, None


def events_of(watched: Sequence[Watched], execution_id: str | None = None) -> list[Observed]:
    """The observed events, of one execution where it is named."""
    events = [each for each in watched if isinstance(each, Observed)]
    return [each for each in events if execution_id in (None, each.execution_id)]


def timeless(events: Sequence[Observed]) -> list[Any]:
    """The events without any times: a question moves the clock of a task whose hooks or local tools it meets."""
    told = [to_dict(cast("Watched", each)) for each in events]
    bare: list[Any] = json.loads(json.dumps(told), object_hook=_timeless)
    return bare


def _timeless(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if not TIME.fullmatch(name)}


def names(events: Sequence[object]) -> list[str]:
    return [type(each).__name__ for each in events]


def assert_deltas_make_up_answers(watched: Sequence[Watched]) -> None:
    """Between a request and its answer come deltas, and those since the last mark are the answer."""
    texts: dict[tuple[str, int], str] = {}
    for each in watched:
        match each:
            case InferenceRequestStarted():
                texts[each.execution_id, each.step_number] = ""
            case AttemptFailed():
                texts[each.execution_id, each.step_number] = ""
            case TextDelta():
                assert each.text
                text = texts[each.execution_id, each.step_number]
                texts[each.execution_id, each.step_number] = text + "?" * each.skipped + each.text
            case InferenceResponseReceived():
                text = texts.pop((each.execution_id, each.step_number))
                whole = each.response.text
                assert len(text) == len(whole)
                assert all(one in ("?", other) for one, other in zip(text, whole, strict=True))
            case _:
                pass
    assert not any(texts.values()), "text of an answer that never came"


# --- order and completeness


@pytest.mark.parametrize(
    "scenario", [load(path) for path in sorted(CASES.glob("events_of_*.yaml"))], ids=lambda s: s.name
)
async def test_a_watcher_is_told_what_a_listener_in_process_is_told(scenario: Scenario, serve: Serve) -> None:
    """`expect.observed` is what the in-process driver tells: tests/scenarios sees to that."""
    gate, execution_id = Gate(), str(uuid4())
    async with serve(scenario.plays, offer=Toolset(tools=tuple(tools_at(gate)), hooks=HOOKS)) as served:
        run = asyncio.create_task(on_temporal(scenario, served, gate, str(uuid4()), execution_id))
        watching = asyncio.create_task(told(served.client, execution_id))
        await run
        late, _ = await told(served.client, execution_id)
        live, failed = await watching
    assert names(events_of(live)) == list(scenario.expect.observed or ())
    assert timeless(events_of(live)) == timeless(events_of(late))
    assert (failed is None) == (not isinstance(live[-1], AgentExecutionFailed))
    assert_deltas_make_up_answers(live)
    assert_deltas_make_up_answers(late)


async def test_a_watcher_that_starts_later_is_told_the_rest(serve: Serve) -> None:
    async with serve([call("add", a=1, b=2), call("add", a=3, b=3), say("six")], [add]) as served:
        execution_id = (await served.client.run(AGENT, "add")).execution_id
        whole = events_of(await all_of(served.client, execution_id))
        for start in (0, 1, 7, len(whole) - 1, len(whole), len(whole) + 5):
            rest = await all_of(served.client, execution_id, start=start)
            assert events_of(rest) == whole[start:], start


# --- text while it comes


@pytest.mark.slow
async def test_text_is_told_while_it_comes(serve: Serve) -> None:
    async with serve([call("add", a=1, b=2), slowly(WORDS, seconds=0.12)], [add]) as served:
        execution_id = await served.client.start(AGENT, "tell me")
        live: list[TextDelta] = []
        watched: list[Watched] = []
        async with aclosing(served.client.watch(execution_id)) as watching:
            async for each in watching:
                watched.append(each)
                if isinstance(each, TextDelta) and served.endpoint.requests[-1].outcome == "pending":
                    live.append(each)
    assert len(live) >= 3, live
    assert {(each.execution_id, each.step_number, each.attempt, each.skipped) for each in live} == {
        (execution_id, 2, 1, 0)
    }
    assert_deltas_make_up_answers(watched)
    assert "".join(each.text for each in watched if isinstance(each, TextDelta)) == WORDS


@pytest.mark.slow
async def test_who_comes_in_the_middle_of_an_answer_is_told_its_end_and_what_is_missing(serve: Serve) -> None:
    text = WORDS * 5
    assert len(text) > PROGRESS_CHARS_MAX
    async with serve([slowly(text, 0.3, 2_500)]) as served:
        execution_id = await served.client.start(AGENT, "tell me")
        async with aclosing(served.client.watch(execution_id)) as early:
            chars = 0
            while chars <= PROGRESS_CHARS_MAX:
                each = await anext(early)
                chars += len(each.text) if isinstance(each, TextDelta) else 0
            late = asyncio.create_task(all_of(served.client, execution_id))
            rest = [each async for each in early]
        watched = await late
    first, *others = [each for each in watched if isinstance(each, TextDelta)]
    assert first.skipped > 0
    assert not any(each.skipped for each in others)
    assert_deltas_make_up_answers(watched)
    assert events_of(rest)[-1] == events_of(watched)[-1]


@pytest.mark.slow
async def test_a_failed_attempt_leaves_a_mark_and_its_text_is_void(serve: Serve) -> None:
    cut = slowly(WORDS[::-1], pieces_max=12, disconnect=True)
    async with serve([slowly(WORDS, failures=(cut,))]) as served:
        execution_id = await served.client.start(AGENT, "tell me")
        watched = await all_of(served.client, execution_id)
        asked = len(served.endpoint.requests)
    texts = [each for each in watched if isinstance(each, TextDelta | AttemptFailed)]
    groups = [[*group] for _, group in groupby(texts, key=lambda each: isinstance(each, TextDelta))]
    before, [mark], after = groups
    assert isinstance(mark, AttemptFailed)
    assert (asked, mark.attempt, mark.step_number, mark.execution_id) == (2, 1, 1, execution_id)
    assert mark.message
    assert WORDS[::-1].startswith("".join(each.text for each in before if isinstance(each, TextDelta)))
    assert "".join(each.text for each in after if isinstance(each, TextDelta)) == WORDS
    assert {each.attempt for each in after} == {2}
    assert_deltas_make_up_answers(watched)


# --- many watchers


@pytest.mark.slow
async def test_twenty_watchers_are_told_the_same_and_leave_no_trace(serve: Serve) -> None:
    hold = Hold()
    answer = Reply(text=WORDS, piece_chars=54, pieces_max=10, hold=hold)
    async with serve([*(call("add", a=number, b=1) for number in range(6)), answer], [add]) as served:
        execution_id = await served.client.start(AGENT, "add")
        watched = await all_amid(served.client, execution_id, hold, WATCHERS)
        unwatched = (await served.client.run(AGENT, "add")).execution_id
        written = [await history_of(served.client, each) for each in (unwatched, execution_id)]
    alone, accompanied = (Counter(event.event_type for event in taken(history.events)) for history in written)
    assert alone == accompanied
    for each in watched:
        assert events_of(each) == events_of(watched[0])
        assert_deltas_make_up_answers(each)
        assert sum(isinstance(one, TextDelta) for one in each) >= 2


@pytest.mark.slow
async def test_a_watcher_that_takes_nothing_does_not_hold_up_the_run(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.client.watch.WAITING_MAX", 2)
    async with serve([*(call("add", a=number, b=1) for number in range(6)), slowly(WORDS)], [add]) as served:
        execution_id = await served.client.start(AGENT, "add")
        async with aclosing(served.client.watch(execution_id)) as watching:
            first = await anext(watching)
            async with asyncio.timeout(SECONDS_MAX):
                await served.client.result(execution_id)
            watched = [first, *[each async for each in watching]]
        whole = await all_of(served.client, execution_id)
    assert events_of(watched) == events_of(whole)
    assert_deltas_make_up_answers(watched)


@asynccontextmanager
async def leaving_nothing_running() -> AsyncGenerator[None]:
    def ours() -> list[asyncio.Task[object]]:
        return [
            task
            for task in asyncio.all_tasks()
            if any(re.search("holdfast/(client|connection)", str(each)) for each in task.get_stack())
        ]

    assert ours() == []
    yield
    assert ours() == []


async def test_a_watch_that_is_cancelled_or_closed_leaves_no_task(serve: Serve) -> None:
    script = by_agent(boss=[calls(spawn("look"))], helper=[slowly(WORDS, 0.2)])
    async with serve(script) as served:
        execution_id = await served.client.start(BOSS, "go", subagents=[HELPER])
        async with leaving_nothing_running():
            async with aclosing(served.client.watch(execution_id)) as watching:
                while not isinstance(each := await anext(watching), TextDelta):
                    pass
            assert each.execution_id == child_of(execution_id)
            tasks = [asyncio.create_task(all_of(served.client, execution_id)) for _ in range(3)]
            for delay, task in zip((0, 0.05, 0.5), tasks, strict=True):
                await asyncio.wait([task], timeout=delay)
                task.cancel()
            assert all(
                isinstance(each, asyncio.CancelledError)
                for each in await asyncio.gather(*tasks, return_exceptions=True)
            )
        await served.client.stop(execution_id)
        await served.client.result(execution_id)


# --- subagents


HELPER = AgentDefinition(name="helper", tools="all", system_prompt="helper", llm=LLM(model="scripted"))
BOSS = AgentDefinition(name="boss", tools="all", system_prompt="boss", llm=LLM(model="scripted"), subagents=("helper",))


def by_agent(**scripts: list[Reply]) -> Script:
    """Each agent plays its own script; it is known by its prompt."""

    def turn(request: dict[str, Any]) -> Reply:
        return scripts[request["messages"][0]["content"]][turn_number(request)]

    return turn


def spawn(task: str, who: str = "helper") -> Call:
    return Call("spawn", {"agent": who, "task": task})


def child_of(execution_id: str, step: int = 1, index: int = 0) -> str:
    return named_id(execution_id, call_name(step, index))


async def test_what_subagents_do_is_told_between_their_beginning_and_their_end(serve: Serve) -> None:
    middle = HELPER.model_copy(update={"subagents": ("deep",)})
    deep = AgentDefinition(name="deep", tools="all", system_prompt="deep", llm=LLM(model="scripted"))
    script = by_agent(
        boss=[calls(spawn("one"), spawn("two")), say("done")],
        helper=[calls(spawn("below", "deep")), slowly(WORDS[:400])],
        deep=[say("found")],
    )
    async with serve(script) as served:
        execution_id = await served.client.start(BOSS, "go", subagents=[middle, deep])
        live = await all_of(served.client, execution_id)
        late = await all_of(served.client, execution_id)
        alone = await all_of(served.client, execution_id, subagents=False)
    children = [child_of(execution_id, 1, index) for index in (0, 1)]
    runs = [execution_id, *children, *(child_of(child) for child in children)]
    for watched in (live, late):
        assert_deltas_make_up_answers(watched)
        assert {each.execution_id for each in events_of(watched)} == set(runs)
        for parent, child in [*((execution_id, child) for child in children), *zip(runs[1:3], runs[3:], strict=True)]:
            assert_within(events_of(watched), parent, child)
    for run in runs:
        assert events_of(live, run) == events_of(late, run)
    assert events_of(alone) == events_of(late, execution_id)


def assert_within(events: Sequence[Observed], parent: str, child: str) -> None:
    """All events of the child lie between its parent's spawning it and its parent's having its answer."""
    places = [place for place, each in enumerate(events) if each.execution_id == child]
    own = [(place, each) for place, each in enumerate(events) if each.execution_id == parent]
    [(spawned, call_id)] = [
        (place, each.call_id)
        for place, each in own
        if isinstance(each, SubagentSpawned) and child_of(parent, each.step_number, each.index) == child
    ]
    [completed] = [place for place, each in own if isinstance(each, SubagentCompleted) and each.call_id == call_id]
    assert spawned < places[0] <= places[-1] < completed
    assert isinstance(events[places[0]], AgentExecutionStarted)
    assert isinstance(events[places[-1]], AgentExecutionCompleted)


@pytest.mark.slow
async def test_a_stopped_tree_ends_with_its_roots_end(serve: Serve) -> None:
    script = by_agent(boss=[calls(spawn("one"), spawn("two"))], helper=[say("too late", delay_seconds=600)])
    async with serve(script) as served:
        execution_id = await served.client.start(BOSS, "go", subagents=[HELPER])
        watching = asyncio.create_task(all_of(served.client, execution_id))
        await served.endpoint.until(lambda requests: len(requests) == 3)
        await served.client.stop(execution_id, "enough")
        watched = await watching
    last = watched[-1]
    assert isinstance(last, AgentExecutionCompleted)
    assert (last.execution_id, last.status) == (execution_id, ExecutionStatus.STOPPED)
    ends = [each for each in watched if isinstance(each, AgentExecutionStopped)]
    assert {each.execution_id for each in ends} == {execution_id, *(child_of(execution_id, 1, n) for n in (0, 1))}


# --- ends of other kinds


@pytest.mark.slow
async def test_a_run_that_fails_is_told_to_its_end_and_then_raised(serve: Serve) -> None:
    async with serve([call("add", a=1, b=2), Reply(status=401, text="no such key")], [add]) as served:
        execution_id = await served.client.start(AGENT, "add")
        for _ in range(2):  # live, then late
            watched, failed = await told(served.client, execution_id)
            assert isinstance(watched[-1], AgentExecutionFailed)
            assert isinstance(failed, ExecutionFailed)
            assert failed.state is not None
            assert "no such key" in str(failed)


async def test_a_run_that_the_server_ends_is_raised_after_what_could_be_told(serve: Serve) -> None:
    async with serve([call("add", a=1, b=2), say("never", delay_seconds=600)], [add]) as served:
        execution_id = await served.client.start(AGENT, "add")
        watching = asyncio.create_task(told(served.client, execution_id))
        await served.endpoint.until(lambda requests: len(requests) == 2)
        await served.client.temporal.get_workflow_handle(execution_id).terminate(reason="by hand")
        watched, failed = await watching
    assert isinstance(failed, ExecutionFailed)
    assert "by hand" in str(failed)
    assert names(events_of(watched))[-2:] == ["AgentStepStarted", "InferenceRequestStarted"]


async def test_a_run_that_no_worker_ever_saw_is_raised_when_the_server_ends_it(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflow_reader, "ENDED_SECONDS_MAX", 0.2)
    client = await Holdfast.connect(settings)
    execution_id = await client.start(AGENT, "hi")
    watching = asyncio.create_task(all_of(client, execution_id))
    await asyncio.wait([watching], timeout=0.3)
    await client.temporal.get_workflow_handle(execution_id).terminate(reason="by hand")
    with pytest.raises(ExecutionFailed, match="by hand"):
        await watching


async def test_a_run_that_has_ended_does_not_wait_for_a_worker_without_end(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve([say("done")]) as served:
        execution_id = (await served.client.run(AGENT, "hi")).execution_id
        client = served.client
    monkeypatch.setattr(workflow_reader, "ENDED_SECONDS_MAX", 0.2)
    monkeypatch.setattr(workflow_reader, "ASK_TIMEOUT", workflow_reader.ASK_TIMEOUT / 10)
    with pytest.raises(ServerUnavailable, match="no worker answers for run"):
        await all_of(client, execution_id)


async def test_a_watch_of_no_run_is_refused(settings: Settings) -> None:
    client = await Holdfast.connect(settings)
    with pytest.raises(ExecutionNotFound, match=f"no run {NOBODY} on this server; `holdfast list`"):
        await all_of(client, NOBODY)
    with pytest.raises(InvalidInput, match="is not an id of a run"):
        client.watch("no id")
    with pytest.raises(InvalidInput, match="cannot start at event -1"):
        client.watch(NOBODY, start=-1)


# --- what happens around a watch


@pytest.mark.slow
async def test_an_execution_that_goes_on_in_new_runs_is_watched_as_one(serve: Serve) -> None:
    hold = Hold()
    answer = Reply(text=WORDS, piece_chars=54, pieces_max=10, hold=hold)
    async with serve([*(call("add", a=number, b=1) for number in range(3)), answer], [add]) as served:
        execution_id = str(uuid4())
        await served.client.temporal.start_workflow(
            AGENT_EXECUTION,
            ExecutionInput(
                agent_id=str(uuid4()), definition=AGENT, question="add", budget=ExecutionBudget(), continue_events=1
            ),
            id=execution_id,
            task_queue=served.client.settings.task_queue,
        )
        [live] = await all_amid(served.client, execution_id, hold)
        late = await all_of(served.client, execution_id)
        rest = await all_of(served.client, execution_id, start=13)
        described = await served.client.temporal.get_workflow_handle(execution_id).describe()
        alone = await served.client.run(AGENT, "add")
        single = await all_of(served.client, alone.execution_id)
    assert described.raw_description.workflow_execution_info.first_run_id != described.run_id
    assert names(events_of(live)) == names(events_of(single))
    assert events_of(late) == events_of(live)
    assert events_of(rest) == events_of(live)[13:]
    assert sum(isinstance(each, TextDelta) for each in live) >= 2, "a piece came before the last one"
    for watched in (live, late):
        assert_deltas_make_up_answers(watched)


@pytest.mark.slow
async def test_a_worker_that_is_killed_is_waited_for(settings: Settings, tmp_path: Path) -> None:
    note = calls(Call("note", {"text": "one"}))
    async with FakeOpenAI([note, slowly(WORDS, 0.2)]) as endpoint:
        client = await Holdfast.connect(settings)
        async with worker(settings, endpoint, tmp_path / "tools.jsonl") as first:
            execution_id = await client.start(AgentDefinition(name="noter", tools="all"), "note")
            watched: list[Watched] = []
            watching = client.watch(execution_id)
            while not isinstance(watched[-1:] and watched[-1], TextDelta):
                watched.append(await anext(watching))
            first.kill()
        async with worker(settings, endpoint, tmp_path / "tools.jsonl"), asyncio.timeout(SECONDS_MAX):
            watched += [each async for each in watching]
            late = await all_of(client, execution_id)
        assert len(endpoint.requests) == 3
    assert events_of(watched) == events_of(late)
    assert_deltas_make_up_answers(watched)
    [mark] = [each for each in watched if isinstance(each, AttemptFailed)]
    assert (mark.step_number, mark.attempt) == (2, 1)


@pytest.mark.slow
async def test_a_server_that_restarts_is_waited_for(tmp_path: Path) -> None:
    ports = choose_ports(0, 0)
    data_dir = tmp_path / "data"

    def start() -> EmbeddedServer:
        return EmbeddedServer.start(data_dir, port=ports.grpc, ui_port=ports.http)

    server = await asyncio.to_thread(start)
    settings = Settings(address=server.address.address, task_queue="restarts", data_dir=data_dir)
    script = [call("add", a=1, b=2), slowly(WORDS, 0.2)]
    try:
        async with served_by(settings, tmp_path / "ledger.jsonl", script, Toolset(tools=(add,))) as served:
            execution_id = await served.client.start(AGENT, "add")
            watched: list[Watched] = []
            watching = served.client.watch(execution_id)
            while not isinstance(watched[-1:] and watched[-1], TextDelta):
                watched.append(await anext(watching))
            os.kill(server.address.pid, signal.SIGKILL)
            server.stop()
            server = await asyncio.to_thread(start)
            async with asyncio.timeout(2 * SECONDS_MAX):
                watched += [each async for each in watching]
            late = await all_of(served.client, execution_id)
    finally:
        server.stop()
    assert events_of(watched) == events_of(late)
    assert_deltas_make_up_answers(watched)


@pytest.mark.slow
async def test_a_server_that_stays_away_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflow_reader, "SILENCE_SECONDS_MAX", 1.0)
    with EmbeddedServer.start(tmp_path / "data", port=0, ui_port=0) as server:
        client = await Holdfast.connect(Settings(address=server.address.address, data_dir=tmp_path / "data"))
        execution_id = await client.start(AGENT, "hi")
        watching = asyncio.create_task(told(client, execution_id, 3 * SECONDS_MAX))
        await asyncio.wait([watching], timeout=0.3)
        os.kill(server.address.pid, signal.SIGKILL)
        _, failed = await watching
    assert isinstance(failed, ServerUnavailable)
    assert "the Temporal server says" in str(failed)


async def test_the_page_on_watching_shows_what_works(
    serve: Serve, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [code] = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
    (tmp_path / "page.py").write_text(code)
    show = runpy.run_path(str(tmp_path / "page.py"))["show"]
    async with serve([slowly(WORDS)]) as served:
        execution_id = await served.client.start(AGENT, "tell me")
        await show(served.client, execution_id)
    shown = capsys.readouterr().out
    assert WORDS in shown
    assert shown.startswith("\n[AgentExecutionStarted in step 0]\n")
    assert shown.endswith("\n[AgentExecutionCompleted in step 1]\n")
