"""The metrics of a real worker say what its runs have come to, exactly: read while it serves, replays or not."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping

import pytest

from holdfast import AgentDefinition, ExecutionBudget, tool
from holdfast.client import Settings
from holdfast.connection.temporal_client import core_runtime
from holdfast.connection.worker_settings import WorkerSettings
from holdfast.core.agent.definition import LLM
from holdfast.core.agent.execution_state import call_name, named_id
from holdfast.core.agent.policies import ApprovalRule
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.errors import ExecutionFailed, InvalidInput, PortTaken
from holdfast.core.base.usage import Prices
from holdfast.core.conversation.verdicts import Verdict
from holdfast.core.wire.execution_events import AgentExecutionCompleted, AgentExecutionFailed
from holdfast.core.wire.metric_definitions import OTHER, Labels
from holdfast.sinks.sink import Batch, SinkAway
from holdfast.telemetry.metrics_endpoint import metrics_address
from holdfast.testing.script import Call, Reply, call, calls, say
from tests.sinks.delivering import end_sink, until
from tests.telemetry.scraping import Metered, free_port, labels_of, metered
from tests.telemetry.test_traces import by_agent
from tests.telemetry.watching import PROMETHEUS_OWN, named_in_rules_and_dashboard
from tests.workflows.waiting import waiting_calls

LAZY = WorkerSettings(cached_runs=0, grace_seconds=0.1)
"""Every workflow task replays its run from the beginning."""

MODEL = LLM(model="scripted", prices=Prices(input_usd=1, output_usd=2))
WORDS = "words of the model"


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


SCRIPT = by_agent(
    boss=[
        calls(Call("add", {"a": 1, "b": 2}), Call("add", {"a": 1}), Call("no_tool_of_ours")),
        calls(Call("spawn", {"agent": "helper", "task": "help"})),
        say("done", failures=(Reply(status=500, text="busy"),)),
    ],
    helper=[
        call("add", a=1, b=2),
        say("helped", usage_details={"prompt_tokens_details": {"cached_tokens": 5}}),
    ],
    spender=[call("add", a=1, b=2), say("never said")],
    waiter=[call("wait")],
    asker=[call("add", a=3, b=4), say("allowed")],
    refused=[Reply(status=401, text=WORDS)],
)


def agent(name: str, **rules: object) -> AgentDefinition:
    return AgentDefinition.model_validate({"name": name, "tools": "all", "system_prompt": name, "llm": MODEL, **rules})


class Taking:
    """A sink that is away at first, and takes everything then."""

    name = "taking"

    def __init__(self) -> None:
        self.taken = 0
        self.ended = set[str]()
        self._away = True

    async def open(self) -> None:
        """Nothing to open."""

    async def deliver(self, batch: Batch) -> None:
        """Count what comes."""
        if self._away:
            self._away = False
            raise SinkAway("not yet", after=0.01)
        self.taken += len(batch.events)
        ends = (AgentExecutionCompleted, AgentExecutionFailed)
        self.ended |= {each.event.execution_id for each in batch.events if isinstance(each.event, ends)}

    async def close(self) -> None:
        """Nothing to close."""


async def ran(here: Metered, begun: asyncio.Event) -> dict[str, AgentState]:
    """Have one run of each kind, and return how each has ended."""
    client = here.client
    boss = agent("boss", subagents=("helper",))
    boss_id = await client.start(boss, WORDS, subagents=[agent("helper")], budget=ExecutionBudget(max_steps=10))
    spender_id = await client.start(agent("spender"), "go", budget=ExecutionBudget(max_steps=1, max_seconds=60))
    asker_id = await client.start(agent("asker", approvals=[ApprovalRule(tools=("add",))]), "go")
    waiter_id = await client.start(agent("waiter"), "go")
    refused_id = await client.start(agent("refused"), "go")
    (call_id,) = await waiting_calls(client, asker_id)
    await client.decide(asker_id, call_id, Verdict(decision="approve"))
    await begun.wait()
    await client.stop(waiter_id, WORDS)
    with pytest.raises(ExecutionFailed):
        await client.result(refused_id)
    ids = {
        "boss": boss_id,
        "helper": named_id(boss_id, call_name(2, 0)),
        "spender": spender_id,
        "asker": asker_id,
        "waiter": waiter_id,
    }
    return {name: await client.result(id_) for name, id_ in ids.items()} | {"refused": await client.state(refused_id)}


def check_tokens_and_cost(here: Metered, states: Mapping[str, AgentState]) -> None:
    helper = states["helper"]
    tokens = here.told("holdfast_tokens_total", "agent", "model", "direction")
    assert here.told("holdfast_token_parts_total", "agent", "part") == {("helper", "cached"): 5}
    for name, state in states.items():
        own = helper.usage if name == "boss" else None
        used_in = state.usage.input_tokens - (own.input_tokens if own else 0)
        assert tokens.get((name, "scripted", "input"), 0) == used_in
        used_out = state.usage.output_tokens - (own.output_tokens if own else 0)
        assert tokens.get((name, "scripted", "output"), 0) == used_out
    cost = sum(here.told("holdfast_cost_usd_sum", "model").values())
    assert cost == pytest.approx(sum(state.cost for state in states.values()) - helper.cost)


@pytest.mark.slow
@pytest.mark.temporal
async def test_every_number_is_what_the_runs_say(settings: Settings) -> None:
    begun = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait for ever."""
        begun.set()
        await asyncio.Event().wait()
        return "never"

    sink = Taking()
    async with metered(settings, SCRIPT, Toolset(tools=(add, wait)), sinks=[sink]) as here:
        states = await ran(here, begun)
        asked = len(here.endpoint.requests)
        helper, boss = states["helper"], states["boss"]
        assert here.told("holdfast_executions_started_total", "agent") == {(name,): 1 for name in states}
        assert here.told("holdfast_executions_ended_total", "agent", "status", "stop_reason") == {
            ("boss", "completed", "completed"): 1,
            ("helper", "completed", "completed"): 1,
            ("spender", "stopped", "steps_limit"): 1,
            ("asker", "completed", "completed"): 1,
            ("waiter", "stopped", "user_requested"): 1,
            ("refused", "failed", "error"): 1,
        }
        steps = {(name,): float(state.step_count) for name, state in states.items()}
        assert here.told("holdfast_steps_total", "agent") == {name: count for name, count in steps.items() if count}
        check_tokens_and_cost(here, states)
        assert here.told("holdfast_tool_call_seconds_count", "agent", "tool", "outcome") == {
            ("boss", "add", "succeeded"): 1,
            ("boss", "add", "failed"): 1,
            ("boss", "unknown", "failed"): 1,
            ("boss", "spawn", "succeeded"): 1,
            ("helper", "add", "succeeded"): 1,
            ("spender", "add", "succeeded"): 1,
            ("asker", "add", "succeeded"): 1,
            ("waiter", "wait", "cancelled"): 1,
        }
        assert here.told("holdfast_approvals_requested_total", "agent") == {("asker",): 1}
        assert here.told("holdfast_approval_wait_seconds_count", "agent", "decision") == {("asker", "approve"): 1}
        assert here.told("holdfast_stop_latency_seconds_count", "agent") == {("waiter",): 1}
        uses = here.told("holdfast_budget_use_ratio_sum", "agent", "kind")
        assert helper.budget.max_steps is not None
        assert uses["boss", "steps"] == pytest.approx(boss.steps_used / 10)
        assert uses["spender", "steps"] == 1
        assert 0 < uses["spender", "seconds"] < 1
        assert uses["helper", "steps"] == pytest.approx(2 / helper.budget.max_steps)
        assert set(uses) == {("boss", "steps"), ("helper", "steps"), ("spender", "steps"), ("spender", "seconds")}
        requests = here.told("holdfast_model_call_seconds_count", "model", "outcome")
        assert sum(requests.values()) == asked
        failures = here.told("holdfast_model_call_failures_total", "model", "type")
        assert set(failures) == {("scripted", "ProviderUnavailable"), ("scripted", "NotAuthorised")}
        assert sum(failures.values()) == requests["scripted", "failed"]
        await until(lambda: len(sink.ended) == len(states), lambda: sink.ended)
        await until(lambda: here.told("holdfast_sink_events_total", "sink") == {("taking",): sink.taken}, here.samples)
        assert here.told("holdfast_sink_failures_total", "sink", "type") == {("taking", "away"): 1}
        samples = here.samples()
    await end_sink(here.client.temporal, settings, sink.name)
    assert named_in_rules_and_dashboard() <= {sample.name for sample in samples} | PROMETHEUS_OWN
    said = labels_of(samples)
    assert {"agent", "model", "tool", "outcome", "status", "stop_reason", "task_queue"} < set(said)
    told = " ".join(value for values in said.values() for value in values)
    for private in (WORDS, "no_tool_of_ours", "test-key", *(state.agent_id for state in states.values())):
        assert private not in told


