"""Rate limits of routes on a real server: one queue for all workers, waits that count as nothing, and stops."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import ExitStack, aclosing, asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
import yaml
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import ActivityTaskScheduledEventAttributes

from holdfast import LLM, AgentDefinition, ExecutionBudget
from holdfast.client import Holdfast, RateLimitAwaited, Settings
from holdfast.client.run_source import RunSource
from holdfast.core.agent.model import Model
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.errors import ExecutionFailed
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.wire.contracts import INFERENCE_ACTIVITY, limited_queue
from holdfast.core.wire.endpoint_refusals import ROUTE_RESTS
from holdfast.models.routed_model import RoutedModel
from holdfast.models.routes import RateLimits, Route
from holdfast.server.worker_process import WorkerProcess, worker_command, worker_environment
from holdfast.testing import Reply, ScriptedModel, say
from holdfast.testing.openai_server import FakeOpenAI
from tests.workflows.histories import history_of, replayed
from workers import make_worker
from workflows.execution.model_queue import INTERACTIVE

READY_SECONDS_MAX: Final = 90

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(180)]

AGENT = AgentDefinition(name="clerk", llm=LLM(model="large"))


def table(endpoint: FakeOpenAI, limits: Mapping[str, int]) -> RoutedModel:
    fields: dict[str, Any] = {"api": "openai_chat", "model": "m", "base_url": endpoint.base_url}
    routes = {"large": {**fields, "rate_limits": limits}, "small": {**fields, "model": "s"}}
    known = {name: Route.model_validate(each) for name, each in routes.items()}
    return RoutedModel(ScriptedModel([say("own")]), known, {})


@asynccontextmanager
async def worker(settings: Settings, endpoint: FakeOpenAI, limits: Mapping[str, int]) -> AsyncGenerator[Holdfast]:
    """Run a worker with such a route in this process."""
    client, model = await Holdfast.connect(settings), table(endpoint, limits)
    try:
        async with make_worker(client.temporal, settings, Toolset(), model):
            yield client
    finally:
        await model.close()


@contextmanager
def processes(
    settings: Settings, endpoint: FakeOpenAI, limits: Mapping[str, int], folder: Path
) -> Generator[Callable[[], WorkerProcess]]:
    """Return what starts a worker with such a route, in a process of its own."""
    file = folder / "models.yaml"
    route = {"api": "openai_chat", "model": "m", "base_url": endpoint.base_url, "rate_limits": dict(limits)}
    file.write_text(yaml.safe_dump({"models": {"large": route}}))
    at_work = replace(settings, agents_dir=folder / "agents", models_file=file)
    with ExitStack() as stack:
        yield lambda: stack.enter_context(
            WorkerProcess(worker_command(at_work, []), lambda _: None, worker_environment())
        )


async def until_ready(*workers: WorkerProcess) -> None:
    for each in workers:
        assert await asyncio.to_thread(each.wait_until_ready, READY_SECONDS_MAX)


async def scheduled_queues(client: Holdfast, execution_id: str) -> list[str]:
    return [each.task_queue.name for each in await scheduled_calls(client, execution_id)]


async def scheduled_calls(client: Holdfast, execution_id: str) -> list[ActivityTaskScheduledEventAttributes]:
    """Return a run's model calls as its history has them."""
    history = await history_of(client, execution_id)
    kind = EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
    scheduled = (each.activity_task_scheduled_event_attributes for each in history.events if each.event_type == kind)
    return [each for each in scheduled if each.activity_type.name == INFERENCE_ACTIVITY]


async def call_given_out_at(client: Holdfast, execution_id: str) -> float:
    """Return when the server gave a run's only model call to a worker, in seconds since 1970."""
    history = await history_of(client, execution_id)
    [call] = [
        each.event_id
        for each in history.events
        if each.activity_task_scheduled_event_attributes.activity_type.name == INFERENCE_ACTIVITY
    ]
    [started] = [
        each.event_time
        for each in history.events
        if each.activity_task_started_event_attributes.scheduled_event_id == call
    ]
    return started.ToNanoseconds() / 1e9


async def until_waiting(client: Holdfast, execution_id: str) -> RateLimitAwaited:
    """Return what a watcher of the run is told of its wait, once `show` says the same."""
    async with aclosing(client.watch(execution_id)) as watched:
        async for each in watched:
            if isinstance(each, RateLimitAwaited):
                shown = await (await RunSource.find(client, execution_id)).rate_wait()
                assert shown == each
                return each
    raise AssertionError("it did not wait")


async def stopped(client: Holdfast, execution_id: str) -> AgentState:
    """Stop the run and return its state, which has to come at once."""
    began = time.monotonic()
    await client.stop(execution_id, "enough")
    state = await client.result(execution_id)
    assert time.monotonic() - began < 10
    assert isinstance(state, AgentState)
    assert state.stop_reason is StopReason.USER_REQUESTED
    return state


