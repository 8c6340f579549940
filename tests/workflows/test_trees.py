"""Whole trees of agents on a real server: what they use, who hears of them, and what ends with their root."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
from temporalio.client import WorkflowExecutionStatus, WorkflowHandle
from temporalio.common import Priority

from holdfast import AgentDefinition, ExecutionBudget, ExecutionStatus, tool
from holdfast.client import Holdfast, Settings
from holdfast.core.agent.definition import LLM
from holdfast.core.agent.execution_state import call_name, named_id
from holdfast.core.agent.model import AnswerPart, ModelRequest
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.errors import ExecutionFailed, ModelFailure
from holdfast.core.base.usage import NOTHING_USED, Prices, Usage
from holdfast.core.conversation.amounts import SUBAGENTS_MODEL
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.wire.contracts import AGENT_EXECUTION, ExecutionInput
from holdfast.core.wire.execution_events import AgentExecutionCompleted, AgentExecutionStarted, Observed
from holdfast.models import OpenAIChat, ProviderSettings
from holdfast.testing.openai_server import FakeOpenAI, RequestRecord
from holdfast.testing.script import Call, Reply, calls, say, turn_number
from tests.serving import Serve, Served, served
from tests.workflows.chains import chain_of
from tests.workflows.histories import history_of, replayed
from workers import make_worker

pytestmark = pytest.mark.temporal

TREES: Final = int(os.environ.get("HOLDFAST_TREES", "8"))
SEED: Final = int(os.environ.get("HOLDFAST_FUZZ_SEED", str(random.SystemRandom().randrange(10**6))))
PRICES: Final = Prices(input_usd=1, output_usd=5)
ROUNDING_USD: Final = 1e-9
CLOSED_SECONDS_MAX: Final = 30.0
CHILD_INPUT_BYTES_MAX: Final = 8 * 1024


def agent(name: str, *subagents: str, **rules: Any) -> AgentDefinition:  # noqa: ANN401  # fields of any type
    llm = LLM(prices=PRICES, model="scripted")
    return AgentDefinition(name=name, system_prompt=name, subagents=subagents, llm=llm, **rules)


def spawn(task: str, who: str) -> Call:
    return Call("spawn", {"agent": who, "task": task})


def task_of(request: RequestRecord | dict[str, Any]) -> str:
    body = request if isinstance(request, dict) else request.body
    return str(next(each["content"] for each in body["messages"] if each["role"] == "user"))


# --- what is used


@dataclass(frozen=True)
class Branch:
    """One agent's script: its turns, each with the branches that it calls."""

    agent: str
    turns: tuple[tuple[Reply, tuple[Branch, ...]], ...]


def branch(draw: random.Random, who: str, depth: int) -> Branch:
    turns: list[tuple[Reply, tuple[Branch, ...]]] = []
    for _ in range(draw.choice((1, 1, 2, 3))):
        below = draw.choice((0, 1, 2, 3)) if depth else 0
        others = tuple(branch(draw, draw.choice(("left", "right")), depth - 1) for _ in range(below))
        cut = Reply(text="some words", pieces_max=2, disconnect=True, usage_in="every", usage=used(draw))
        refused = Reply(status=500, headers={"retry-after": "0"})
        turn = Reply(
            text="some words",
            usage=used(draw),
            usage_in=draw.choice(("last", "every")),
            piece_seconds=draw.choice((0, 0, 0.02, 0.2)),
            failures=draw.choice(((), (), (), (cut,), (refused,))),
        )
        if draw.random() < 0.05:
            turn = Reply(status=400)
        turns.append((turn, others))
    return Branch(who, tuple(turns))


def used(draw: random.Random) -> tuple[int, int]:
    return draw.randint(1, 500), draw.randint(0, 40)


def by_task(name: str, top: Branch) -> Iterator[tuple[str, Branch]]:
    yield name, top
    for number, (_, others) in enumerate(top.turns):
        for place, each in enumerate(others):
            yield from by_task(f"{name}.{number}.{place}", each)


class Forest:
    """Random trees and the endpoint that plays all of them."""

    def __init__(self, draw: random.Random, count: int) -> None:
        self.roots = {f"tree{number}": branch(draw, "root", 3) for number in range(count)}
        self.branches = dict(each for name, top in self.roots.items() for each in by_task(name, top))

    def __call__(self, request: dict[str, Any]) -> Reply:
        name, number = task_of(request), turn_number(request)
        turns = self.branches[name].turns
        if number >= len(turns):
            return say("the end", usage=(7, 1))
        turn, others = turns[number]
        wanted = tuple(spawn(f"{name}.{number}.{place}", each.agent) for place, each in enumerate(others))
        return dataclasses.replace(turn, calls=wanted)