@pytest.mark.slow
@pytest.mark.temporal
async def test_no_replay_counts_anything_again(settings: Settings) -> None:
    begun, free = asyncio.Event(), asyncio.Event()

    @tool(idempotent=True)
    async def hold() -> str:
        """Wait to be let go."""
        begun.set()
        await free.wait()
        return "held"

    offer, address = Toolset(tools=(add, hold)), f"127.0.0.1:{free_port()}"
    script = by_agent(mover=[call("add", a=1, b=2), call("hold"), say("done")])
    async with metered(settings, script, offer, LAZY, address) as first:
        id_ = await first.client.start(agent("mover"), "go")
        await begun.wait()
    free.set()
    async with metered(settings, script, offer, LAZY, address) as second:
        state = await second.client.result(id_)
        requests = len(first.endpoint.requests) + len(second.endpoint.requests)
        told = {sample.name: 0.0 for sample in second.samples() if sample.name.startswith("holdfast_")}
        for name in told:
            told[name] = sum(second.told(name, "agent").values())
    assert told["holdfast_executions_started_total"] == told["holdfast_executions_ended_total"] == 1
    assert told["holdfast_steps_total"] == 3
    assert told["holdfast_model_call_seconds_count"] == requests
    assert told["holdfast_tokens_total"] == state.usage.total_tokens
    assert told["holdfast_cost_usd_sum"] == pytest.approx(state.cost)
    assert told["holdfast_tool_call_seconds_count"] == 2
    assert "holdfast_stop_latency_seconds_count" not in told