@pytest.mark.slow
async def test_two_workers_together_keep_to_the_limit(settings: Settings, tmp_path: Path) -> None:
    limit, runs = 240, 24
    async with FakeOpenAI(lambda _: say("done")) as endpoint:
        with processes(settings, endpoint, {"requests_per_minute": limit}, tmp_path) as start:
            await until_ready(start(), start())
            client = await Holdfast.connect(settings)
            states = await asyncio.gather(*(client.run(AGENT, "go") for _ in range(runs)))
            execution_ids = [each.state.running.execution_id for each in states]
            assert await scheduled_queues(client, execution_ids[0]) == [limited_queue(settings.task_queue, "large")]
            await replayed(client, execution_ids[0])
            times = [await call_given_out_at(client, each) for each in execution_ids]
    used = [each.state.usage for each in states]
    # an attempt that was lost on a busy machine counts as estimated
    assert {each.total_tokens - each.estimated_tokens for each in used} == {120}
    # the server gives out 3.8 a second, the first 4 at once; each worker by itself the same, and the first 7 at once,
    # so that two would be through after 1.3 s. The server's own times: requests bunch up before a busy worker
    assert max(times) - min(times) >= 0.7 * (runs - 4) / (0.95 * limit / 60)


async def test_a_call_that_waits_in_its_queue_is_shown_and_stopped_at_once(settings: Settings) -> None:
    async with (
        FakeOpenAI(lambda _: say("done")) as endpoint,
        worker(settings, endpoint, {"requests_per_minute": 1}) as client,
    ):
        await client.run(AGENT, "first")
        execution_id = await client.start(AGENT, "second")
        awaited = await until_waiting(client, execution_id)
        assert awaited == RateLimitAwaited(execution_id, 1, "the rate limit of the route 'large'")
        state = await stopped(client, execution_id)
        history = await history_of(client, execution_id)
        await replayed(client, execution_id)
    assert state.usage.total_tokens == 0
    assert len(endpoint.requests) == 1
    kind = EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
    scheduled = next(each for each in history.events if each.event_type == kind)
    begun = [each.activity_task_started_event_attributes.scheduled_event_id for each in history.events]
    assert scheduled.event_id not in begun
    assert b"rate-limited" in scheduled.user_metadata.summary.data


@pytest.mark.slow
async def test_a_call_that_waits_in_its_worker_is_shown_and_stopped_at_once(settings: Settings) -> None:
    refused = Reply(status=429, text="slow down", headers={"retry-after": "1000000000"})
    impatient = AGENT.model_copy(update={"model_patience_seconds": 0})
    async with (
        FakeOpenAI(lambda _: refused) as endpoint,
        worker(settings, endpoint, {"requests_per_minute": 6_000}) as client,
    ):
        with pytest.raises(ExecutionFailed, match="slow down"):
            await client.run(impatient, "first")
        execution_id = await client.start(AGENT, "second")
        awaited = await until_waiting(client, execution_id)
        assert awaited.line == "waits for the provider of the route 'large', which allows nothing for now"
        state = await stopped(client, execution_id)
    assert state.usage.total_tokens == 0
    assert len(endpoint.requests) == 1


@pytest.mark.slow
@pytest.mark.parametrize("end", ["kill", "drain"])
async def test_a_call_that_waits_in_a_worker_that_ends_is_made_by_another(
    settings: Settings, tmp_path: Path, end: str
) -> None:
    refused = Reply(status=429, text="slow down", headers={"retry-after": "300"})
    impatient = AGENT.model_copy(update={"model_patience_seconds": 0})
    answers = iter([refused])
    async with FakeOpenAI(lambda _: next(answers, say("done"))) as endpoint:
        with processes(settings, endpoint, {"requests_per_minute": 6_000}, tmp_path) as start:
            first = start()
            await until_ready(first)
            client = await Holdfast.connect(settings)
            with pytest.raises(ExecutionFailed, match="slow down"):
                await client.run(impatient, "first")
            execution_id = await client.start(AGENT, "second")
            await until_waiting(client, execution_id)
            await until_ready(start())
            await asyncio.to_thread(first.kill if end == "kill" else first.stop)
            state = await client.result(execution_id)
        assert isinstance(state, AgentState)
        assert state.final_response == "done"
        assert end == "kill" or not state.usage.estimated_tokens, "what only waited has used nothing"
        assert len(endpoint.requests) == 2


