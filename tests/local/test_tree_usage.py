"""What a tree of agents reports at its root is what its model reported: failed, stopped and cut-off calls too.

Random trees on the real in-process driver, stopped at random moments; the account is kept at the model's side.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from holdfast import AgentDefinition, ExecutionBudget
from holdfast.core.agent.definition import LLM
from holdfast.core.agent.model import AnswerPart, Model, ModelRequest
from holdfast.core.agent.state import AgentState
from holdfast.core.base.errors import ModelFailure
from holdfast.core.base.usage import NOTHING_USED, Prices, Usage
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.local import LocalDriver

PRICES = Prices(input_usd=2, output_usd=7)
ROUNDING_USD = 1e-9
SECONDS_MAX = 90
AGENTS = ("worker", "own", "tight")


@dataclass(frozen=True)
class Said:
    """One model call: attempts that fail first, what is heard before the end, how long it takes, and what it asks."""

    usage: Usage
    failures: tuple[Usage, ...]
    heard: bool
    passes: int
    fails: bool
    children: tuple[Node, ...]


@dataclass(frozen=True)
class Node:
    """One agent's whole script."""

    agent: str
    turns: tuple[Said, ...]


usages = st.builds(Usage, input_tokens=st.integers(1, 500), output_tokens=st.integers(0, 50))


def turns(children: st.SearchStrategy[tuple[Node, ...]]) -> st.SearchStrategy[Said]:
    return st.builds(
        Said,
        usage=usages,
        failures=st.lists(usages | st.just(NOTHING_USED), max_size=2).map(tuple),
        heard=st.booleans(),
        passes=st.integers(0, 12),
        fails=st.sampled_from([False, False, False, False, True]),
        children=children,
    )


nodes: st.SearchStrategy[Node] = st.recursive(
    st.builds(Node, agent=st.sampled_from(AGENTS), turns=st.tuples(turns(st.just(())))),
    lambda below: st.builds(
        Node,
        agent=st.sampled_from(AGENTS),
        turns=st.lists(turns(st.lists(below, max_size=3).map(tuple)), min_size=1, max_size=3).map(tuple),
    ),
    max_leaves=12,
)


@dataclass
class World(Model):
    """The model of the whole tree, which plays the nodes and adds up what it reports."""

    root: Node
    stop_at: int | None
    reported: Usage = NOTHING_USED
    calls: int = 0
    silent: int = 0
    """How many attempts have not told what they used: the driver counts a bound for each."""
    driver: LocalDriver | None = None
    nodes: dict[str, Node] = field(default_factory=dict[str, Node])
    failed: dict[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])

    def __post_init__(self) -> None:
        self.nodes = dict(_named("root", self.root))

    async def __call__(self, request: ModelRequest) -> InferenceResponse:
        name = request.messages[0].text
        number = sum(each.role == "assistant" for each in request.messages)
        node = self.nodes[name]
        if number >= len(node.turns):
            return self._report(InferenceResponse(text="the end", usage=Usage(input_tokens=3, output_tokens=1)))
        said = node.turns[number]
        attempt = self.failed[name, number] = self.failed.get((name, number), -1) + 1
        used = said.usage if attempt >= len(said.failures) else said.failures[attempt]
        heard = said.heard and request.listener is not None
        self.silent += 1
        if heard and request.listener is not None:
            self._tell(used)
            request.listener(AnswerPart(text="so far", usage=used))
        for _ in range(said.passes):
            await self._pass()
        if not heard:
            self._tell(used)
        if attempt < len(said.failures):
            raise ModelFailure("try again", again=True, after=timedelta(0), usage=used)
        if said.fails:
            raise ModelFailure("no use", usage=used)
        calls = tuple(
            ToolCall(id=f"c{place}", name="spawn", arguments={"agent": each.agent, "task": f"{name}.{number}.{place}"})
            for place, each in enumerate(said.children)
        )
        return InferenceResponse(text="said", tool_calls=calls, usage=used)

    def _tell(self, used: Usage) -> None:
        self.reported += used
        self.silent -= used != NOTHING_USED

    def _report(self, response: InferenceResponse) -> InferenceResponse:
        self.reported += response.usage
        return response

    async def _pass(self) -> None:
        self.calls += 1
        if self.calls == self.stop_at and self.driver is not None:
            self.driver.stop("enough")
        await asyncio.sleep(0)


def _named(name: str, node: Node) -> Iterator[tuple[str, Node]]:
    yield name, node
    for number, said in enumerate(node.turns):
        for place, child in enumerate(said.children):
            yield from _named(f"{name}.{number}.{place}", child)


def definition(name: str, budget: ExecutionBudget) -> AgentDefinition:
    return AgentDefinition(
        name=name,
        llm=LLM(prices=PRICES),
        subagents=tuple(each for each in AGENTS if each != name),
        budget=budget,
        budget_policy="own" if name == "own" else "inherit",
        max_depth=4,
    )


async def played(world: World, budget: ExecutionBudget) -> AgentState:
    agents = [
        definition("worker", ExecutionBudget()),
        definition("own", ExecutionBudget(max_tokens=800)),
        definition("tight", ExecutionBudget(max_steps=1)),
    ]
    root = definition("root", budget)
    world.driver = LocalDriver(root, model=world, agents=agents)
    async with asyncio.timeout(SECONDS_MAX):
        return await world.driver.execute("root")


stops = st.none() | st.integers(1, 30) | st.integers(1, 80)
step_limits = st.sampled_from([None, None, 3, 8])
token_limits = st.sampled_from([None, None, 4_000])


@given(nodes, stops, step_limits, token_limits)
def test_the_root_has_used_what_the_model_of_the_whole_tree_reported(
    root: Node, stop_at: int | None, steps: int | None, tokens: int | None
) -> None:
    world = World(root, stop_at)
    state = asyncio.run(played(world, ExecutionBudget(max_steps=steps, max_tokens=tokens)))
    event(f"{state.status}, {state.stop_reason}")
    event(f"subagents: {min(len(world.nodes), 4)}")
    used, reported = state.usage, world.reported
    assert used.input_tokens >= reported.input_tokens
    assert used.output_tokens >= reported.output_tokens
    assert used.total_tokens - used.estimated_tokens <= reported.total_tokens, "what is not marked was reported"
    assert state.cost >= PRICES.cost(reported) - ROUNDING_USD
    if not world.silent:  # nothing was estimated
        assert used == reported
        assert state.cost == pytest.approx(PRICES.cost(reported), abs=ROUNDING_USD)
    assert state.usage == sum((each.usage for each in state.steps), NOTHING_USED) + _unfinished(state)


def _unfinished(state: AgentState) -> Usage:
    """What the step used that the model never answered: it is no completed one."""
    step = state.running.current_step
    return step.usage if step is not None else NOTHING_USED