class CountingModel(OpenAIChat):
    """The provider's client, with an account of what endpoints reported to it, by the tree that asked."""

    def __init__(self, settings: ProviderSettings) -> None:
        super().__init__(settings)
        self.reported: dict[str, Usage] = {}
        self.cut_off = 0

    async def __call__(self, request: ModelRequest) -> InferenceResponse:
        heard: list[Usage] = [NOTHING_USED]
        listener = request.listener

        def hear(part: AnswerPart) -> None:
            heard[0] = part.usage or heard[0]
            if listener is not None:
                listener(part)

        try:
            response = await super().__call__(dataclasses.replace(request, listener=hear))
        except ModelFailure as failure:
            self._count(request, failure.usage if failure.usage != NOTHING_USED else heard[0])
            raise
        except asyncio.CancelledError:
            self.cut_off += 1
            self._count(request, heard[0])
            raise
        self._count(request, response.usage)
        return response

    def _count(self, request: ModelRequest, usage: Usage) -> None:
        tree = request.messages[0].text.split(".")[0]
        self.reported[tree] = self.reported.get(tree, NOTHING_USED) + usage


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_the_root_of_a_tree_has_used_what_the_endpoint_reported_to_all_of_it(
    settings: Settings, tmp_path: Path
) -> None:
    print(f"HOLDFAST_FUZZ_SEED={SEED} HOLDFAST_TREES={TREES}")  # noqa: T201  # to repeat it by
    draw = random.Random(SEED)  # noqa: S311  # nothing secret
    forest = Forest(draw, TREES)
    agents = [agent("left", "right", max_depth=5), agent("right", "left", max_depth=5)]
    root = agent("root", "left", "right", max_depth=5)

    async def tree(client: Holdfast, name: str, stop_after: float | None) -> AgentState | None:
        execution_id = await client.start(root, name, subagents=agents)
        if stop_after is not None:
            await asyncio.sleep(stop_after)
            await client.stop(execution_id, "enough")
        try:
            return await client.result(execution_id)
        except ExecutionFailed as failure:
            return AgentState.from_dict(failure.state) if failure.state else None

    async with FakeOpenAI(forest, ledger=tmp_path / "ledger.jsonl") as endpoint:
        model = CountingModel(ProviderSettings(base_url=endpoint.base_url, api_key="test-key", model="scripted"))
        client = await Holdfast.connect(settings)
        async with make_worker(client.temporal, settings, Toolset(), model):
            stops = [draw.choice((None, draw.uniform(0.1, 3.0))) for _ in forest.roots]
            trees = [tree(client, name, stop) for name, stop in zip(forest.roots, stops, strict=True)]
            states = await asyncio.gather(*trees)
        await model.close()
    told = Counter[str]()
    for name, state in zip(forest.roots, states, strict=True):
        assert state is not None
        told[f"{state.status}"] += 1
        if any(
            each.startswith(SUBAGENTS_MODEL) for each in state.running.unpriced
        ):  # one did not tell its end in time: the root says so
            told["unheard"] += 1
            continue
        used, reported = state.usage, model.reported.get(name, NOTHING_USED)
        who = f"{name} of HOLDFAST_FUZZ_SEED={SEED}: {state.status}, {used} of {reported}"
        assert used.input_tokens >= reported.input_tokens, who
        assert used.output_tokens >= reported.output_tokens, who
        assert used.total_tokens - used.estimated_tokens <= reported.total_tokens, who
        assert used.estimated_tokens or used == reported, who
        assert state.cost >= PRICES.cost(reported) - ROUNDING_USD, who
        assert used.estimated_tokens or state.cost == pytest.approx(PRICES.cost(reported)), who
    print(f"{len(endpoint.requests)} requests, {model.cut_off} cut off, {dict(told)}")  # noqa: T201  # the figures
    assert len(endpoint.requests) > TREES
    assert told["unheard"] < TREES, "some have told"


# --- who hears of it, and what ends with it

DEEP = (agent("middle", "leaf"), agent("leaf"))
TOP = agent("top", "middle")


