"""Queries beside updates and local activities: the run can be taken up again all the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest
from temporalio import activity
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse
from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowHandle, WorkflowHistory
from temporalio.worker import Replayer, Worker

import workers
from holdfast.client import Holdfast, Settings
from holdfast.connection.recorded_tasks import is_recorded
from tests.workflows.checker import Checker, check
from tests.workflows.interleaver import BRANCHES, STEPS, Interleaver, repeat
from tests.workflows.waiter import Waiter
from workers import giving_up
from workflows.replay_guard import STARTED_OVER
from workflows.workflow_runner import AgentWorkflowRunner

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(300)]

SECONDS_MAX = 90
LOOK_SECONDS = 0.05
RUNS = 20
QUERIES = 12
"""Without the guard, a third of so many runs that are asked so often could not be taken up again."""
ROUNDS_MAX = 5


def failures_in(history: WorkflowHistory) -> list[str]:
    """Return why tasks of the run have failed."""
    return [
        event.workflow_task_failed_event_attributes.failure.message
        for event in history.events
        if event.HasField("workflow_task_failed_event_attributes")
    ]


@asynccontextmanager
async def gate(client: TemporalClient, queue: str) -> AsyncGenerator[asyncio.Event]:
    """Serve the activity that ends when the event is set."""
    opened = asyncio.Event()

    @activity.defn(name="gate")
    async def wait() -> None:
        await opened.wait()

    async with Worker(client, task_queue=queue, activities=[wait]):
        yield opened


async def until(handle: WorkflowHandle[Any, Any], there: Callable[[DescribeWorkflowExecutionResponse], bool]) -> None:
    """Return once that can be said of the run's description; nobody tells of it."""
    async with asyncio.timeout(SECONDS_MAX):
        while not there((await handle.describe()).raw_description):  # noqa: ASYNC110
            await asyncio.sleep(LOOK_SECONDS)


async def test_a_query_that_waited_for_a_worker_does_not_wedge_a_run_that_gets_an_update(settings: Settings) -> None:
    client = (await Holdfast.connect(settings)).temporal
    for _ in range(ROUNDS_MAX):
        if await asked_ahead(client, settings.task_queue):
            return
    pytest.fail("the server gave the worker the task before the query, every time")


async def asked_ahead(client: TemporalClient, queue: str) -> bool:
    """Have a run asked that gets an update, and taken up again; return whether the worker got the query first."""

    def worker() -> Worker:
        return Worker(client, task_queue=queue, workflows=[Waiter], workflow_runner=AgentWorkflowRunner())

    async with gate(client, f"{queue}-gate") as opened:
        async with worker():
            id_, gated = str(uuid4()), f"{queue}-gate"
            handle: Any = await client.start_workflow(Waiter.run, gated, id=id_, task_queue=queue)
            await until(handle, lambda run: len(run.pending_activities) > 0)
        asked = asyncio.create_task(handle.query(Waiter.updates))
        await asyncio.sleep(1)  # until the server has it: nothing tells
        opened.set()
        await until(handle, lambda run: run.HasField("pending_workflow_task"))
        counted = asyncio.create_task(handle.execute_update(Waiter.count))
        await asyncio.sleep(1)  # as above
        async with worker():
            assert await counted == 1
            is_ahead = bool(await asked == 0)
        failed = failures_in(await handle.fetch_history())
        async with worker():  # another one, which has to replay
            assert await handle.execute_update(Waiter.count) == 2
            assert await handle.result() == 2
    assert failed == ([STARTED_OVER] if is_ahead else []), "the query did read ahead"
    await Replayer(workflows=[Waiter], workflow_runner=AgentWorkflowRunner()).replay_workflow(
        await handle.fetch_history()
    )
    return is_ahead


