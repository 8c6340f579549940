"""Whole trees of agents on a real server: what they use, who hears of them, and what ends with their root."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from activities.provider import OpenAIModel, ProviderSettings
from holdfast import AgentDefinition
from holdfast.client import Client, Settings
from holdfast.core.definition import LLM
from holdfast.core.errors import ExecutionFailed, ModelFailure
from holdfast.core.inference import AnswerPart, ModelRequest
from holdfast.core.offer import Offer
from holdfast.core.state import AgentState
from holdfast.core.steps import InferenceResponse
from holdfast.core.usage import NOTHING_USED, Prices, Usage
from holdfast.testing.openai_server import FakeOpenAI, RequestRecord
from holdfast.testing.script import Call, Turn, say, turn_number
from worker import make_worker

pytestmark = pytest.mark.temporal

TREES: Final = int(os.environ.get("HOLDFAST_TREES", "8"))
SEED: Final = int(os.environ.get("HOLDFAST_FUZZ_SEED", str(random.SystemRandom().randrange(10**6))))
PRICES: Final = Prices(input_usd=1, output_usd=5)
CLOSED_SECONDS_MAX: Final = 3.0
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
    turns: tuple[tuple[Turn, tuple[Branch, ...]], ...]


def branch(draw: random.Random, who: str, depth: int) -> Branch:
    turns: list[tuple[Turn, tuple[Branch, ...]]] = []
    for _ in range(draw.choice((1, 1, 2, 3))):
        below = draw.choice((0, 1, 2, 3)) if depth else 0
        others = tuple(branch(draw, draw.choice(("left", "right")), depth - 1) for _ in range(below))
        cut = Turn(text="some words", pieces_max=2, disconnect=True, usage_in="every", usage=used(draw))
        refused = Turn(status=500, headers={"retry-after": "0"})
        turn = Turn(
            text="some words",
            usage=used(draw),
            usage_in=draw.choice(("last", "every")),
            piece_seconds=draw.choice((0, 0, 0.02, 0.2)),
            failures=draw.choice(((), (), (), (cut,), (refused,))),
        )
        if draw.random() < 0.05:
            turn = Turn(status=400)
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

    def __call__(self, request: dict[str, Any]) -> Turn:
        name, number = task_of(request), turn_number(request)
        turns = self.branches[name].turns
        if number >= len(turns):
            return say("the end", usage=(7, 1))
        turn, others = turns[number]
        wanted = tuple(spawn(f"{name}.{number}.{place}", each.agent) for place, each in enumerate(others))
        return dataclasses.replace(turn, calls=wanted)


class CountingModel(OpenAIModel):
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


@pytest.mark.timeout(120)
async def test_the_root_of_a_tree_has_used_what_the_endpoint_reported_to_all_of_it(
    settings: Settings, tmp_path: Path
) -> None:
    print(f"HOLDFAST_FUZZ_SEED={SEED} HOLDFAST_TREES={TREES}")  # noqa: T201  # to repeat it by
    draw = random.Random(SEED)  # noqa: S311  # nothing secret
    forest = Forest(draw, TREES)
    agents = [agent("left", "right", max_depth=5), agent("right", "left", max_depth=5)]
    root = agent("root", "left", "right", max_depth=5)

    async def tree(client: Client, name: str, stop_after: float | None) -> AgentState | None:
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
        client = await Client.connect(settings)
        async with make_worker(client.temporal, settings, Offer(), model):
            stops = [draw.choice((None, draw.uniform(0.1, 3.0))) for _ in forest.roots]
            trees = [tree(client, name, stop) for name, stop in zip(forest.roots, stops, strict=True)]
            states = await asyncio.gather(*trees)
        await model.close()
    told = Counter[str]()
    for name, state in zip(forest.roots, states, strict=True):
        assert state is not None
        told[f"{state.status}"] += 1
        reported = model.reported.get(name, NOTHING_USED)
        assert state.usage == reported, f"{name} of HOLDFAST_FUZZ_SEED={SEED}: {state.status}"
        assert state.cost == pytest.approx(PRICES.cost(reported))
    print(f"{len(endpoint.requests)} requests, {model.cut_off} cut off, {dict(told)}")  # noqa: T201  # the figures
    assert len(endpoint.requests) > TREES