def nested(request: dict[str, Any]) -> Reply:
    """Three levels: two side by side below the top, two below each of them, each of several steps."""
    who, number = request["messages"][0]["content"], turn_number(request)
    if who == "leaf":
        return calls(Call("look", {})) if number == 0 else say(f"found by {task_of(request)}")
    if number:
        return say("done")
    below, task = ("middle", "") if who == "top" else ("leaf", task_of(request))
    return calls(spawn(f"{task}a", below), spawn(f"{task}b", below))


@tool
async def look() -> str:
    """Look somewhere."""
    return "seen"


@pytest.mark.slow
@pytest.mark.parametrize("continue_events", [2_000, 1])
async def test_three_levels_are_heard_at_the_top_with_their_ids_and_parents(
    settings: Settings, tmp_path: Path, continue_events: int
) -> None:
    often = dataclasses.replace(settings, continue_events=continue_events)
    async with served(often, tmp_path / "ledger.jsonl", nested, Toolset(tools=(look,))) as at_work:
        execution_id = await at_work.client.start(TOP, "go", subagents=DEEP)
        watched = at_work.client.watch(execution_id)
        heard = [each async for each in watched if isinstance(each, Observed)]
        state = await at_work.client.result(execution_id)
        runs = [len(await chain_of(at_work.client, each)) for each in {each.execution_id for each in heard}]
    assert sum(runs) == (7 if continue_events > 1 else 14), "each execution has two steps"
    parents = {each.agent_id: each.parent_agent_id for each in heard}
    assert len(parents) == 7
    depths = Counter(_depth(each, parents) for each in parents)
    assert depths == {0: 1, 1: 2, 2: 4}
    begun = [each for each in heard if isinstance(each, AgentExecutionStarted)]
    assert Counter(each.agent for each in begun) == {"top": 1, "middle": 2, "leaf": 4}
    assert len([each for each in heard if isinstance(each, AgentExecutionCompleted)]) == 7
    assert heard[0].agent_id == heard[-1].agent_id == state.agent_id
    assert state.usage.total_tokens == 14 * 120


def _depth(agent_id: str, parents: dict[str, str | None]) -> int:
    parent = parents[agent_id]
    return 0 if parent is None else 1 + _depth(parent, parents)


async def hanging(served_: Served, client: Holdfast, **options: Any) -> tuple[str, list[str]]:  # noqa: ANN401  # any
    """Start a tree whose four leaves wait for an answer that never comes; return its ids, the top's first."""
    execution_id = await client.start(TOP, "go", subagents=DEEP, **options)
    await served_.endpoint.until(lambda all_: sum(b"leaf" in each.raw[:300] for each in all_) == 4, 90)
    middles = [named_id(execution_id, call_name(1, place)) for place in range(2)]
    return execution_id, [*middles, *(named_id(each, call_name(1, place)) for each in middles for place in range(2))]


def never_answered(request: dict[str, Any]) -> Reply:
    return say("too late", delay_seconds=600) if request["messages"][0]["content"] == "leaf" else nested(request)


@pytest.mark.slow
@pytest.mark.parametrize("end", ["terminate", "cancel"])
async def test_no_orphan_spends_when_the_root_is_ended_by_the_server(serve: Serve, end: str) -> None:
    async with serve(never_answered, [look]) as at_work:
        root, below = await hanging(at_work, at_work.client)
        handle = at_work.client.temporal.get_workflow_handle(root)
        ended_at = time.monotonic()
        await (handle.terminate("by hand") if end == "terminate" else handle.cancel())
        ends = [await at_work.client.result(each) for each in below]
        assert time.monotonic() - ended_at < CLOSED_SECONDS_MAX
        asked = len(at_work.endpoint.requests)
        await at_work.endpoint.until(lambda all_: all(each.outcome != "pending" for each in all_))
        assert len(at_work.endpoint.requests) == asked
        if end == "cancel":
            await at_work.client.result(root)  # it writes its record last
        closed = (await handle.describe()).status
    assert {each.status for each in ends} == {ExecutionStatus.STOPPED}
    assert closed is (WorkflowExecutionStatus.TERMINATED if end == "terminate" else WorkflowExecutionStatus.COMPLETED)