class Observer:
    """Notes which runs have left the cache."""

    def __init__(self) -> None:
        self.evicted: list[str] = []

    def cache_run(self, workflow_id: str, run_id: str) -> None:
        """Note nothing."""

    def evict_run(self, run_id: str) -> None:
        """Note that a run has left."""
        self.evicted.append(run_id)


async def test_a_run_whose_task_has_started_over_leaves_the_cache_after_a_query_and_goes_on(settings: Settings) -> None:
    client = (await Holdfast.connect(settings)).temporal
    queue, observer = settings.task_queue, Observer()
    runner = AgentWorkflowRunner(observer=observer)

    def worker() -> Worker:
        return giving_up(Worker(client, task_queue=queue, workflows=[Waiter], workflow_runner=runner), runner)

    async with gate(client, f"{queue}-gate") as opened:
        async with worker():
            id_ = str(uuid4())
            handle: Any = await client.start_workflow(Waiter.run, f"{queue}-gate", id=id_, task_queue=queue)
            await until(handle, lambda run: len(run.pending_activities) > 0)
        run_id = str(handle.result_run_id)
        observer.evicted.clear()
        runner.memory.of(run_id).evictions_left = 1  # as after a task that started over
        async with worker():
            assert await handle.query(Waiter.updates) == 0
            await until(handle, lambda _: observer.evicted == [run_id])
            opened.set()
            assert await handle.execute_update(Waiter.count) == 1
            assert await handle.query(Waiter.updates) == 1
            assert observer.evicted == [run_id], "once"
            assert await handle.execute_update(Waiter.count) == 2
            assert await handle.result() == 2
    assert failures_in(await handle.fetch_history()) == []


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("tasks", [1, 2])
async def test_a_run_whose_latest_task_is_not_recorded_leaves_the_cache_after_a_query(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tasks: int, *, recorded: bool
) -> None:
    """A task that is lost is left to chance (`tests.chaos.certificate`): here the server's answer is another one."""
    client = (await Holdfast.connect(settings)).temporal
    queue, observer, looked_up = settings.task_queue, Observer(), asyncio.Event()
    runner = AgentWorkflowRunner(observer=observer)

    async def found(temporal: TemporalClient, workflow_id: str, run_id: str, started_id: int) -> bool:
        assert await is_recorded(temporal, workflow_id, run_id, started_id)
        looked_up.set()
        return recorded

    monkeypatch.setattr(workers, "is_recorded", found)
    monkeypatch.setattr(workers, "LOOK_UP_SECONDS_MAX", SECONDS_MAX)  # a busy machine may take longer than a worker
    worker = giving_up(Worker(client, task_queue=queue, workflows=[Waiter], workflow_runner=runner), runner)
    async with gate(client, f"{queue}-gate") as opened, worker, asyncio.timeout(SECONDS_MAX):
        handle: Any = await client.start_workflow(Waiter.run, f"{queue}-gate", id=str(uuid4()), task_queue=queue)
        await until(handle, lambda run: len(run.pending_activities) > 0)
        if tasks > 1:
            opened.set()
            await until(handle, lambda run: "passed" in run.workflow_execution_info.memo.fields)
        assert await handle.query(Waiter.updates) == 0
        await looked_up.wait()
        if not recorded:
            await until(handle, lambda _: observer.evicted == [str(handle.result_run_id)])
        opened.set()
        assert await handle.execute_update(Waiter.count) == 1
        assert observer.evicted == ([] if recorded else [str(handle.result_run_id)])
        assert await handle.execute_update(Waiter.count) == 2
        assert await handle.result() == 2
    assert failures_in(await handle.fetch_history()) == []