@pytest.mark.slow
async def test_a_queue_that_no_worker_serves_is_told_and_the_runs_time_ends_it(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_of(_: Model) -> dict[str, RateLimits]:
        return {}

    monkeypatch.setattr("workers.limits_of", none_of)
    async with (
        FakeOpenAI(lambda _: say("done")) as endpoint,
        worker(settings, endpoint, {"requests_per_minute": 60}) as client,
    ):
        execution_id = await client.start(AGENT, "go", budget=ExecutionBudget(max_seconds=5))
        awaited = await until_waiting(client, execution_id)
        state = await client.result(execution_id)
    queue = limited_queue(settings.task_queue, "large")
    assert awaited.reason == f"a worker of the task queue {queue!r}: none has lately asked for work"
    assert isinstance(state, AgentState)
    assert state.stop_reason is StopReason.TIME_LIMIT
    assert not endpoint.requests


@pytest.mark.slow
async def test_sessions_go_before_plain_runs(settings: Settings) -> None:
    def words(body: dict[str, Any]) -> str:
        return str(body["messages"][-1]["content"])

    async with (
        FakeOpenAI(lambda body: say(words(body))) as endpoint,
        worker(settings, endpoint, {"requests_per_minute": 8}) as client,
    ):
        runs = [await client.start(AGENT, "batch 0")]
        await endpoint.until(lambda requests: len(requests) == 1, READY_SECONDS_MAX)  # no other goes at once after it
        runs += [await client.start(AGENT, f"batch {number}") for number in (1, 2)]
        await until_waiting(client, runs[-1])
        person = client.agent(str(uuid4()), AGENT, tenant="acme")
        await person.send("hello")
        for each in runs:
            await client.result(each)
        asked = [words(each.body) for each in endpoint.requests]
        view = await person.view()
        answered = view.running_id or view.last_id
        assert answered is not None
        scheduled = await scheduled_calls(client, answered)
    assert [(each.priority.priority_key, each.priority.fairness_key) for each in scheduled] == [(INTERACTIVE, "acme")]
    assert len(asked) == 4
    assert asked.index("hello") < 3


async def test_a_wait_in_the_queue_takes_nothing_of_the_patience_with_the_endpoint(settings: Settings) -> None:
    """A call may be tried for 1.5 seconds; each of its three attempts waits two for the limit."""
    busy = Reply(status=503, text="busy")
    patient = AGENT.model_copy(update={"model_patience_seconds": 1.5})
    async with (
        FakeOpenAI([say("done", failures=(busy, busy))]) as endpoint,
        worker(settings, endpoint, {"requests_per_minute": 30}) as client,
    ):
        ran = await client.run(patient, "go")
    times = [each.started_at for each in endpoint.requests]
    assert ran.state.final_response == "done"
    assert times[2] - times[0] >= 3.0


@pytest.mark.slow
async def test_a_run_falls_back_where_its_provider_allows_nothing_for_minutes(settings: Settings) -> None:
    refused = Reply(status=429, text="slow down", headers={"retry-after": "300"})
    fallback = AgentDefinition(name="clerk", llm=LLM.model_validate({"model": "large", "fallback": ["small"]}))
    async with (
        FakeOpenAI(lambda body: refused if body["model"] == "m" else say("done")) as endpoint,
        worker(settings, endpoint, {"requests_per_minute": 6_000}) as client,
    ):
        async with asyncio.timeout(90):
            states = [(await client.run(fallback, "go")).state for _ in range(2)]
    assert [each.final_response for each in states] == ["done", "done"]
    errors = [each.steps[0].fallbacks[0].error for each in states]
    assert [each.type for each in errors] == [ROUTE_RESTS, ROUTE_RESTS]
    assert all("allows nothing for another" in each.message for each in errors)
    assert sum(each.body["model"] == "m" for each in endpoint.requests) == 1


async def test_only_calls_to_limited_routes_leave_their_workers_queue(settings: Settings) -> None:
    fallback = AgentDefinition(name="clerk", llm=LLM.model_validate({"model": "small", "fallback": ["large"]}))
    no_credit = Reply(status=402, text="no credit")
    async with (
        FakeOpenAI(lambda body: no_credit if body["model"] == "s" else say("done")) as endpoint,
        worker(settings, endpoint, {"requests_per_minute": 600}) as client,
    ):
        ran = await client.run(fallback, "go")
        queues = await scheduled_queues(client, ran.state.running.execution_id)
    assert queues == [settings.task_queue, limited_queue(settings.task_queue, "large")]


async def test_routes_without_limits_have_the_history_that_they_had(settings: Settings) -> None:
    small = AgentDefinition(name="clerk", llm=LLM(model="small"))
    kinds = list[list[int]]()
    for limits in ({"requests_per_minute": 600}, {}):
        async with FakeOpenAI(lambda _: say("done")) as endpoint, worker(settings, endpoint, limits) as client:
            ran = await client.run(small, "go")
            history = await history_of(client, ran.state.running.execution_id)
            kinds.append([each.event_type for each in history.events])
            assert await scheduled_queues(client, ran.state.running.execution_id) == [settings.task_queue]
    assert kinds[0] == kinds[1]
