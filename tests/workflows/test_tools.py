"""Tools on a real server: slots of their own, local calls, other workers' queues, retries, cancelled threads."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.client import WorkflowHandle
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from holdfast import AgentDefinition, ToolContext, remote_tool, tool
from holdfast.client import Holdfast, Settings
from holdfast.connection.worker_settings import WorkerSettings
from holdfast.core.agent.execution_state import ExecutionStatus, call_name, named_id
from holdfast.core.agent.toolset import Toolset
from holdfast.core.conversation.steps import Outcome
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.wire.contracts import TOOLS_BUSY, waiting_queue
from holdfast.runtime.subprocesses import run_command
from holdfast.runtime.thread_interruption import CallCancelled
from holdfast.testing import Hold, ScriptedTool, scripted_tool
from holdfast.testing.script import Call, Reply, calls, say, turn_number
from tests.pids import until_gone
from tests.serving import Serve
from tests.workflows.histories import history_of, markers, replayed
from workers import make_tools_worker

pytestmark = pytest.mark.temporal

AGENT = AgentDefinition(name="tooler", tools="all")
STOPPED_SECONDS_MAX = 30.0


def hung_or_quick(request: dict[str, Any]) -> Reply:
    """One run calls a tool that hangs five times, another calls a quick one."""
    asked = request["messages"][0]["content"]
    if turn_number(request):
        return say("done")
    return calls(*[Call("hang")] * 5) if asked == "hang" else calls(Call("quick"))


async def test_hung_tools_keep_neither_model_calls_nor_other_runs_from_going_on(
    settings: Settings, serve: Serve
) -> None:
    gate = Hold()
    hang: ScriptedTool = scripted_tool("hang", gate)

    @tool(local=True, idempotent=True)
    def quick() -> str:
        """Be quick."""
        return "quick"

    narrow = WorkerSettings(tool_slots=2, waiting_slots=1, inference_slots=1)
    async with serve(hung_or_quick, [hang, quick], serving=narrow) as served:
        hung = await served.client.start(AGENT, "hang")
        await gate.until_held(3)
        free = await served.client.run(AGENT, "be quick")
        assert (await served.client.state(hung)).status is ExecutionStatus.IN_PROGRESS
        assert gate.held == 3, "the others wait for a slot"
        gate.release("let go")
        state = await served.client.result(hung)
        events = (await history_of(served.client, hung)).events
        await replayed(served.client, hung)
    assert free.output == "done"
    results = [each.result for each in state.steps[0].tool_executions]
    assert results == ["let go"] * 5
    assert len(hang.calls) == 5, "a call that was refused has not begun"
    begun = [call.context for call in hang.calls]
    assert {context.attempt for context in begun if context} == {1}
    assert len({context.idempotency_key for context in begun if context}) == 5
    queues = [event.activity_task_scheduled_event_attributes.task_queue.name for event in events]
    assert queues.count(waiting_queue(settings.task_queue)) == 3
    refused = [event.activity_task_failed_event_attributes.failure for event in events]
    assert [each.application_failure_info.type for each in refused if each.message] == [TOOLS_BUSY] * 3


@pytest.mark.slow
async def test_a_retried_call_that_finds_no_slot_keeps_counting_its_attempts(serve: Serve) -> None:
    gate, attempts = Hold(), list[int]()
    hang = scripted_tool("hang", gate)
    failed = threading.Event()

    @tool(retry_on=(ConnectionError,))
    async def flaky(context: ToolContext) -> str:
        """Fail at first."""
        attempts.append(context.attempt)
        if context.attempt == 1:
            failed.set()
            await gate.until_held(1)  # its slot is taken when it comes again
            raise ConnectionError
        raise ConnectionError

    def script(request: dict[str, Any]) -> Reply:
        asked = request["messages"][0]["content"]
        return say("done") if turn_number(request) else calls(Call("hang" if asked == "hang" else "flaky"))

    # two slots: one for each; the second hang takes the one that the failed attempt leaves
    narrow = WorkerSettings(tool_slots=1, waiting_slots=5)
    async with serve(script, [hang, flaky], serving=narrow) as served:
        run = await served.client.start(AGENT, "flaky")
        assert await asyncio.to_thread(failed.wait, 90)
        hung = await served.client.start(AGENT, "hang")
        state = await served.client.result(run)
        gate.release("let go")
        await served.client.result(hung)
    assert attempts == [1, 2, 3]
    (error,) = state.errors
    assert error.type == "ConnectionError"


async def test_a_local_tool_costs_one_event_that_its_arguments_are_not_in(serve: Serve) -> None:
    @tool(local=True, idempotent=True)
    def look(where: str) -> str:
        """Look something up."""
        return f"seen {len(where)}"

    script = [calls(Call("look", {"where": "SOMEWHERE"}), Call("look", {"where": "ELSE"})), say("done")]
    async with serve(script, [look]) as served:
        execution_id = await served.client.start(AGENT, "look")
        state = await served.client.result(execution_id)
        events = (await history_of(served.client, execution_id)).events
        await replayed(served.client, execution_id)
    assert [each.result for each in state.steps[0].tool_executions] == ["seen 9", "seen 4"]
    scheduled = [event.activity_task_scheduled_event_attributes.activity_type.name for event in events]
    assert "look" not in scheduled
    recorded = [event.marker_recorded_event_attributes.SerializeToString() for event in markers(events)]
    assert len(recorded) == 1 + 2, "what the worker offers, and the two calls"
    assert not any(b"SOMEWHERE" in each for each in recorded)


@pytest.mark.slow
async def test_every_end_of_a_local_tool_replays(serve: Serve) -> None:
    @tool(local=True, idempotent=True, timeout_seconds=2, attempts_max=2, retry_on=(ConnectionError,))
    async def odd(end: str, context: ToolContext) -> str:
        """End in any way."""
        if end == "late":
            await asyncio.sleep(5)
        if end == "wrong" or (end == "flaky" and context.attempt == 1):
            raise ConnectionError(end)
        if end == "bad":
            raise ValueError(end)
        return end

    ends = ("late", "wrong", "flaky", "bad", "fine")
    async with serve([calls(*(Call("odd", {"end": end}) for end in ends)), say("done")], [odd]) as served:
        execution_id = await served.client.start(AGENT, "all ends")
        state = await served.client.result(execution_id)
        await replayed(served.client, execution_id)
    told = [each.error.type if each.error else each.result for each in state.steps[0].tool_executions]
    assert told == ["ToolTimeout", "ConnectionError", "flaky", "ValueError", "fine"]


async def test_a_stop_waits_for_a_local_tool_no_longer_than_its_time(serve: Serve) -> None:
    gate = Hold()
    linger = scripted_tool("linger", gate, local=True, idempotent=True, timeout_seconds=2, attempts_max=1)
    async with serve([calls(Call("linger")), say("-")], [linger]) as served:
        execution_id = await served.client.start(AGENT, "linger")
        await gate.until_held()
        asked_at = time.monotonic()
        await _handle(served.client, execution_id).signal("stop")
        state = await served.client.result(execution_id)
        took_seconds = time.monotonic() - asked_at
        await replayed(served.client, execution_id)
    assert took_seconds < STOPPED_SECONDS_MAX
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.USER_REQUESTED)


async def test_a_worker_of_ours_can_serve_the_tools_of_one_queue_alone(settings: Settings, serve: Serve) -> None:
    queue = f"gpu-{uuid4()}"

    @tool(task_queue=queue)
    async def render(context: ToolContext) -> list[object]:
        """Say where it runs."""
        return [activity_queue.get_nowait(), context.attempt]

    activity_queue: asyncio.Queue[str] = asyncio.Queue()
    activity_queue.put_nowait("rendered")
    script = [calls(Call("render")), say("done")]
    async with serve(script, [render]) as served:
        execution_id = await served.client.start(AGENT, "render")
        other = make_tools_worker(
            served.client.temporal, replace(settings, task_queue=queue), Toolset(tools=(render,)), WorkerSettings()
        )
        async with other:
            state = await served.client.result(execution_id)
        events = (await history_of(served.client, execution_id)).events
    assert state.steps[0].tool_executions[0].result == '["rendered",1]'
    scheduled = [event.activity_task_scheduled_event_attributes for event in events]
    assert [each.task_queue.name for each in scheduled if each.activity_type.name == "render"] == [queue]


async def test_a_call_that_no_worker_takes_ends_and_the_model_is_told_it_has_not_begun(serve: Serve) -> None:
    lonely = remote_tool(
        name="lonely",
        description="Nobody is there.",
        parameters={"type": "object"},
        task_queue=f"nobody-{uuid4()}",
        queue_seconds_max=0.3,
        at_most_once=True,
    )
    async with serve([calls(Call("lonely")), say("went on")], [lonely]) as served:
        state = await served.client.run(AGENT, "try")
    assert state.output == "went on"
    (error,) = state.state.errors
    assert error.type == "ToolUnavailable"
    assert "not begun" in error.message


async def test_a_tool_of_a_foreign_worker_gets_its_arguments_alone_and_need_not_heartbeat(serve: Serve) -> None:
    queue, seen = f"foreign-{uuid4()}", list[tuple[str, Any]]()

    @activity.defn(name="far")
    async def far(arguments: dict[str, Any]) -> Any:  # noqa: ANN401  # any JSON
        seen.append((activity.info().activity_id, arguments))
        if arguments["n"] == 1:
            await asyncio.sleep(3)  # longer than a worker of ours may be silent
        return {"n": arguments["n"]} if arguments["n"] < 3 else {"kind": "holdfast.reply", "text": "end", "stop": "why"}

    declared = remote_tool(
        name="far",
        description="It is elsewhere.",
        parameters={"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]},
        task_queue=queue,
    )
    script = [
        calls(*(Call("far", {"n": n}) for n in (1, 2, 0)), Call("far", {"m": 1})),
        calls(Call("far", {"n": 3})),
        say("never said"),
    ]
    async with serve(script, [declared]) as served, Worker(served.client.temporal, task_queue=queue, activities=[far]):
        state = await served.client.run(AGENT, "far")
    assert [each.result or each.error for each in state.state.steps[0].tool_executions[:2]] == ['{"n":1}', '{"n":2}']
    told = [each.error.message for each in state.state.steps[0].tool_executions[2:] if each.error]
    assert told == ["$.n: 0 is less than the minimum of 1", "$: 'n' is a required property"]
    assert sorted(seen, key=str) == sorted(
        [(call_name(1, 0), {"n": 1}), (call_name(1, 1), {"n": 2}), (call_name(2, 0), {"n": 3})], key=str
    )
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.STOP_REQUESTED)
    assert state.state.steps[1].tool_executions[0].id == named_id(state.execution_id, call_name(2, 0))


UNREADABLE = {
    "half a character": Payload(metadata={"encoding": b"json/plain"}, data=b'"cut \\ud83d"'),
    "nested too deep": Payload(metadata={"encoding": b"json/plain"}, data=b"[" * 500 + b"]" * 500),
    "not JSON": Payload(metadata={"encoding": b"json/plain"}, data=b"{oops"),
    "encrypted": Payload(metadata={"encoding": b"binary/encrypted"}, data=b"?"),
}


async def test_what_a_foreign_worker_tells_unreadably_is_an_error_for_the_model_and_not_the_end(serve: Serve) -> None:
    queue = f"foreign-{uuid4()}"

    @activity.defn(name="far")
    async def far(arguments: dict[str, Any]) -> Any:  # noqa: ANN401  # any JSON
        said = RawValue(UNREADABLE[arguments["how"]])
        if not arguments["raises"]:
            return said
        raise ApplicationError("it broke", said, non_retryable=True)

    @activity.defn(name="busy")
    async def busy(_: dict[str, Any]) -> None:
        raise ApplicationError("come later", type=TOOLS_BUSY, non_retryable=True)

    declared = [
        remote_tool(name=name, description="It is elsewhere.", parameters={"type": "object"}, task_queue=queue)
        for name in ("far", "busy")
    ]
    asked = [Call("far", {"how": how, "raises": raises}) for how in UNREADABLE for raises in (False, True)]
    async with serve([calls(*asked, Call("busy")), say("went on")], declared) as served:
        async with Worker(served.client.temporal, task_queue=queue, activities=[far, busy]):
            state = await served.client.run(AGENT, "far")
        await replayed(served.client, state.execution_id)
    assert state.output == "went on"
    told = [each.error for each in state.state.steps[0].tool_executions]
    assert [each and each.type for each in told] == ["UnreadableResult", "ApplicationError"] * 4 + [TOOLS_BUSY]
    assert all(each and "has run" in each.message for each in told[:-1:2])
    assert [each and each.message for each in told[1::2]] == ["it broke"] * 4


async def test_a_stop_reaches_the_thread_of_a_sync_tool_and_the_processes_it_has_started(
    serve: Serve, tmp_path: Path
) -> None:
    noted, ended = tmp_path / "pids", threading.Event()
    program = f"import os, time; open({str(noted)!r}, 'a').write(f'{{os.getpid()}}\\n'); time.sleep(60)"
    both = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {program!r}])"

    @tool
    def build() -> str:
        """Run a command that has a child of its own."""
        try:
            return run_command([sys.executable, "-c", both], timeout_seconds=60).output
        except CallCancelled:
            ended.set()
            raise

    async with serve([calls(Call("build")), say("-")], [build]) as served:
        execution_id = await served.client.start(AGENT, "build")
        async with asyncio.timeout(90):
            while not (noted.exists() and noted.read_text().strip()):  # noqa: ASYNC110  # a file tells nobody
                await asyncio.sleep(0.02)
        asked_at = time.monotonic()
        await served.client.stop(execution_id)
        state = await served.client.result(execution_id)
        assert time.monotonic() - asked_at < STOPPED_SECONDS_MAX
        assert await asyncio.to_thread(ended.wait, STOPPED_SECONDS_MAX)
    assert [each.outcome for each in state.last_step_tool_executions] == [Outcome.CANCELLED]
    await until_gone([int(noted.read_text())])


async def test_a_stop_takes_effect_although_a_sync_tool_heeds_nothing(serve: Serve) -> None:
    begun, release = threading.Event(), threading.Event()

    @tool
    def stubborn() -> str:
        """Catch everything."""
        begun.set()
        while not release.is_set():
            try:
                release.wait(0.05)
            except BaseException:  # noqa: BLE001, S112  # the fault
                continue
        return "at last"

    async with serve([calls(Call("stubborn")), say("done")], [stubborn]) as served:
        execution_id = await served.client.start(AGENT, "hold on")
        assert await asyncio.to_thread(begun.wait, 90)
        asked_at = time.monotonic()
        await served.client.stop(execution_id)
        state = await served.client.result(execution_id)
        assert time.monotonic() - asked_at < STOPPED_SECONDS_MAX
        release.set()
    assert state.status is ExecutionStatus.STOPPED


def _handle(client: Holdfast, execution_id: str) -> WorkflowHandle[object, object]:
    return client.temporal.get_workflow_handle(execution_id)