def test_names_beyond_the_limit_are_counted_together() -> None:
    labels = Labels(labels_max=2)
    assert [labels.of(name) for name in ("a", "b", "c", "a", "d")] == ["a", "b", OTHER, "a", OTHER]


@pytest.mark.parametrize(
    ("given", "environment", "address"),
    [
        (None, {}, None),
        ("9464", {"HOLDFAST_METRICS": "0.0.0.0:1"}, "127.0.0.1:9464"),
        (None, {"HOLDFAST_METRICS": "0.0.0.0:9464"}, "0.0.0.0:9464"),
        ("localhost:9464", {}, "127.0.0.1:9464"),
        ("[::1]:9464", {}, "[::1]:9464"),
    ],
)
def test_the_address_is_told_as_a_port_or_as_host_and_port(
    given: str | None, environment: dict[str, str], address: str | None
) -> None:
    assert metrics_address(given, environment) == address


@pytest.mark.parametrize(
    "given", ["nonsense", "example.com:80", "256.1.1.1:80", "127.0.0.1:0", "127.0.0.1:65536", ":80"]
)
def test_what_is_no_address_is_refused(given: str) -> None:
    with pytest.raises(InvalidInput, match="give HOST:PORT"):
        metrics_address(given, {})


def test_an_address_that_is_taken_or_not_ours_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortTaken, match=f"127.0.0.1:{port} is taken.*--metrics"):
            core_runtime(f"127.0.0.1:{port}")
    with pytest.raises(InvalidInput, match="cannot be used"):
        core_runtime("192.0.2.1:9464")