async def test_a_run_that_has_got_a_task_while_it_is_looked_up_stays_in_the_cache(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = (await Holdfast.connect(settings)).temporal
    queue, observer = settings.task_queue, Observer()
    look_up_began, may_answer, has_answered = asyncio.Event(), asyncio.Event(), asyncio.Event()
    runner = AgentWorkflowRunner(observer=observer)

    async def found(*_: object) -> bool:
        look_up_began.set()
        await may_answer.wait()
        has_answered.set()
        return False

    monkeypatch.setattr(workers, "is_recorded", found)
    monkeypatch.setattr(workers, "LOOK_UP_SECONDS_MAX", SECONDS_MAX)
    worker = giving_up(Worker(client, task_queue=queue, workflows=[Waiter], workflow_runner=runner), runner)
    async with gate(client, f"{queue}-gate") as opened, worker, asyncio.timeout(SECONDS_MAX):
        handle: Any = await client.start_workflow(Waiter.run, f"{queue}-gate", id=str(uuid4()), task_queue=queue)
        await until(handle, lambda run: len(run.pending_activities) > 0)
        assert await handle.query(Waiter.updates) == 0
        await look_up_began.wait()
        opened.set()
        assert await handle.execute_update(Waiter.count) == 1
        may_answer.set()
        await has_answered.wait()
        assert await handle.query(Waiter.updates) == 1
        assert observer.evicted == []
        assert await handle.execute_update(Waiter.count) == 2
        assert await handle.result() == 2


@pytest.mark.slow
async def test_queries_during_local_activities_leave_a_history_that_replays(settings: Settings) -> None:
    client = (await Holdfast.connect(settings)).temporal
    queue, runner = settings.task_queue, AgentWorkflowRunner()

    async def asked() -> WorkflowHandle[Any, list[int]]:
        handle = await client.start_workflow(Interleaver.run, id=str(uuid4()), task_queue=queue)
        for _ in range(QUERIES):
            await handle.query(Interleaver.order)
        assert sorted(await handle.result()) == [*range(BRANCHES * STEPS)]
        return handle

    started_over = 0
    async with Worker(client, task_queue=queue, workflows=[Interleaver], activities=[repeat], workflow_runner=runner):
        for _ in range(ROUNDS_MAX):
            handles = await asyncio.gather(*(asked() for _ in range(RUNS)))
            histories = [await handle.fetch_history() for handle in handles]
            replayer = Replayer(workflows=[Interleaver], workflow_runner=runner)
            for history in histories:
                await replayer.replay_workflow(history)
            started_over += sum(STARTED_OVER in failures_in(history) for history in histories)
            if started_over:
                break
    assert started_over, "no query has met a local activity: this has shown nothing"


async def test_a_query_beside_the_local_activity_of_an_update_does_not_wedge_its_run(settings: Settings) -> None:
    client = (await Holdfast.connect(settings)).temporal
    queue = settings.task_queue

    def worker() -> Worker:
        return Worker(
            client, task_queue=queue, workflows=[Checker], activities=[check], workflow_runner=AgentWorkflowRunner()
        )

    async def beside() -> bool:
        async with worker():
            handle: Any = await client.start_workflow(Checker.run, id=str(uuid4()), task_queue=queue)
            await until(handle, lambda run: not run.HasField("pending_workflow_task"))
        await handle.signal("unheard")  # a task that is kept: an update alone has none
        checked = asyncio.create_task(handle.execute_update(Checker.checked, 1))
        await until(handle, lambda run: run.HasField("pending_workflow_task"))
        asked = asyncio.create_task(handle.query(Checker.slow))
        await asyncio.sleep(1)  # until the server has it, which the task then brings along: nothing tells
        async with worker(), asyncio.timeout(SECONDS_MAX):
            assert await checked == 1
            assert await asked in (0, 1)  # before the update, or behind it
            assert await handle.execute_update(Checker.checked, 2) == 2
            assert await handle.result() == [1, 2]
        history = await handle.fetch_history()
        await Replayer(workflows=[Checker], workflow_runner=AgentWorkflowRunner()).replay_workflow(history)
        return STARTED_OVER in failures_in(history)

    for _ in range(ROUNDS_MAX):
        if await beside():
            return
    pytest.fail("no local activity has ended beside its query: this has shown nothing")