@pytest.mark.slow
async def test_the_deadline_of_the_root_ends_the_whole_tree(serve: Serve) -> None:
    async with serve(never_answered, [look]) as at_work:
        budget = ExecutionBudget(max_seconds=15)
        root, below = await hanging(at_work, at_work.client, budget=budget)
        state = await at_work.client.result(root)
        ended_at = time.monotonic()
        ends = [await at_work.client.result(each) for each in below]
        assert time.monotonic() - ended_at < CLOSED_SECONDS_MAX
    assert state.stop_reason is StopReason.TIME_LIMIT
    assert {each.status for each in ends} == {ExecutionStatus.STOPPED}
    by_whom = {each.stop_reason for each in ends}
    assert by_whom <= {StopReason.TIME_LIMIT, StopReason.USER_REQUESTED}, "its own timer, or the cancel of its parent"


@pytest.mark.slow
async def test_subagents_have_the_priority_of_their_root(serve: Serve) -> None:
    async with serve(nested, [look]) as at_work:
        client = at_work.client
        start = ExecutionInput(agent_id=str(uuid4()), definition=TOP, question="go", budget=TOP.budget)
        start = start.model_copy(update={"subagents": DEEP, "searchable": False})
        handle: WorkflowHandle[Any, Any] = await client.temporal.start_workflow(
            AGENT_EXECUTION,
            start,
            id=str(uuid4()),
            task_queue=client.settings.task_queue,
            priority=Priority(fairness_key="acme", fairness_weight=2.0),
        )
        await client.result(handle.id)
        middle = named_id(handle.id, call_name(1, 0))
        leaf = named_id(middle, call_name(1, 1))
        described = [await client.temporal.get_workflow_handle(each).describe() for each in (handle.id, middle, leaf)]
    infos = [each.raw_description.workflow_execution_info.priority for each in described]
    assert [(each.fairness_key, each.fairness_weight) for each in infos] == [("acme", 2.0)] * 3


# --- what is handed to a child


@pytest.mark.slow
async def test_a_subagents_input_is_small_and_holds_only_whom_it_can_reach(serve: Serve) -> None:
    prompts = {"middle": "m" * 1_000, "leaf": "l" * 1_000}
    others = [agent(f"other_{n}").model_copy(update={"system_prompt": "x" * 20_000}) for n in range(8)]
    middle, leaf = (each.model_copy(update={"system_prompt": prompts[each.name]}) for each in DEEP)
    top = agent("top", "middle", *(each.name for each in others))

    def turn(request: dict[str, Any]) -> Reply:
        who = {"m": "middle", "l": "leaf"}.get(request["messages"][0]["content"][0], "top")
        wanted = {"top": "middle", "middle": "leaf"}.get(who)
        return calls(spawn("a task", wanted)) if wanted and turn_number(request) == 0 else say("found")

    async with serve(turn) as at_work:
        execution_id = await at_work.client.start(top, "q" * 50_000, subagents=[middle, leaf, *others])
        await at_work.client.result(execution_id)
        child = named_id(execution_id, call_name(1, 0))
        inputs = [await _input_of(at_work.client, each) for each in (child, named_id(child, call_name(1, 0)))]
    assert [len(each) <= CHILD_INPUT_BYTES_MAX for each in inputs] == [True, True], [len(each) for each in inputs]
    reachable = [[each["name"] for each in json.loads(each).get("subagents", [])] for each in inputs]
    assert reachable == [["leaf"], []]


async def _input_of(client: Holdfast, execution_id: str) -> bytes:
    started = (await history_of(client, execution_id)).events[0].workflow_execution_started_event_attributes
    return b"".join(each.data for each in started.input.payloads)


@pytest.mark.slow
async def test_agents_that_call_each_other_for_ever_are_ended_by_the_budget(serve: Serve) -> None:
    ping, pong = agent("ping", "pong", max_depth=10), agent("pong", "ping", max_depth=10)

    def turn(request: dict[str, Any]) -> Reply:
        who = request["messages"][0]["content"]
        return calls(spawn("your turn", "pong" if who == "ping" else "ping"))

    async with serve(turn) as at_work:
        budget = ExecutionBudget(max_steps=25, max_tokens=100_000)
        execution_id = await at_work.client.start(ping, "go", subagents=[ping, pong], budget=budget)
        state = await at_work.client.result(execution_id)
        asked = len(at_work.endpoint.requests)
        await replayed(at_work.client, execution_id)
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.STEPS_LIMIT)
    assert asked == state.steps_used <= 25
