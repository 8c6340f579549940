"""Hooks on a real server: what they write into the history, and that what they did once is never done again."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from pathlib import Path
from random import Random
from typing import Any, Final, cast

import pytest

from holdfast import AgentDefinition, ExecutionStatus, tool
from holdfast.client import Settings
from holdfast.connection.worker_settings import WorkerSettings
from holdfast.core.agent.hooks import Changes, Hook, HookContext, HookFunction, Trigger, hook
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.errors import ExecutionFailed
from holdfast.testing.script import Call, Reply, call, calls, say, turn_number
from tests.serving import Serve, served
from tests.workflows.histories import history_of, markers, replayed, taken, written
from workflows.search_attributes import LISTED_STEPS

pytestmark = pytest.mark.temporal

AGENT = AgentDefinition(name="hooked", tools="all", hooks="all")
IN_EACH_STEP = 6
"""The places that a step with one tool call passes."""
CANARY = "kestrel-7719"
LISTED: Final = "upsert_workflow_search_attributes_event_attributes"


@tool
def read(size: int, seed: int = 0) -> str:
    """Return so many characters that do not compress."""
    return Random(seed).randbytes(size // 2).hex()  # noqa: S311  # not a secret


def at_every_place(function: HookFunction) -> tuple[Hook, ...]:
    return tuple(hook(trigger, name=f"at_{trigger}")(function) for trigger in Trigger)


def nothing(_: HookContext) -> None:
    return None


def as_often_as_asked(request: dict[str, Any]) -> Reply:
    steps = int(request["messages"][0]["content"].split()[0])
    number = turn_number(request)
    return call("read", size=2_048, seed=number) if number < steps else say("done")


@pytest.mark.slow
async def test_what_hooks_are_shown_is_in_no_history(serve: Serve) -> None:
    seen: dict[str, list[bool]] = {}

    def look(context: HookContext) -> None:
        seen.setdefault(context.trigger, []).append(CANARY in str(context.messages) and CANARY in str(context.metadata))

    counts: list[int] = []
    for hooks in ((), at_every_place(look)):
        async with serve(as_often_as_asked, offer=Toolset(tools=(read,), hooks=hooks)) as served:
            agent = AgentDefinition(name="hooked", tools="all", hooks="all", metadata={"note": CANARY})
            execution_id = await served.client.start(agent, f"3 {CANARY}")
            await served.client.result(execution_id)
            counts.append(written((await history_of(served.client, execution_id)).events).count(CANARY.encode()))
    assert counts[0] == counts[1] > 0
    assert set(seen) == {each.value for each in Trigger} - {"on_error"}
    assert all(seen["before_step"])


@pytest.mark.slow
async def test_a_place_costs_one_event_and_a_step_the_same_bytes_early_and_late(serve: Serve) -> None:
    offer = Toolset(tools=(read,), hooks=at_every_place(nothing))
    async with serve(as_often_as_asked, offer=offer) as served:
        execution_id = await served.client.start(AGENT, "60 steps")
        state = await served.client.result(execution_id)
        history = taken((await history_of(served.client, execution_id)).events)
    events = [event for event in history if not event.HasField(LISTED)]
    assert state.step_count == 61
    begun = {
        event.activity_task_scheduled_event_attributes.activity_id: place
        for place, event in enumerate(events)
        if event.HasField("activity_task_scheduled_event_attributes")
    }

    def per_step(first: int, last: int) -> float:
        between = events[begun[f"step-{first}-model"] : begun[f"step-{last}-model"]]
        assert len(between) == (12 + IN_EACH_STEP) * (last - first)
        return len(written(between)) / (last - first)

    assert per_step(40, 60) == pytest.approx(per_step(2, 20), rel=0.05)
    # one for the tools, one for each place; the first step has the input guard, the last one no tool
    assert len(markers(events)) == 1 + 1 + 1 + 60 * IN_EACH_STEP + 4 + 2
    # how far it is, at its own rate, and its end
    assert len(history) - len(events) == 60 // LISTED_STEPS + 1


async def test_hooks_at_the_same_place_cost_one_event_together(serve: Serve) -> None:
    many = tuple(hook("before_step", name=f"{'long_' * 11}{number:04}")(nothing) for number in range(60))
    async with serve([say("done")], offer=Toolset(hooks=many)) as served:
        execution_id = await served.client.start(AGENT, "?")
        state = await served.client.result(execution_id)
        events = (await history_of(served.client, execution_id)).events
    assert state.status is ExecutionStatus.COMPLETED
    assert len(markers(events)) == 2


@pytest.mark.slow
async def test_a_hook_of_a_run_that_is_replayed_at_each_step_runs_once(serve: Serve) -> None:
    told: list[str] = []

    def tell(context: HookContext) -> Changes:
        about = f" {context.call.id}" if context.call else ""
        told.append(f"{context.trigger} {context.step_number}{about}")
        return Changes(metadata={f"{len(told)}": context.trigger})

    offer, forgetful = Toolset(tools=(read,), hooks=at_every_place(tell)), WorkerSettings(cached_runs=0)
    async with serve(as_often_as_asked, offer=offer, serving=forgetful) as served:
        execution_id = await served.client.start(AGENT, "4 steps")
        state = await served.client.result(execution_id)
        await replayed(served.client, execution_id)
    assert len(told) == len(set(told)) == 1 + 1 + 4 * IN_EACH_STEP + 4 + 2
    assert [state.metadata[str(number + 1)] for number in range(len(told))] == [each.split()[0] for each in told]


async def test_new_code_of_a_hook_does_not_disturb_a_run_that_passed_it(settings: Settings, tmp_path: Path) -> None:
    ran: list[str] = []

    def version(text: str, stop: str | None = None) -> Hook:
        def note(_: HookContext) -> Changes:
            ran.append(text)
            return Changes(metadata={"noted": text}, stop=stop)

        return hook("before_execution", name="note")(note)

    ledger, script = tmp_path / "ledger.jsonl", [say("done", failures=(Reply(hang=True),))]
    brief = WorkerSettings(grace_seconds=0.1)
    async with served(settings, ledger, script, Toolset(hooks=(version("old"),)), serving=brief) as before:
        execution_id = await before.client.start(AGENT, "?")
        await before.endpoint.until(lambda requests: len(requests) == 1)
    async with served(settings, ledger, [say("done")], Toolset(hooks=(version("new", stop="no more"),))) as after:
        state = await after.client.result(execution_id)
    assert (state.final_response, state.metadata["noted"], ran) == ("done", "old", ["old"])


class Boom(Exception):
    pass


def raising(error: BaseException) -> HookFunction:
    def fail(_: HookContext) -> None:
        raise error

    return fail


def sleeping(_: HookContext) -> None:
    time.sleep(5)


async def waiting(_: HookContext) -> None:
    await asyncio.Event().wait()


async def exiting(_: HookContext) -> None:
    raise SystemExit(3)


async def cancelling(_: HookContext) -> None:
    raise asyncio.CancelledError


def untyped(_: HookContext) -> dict[str, str]:
    return {"stop": "?"}


FAULTS: dict[str, tuple[HookFunction, str]] = {
    "a sync hook that hangs": (sleeping, "took longer than 0.2 s"),
    "an async hook that hangs": (waiting, "took longer than 0.2 s"),
    "a sync hook that exits": (raising(SystemExit(3)), "raised SystemExit: 3"),
    "an async hook that exits": (exiting, "raised SystemExit: 3"),
    "a hook that interrupts": (raising(KeyboardInterrupt()), "raised KeyboardInterrupt"),
    "a hook that cancels itself": (cancelling, "raised CancelledError"),
    "a sync hook that stops its iteration": (raising(StopIteration("over")), "raised StopIteration"),
    "a lone surrogate": (raising(Boom("odd \udc80 text")), "raised Boom: odd ? text"),
    "a megabyte of text": (raising(Boom("x" * 1_000_000)), "raised Boom: xxx"),
    "a megabyte of changes": (lambda _: Changes(metadata={"big": "x" * 1_000_000}), "returned changes of 1,000,"),
    "something else": (cast("HookFunction", untyped), "returned a dict"),
}


@pytest.mark.parametrize("trigger", ["before_step", "after_tool"])
@pytest.mark.parametrize(("function", "why"), FAULTS.values(), ids=FAULTS)
async def test_a_hook_that_fails_ends_the_run_with_its_name(
    serve: Serve, trigger: str, function: HookFunction, why: str
) -> None:
    hangs = function in (sleeping, waiting)
    bad = hook(trigger, name="bad", timeout_seconds=0.2 if hangs else 5)(function)
    async with serve([call("read", size=10), say("done")], offer=Toolset(tools=(read,), hooks=(bad,))) as served:
        execution_id = await served.client.start(AGENT, "?")
        with pytest.raises(ExecutionFailed) as failed:
            await served.client.result(execution_id)
        await replayed(served.client, execution_id)
        size = len(written((await history_of(served.client, execution_id)).events))
    assert f"the hook 'bad' ({trigger}) {why}" in str(failed.value)
    assert json.dumps(failed.value.state)
    assert size < 50_000


@pytest.mark.slow
async def test_hooks_that_hang_take_no_hook_of_another_run_with_them(serve: Serve) -> None:
    hang = hook("before_step", name="hang", timeout_seconds=0.1)(sleeping)
    fine = hook("before_step", name="fine")(lambda _: Changes(metadata={"fine": True}))
    async with serve([say("done")], offer=Toolset(hooks=(hang, fine))) as served:
        bad = [served.client.run(AgentDefinition(name="a", tools="all", hooks=("hang",)), "?") for _ in range(40)]
        ends = await asyncio.gather(*bad, return_exceptions=True)
        assert all(isinstance(end, ExecutionFailed) for end in ends)
        state = await served.client.run(AgentDefinition(name="b", tools="all", hooks=("fine",)), "?")
    assert state.state.metadata["fine"] is True


@pytest.mark.slow
async def test_an_async_hook_that_blocks_harms_no_neighbour(serve: Serve) -> None:
    async def block(_: HookContext) -> None:
        time.sleep(3.5)  # noqa: ASYNC251  # the fault

    hooks = (hook("before_step", name="block", timeout_seconds=5)(block),)
    async with serve([say("done", delay_seconds=3)], offer=Toolset(hooks=hooks)) as served:
        neighbour = asyncio.create_task(served.client.run(AgentDefinition(name="b", tools="all", hooks=()), "slow"))
        await served.endpoint.until(lambda requests: len(requests) == 1)
        state = await served.client.run(AGENT, "block")
        assert (await neighbour).state.final_response == state.output == "done"
    assert len(served.endpoint.requests) == 2, "no call was taken for lost and made again"


async def test_all_hooks_of_one_place_together_cannot_outgrow_a_payload(serve: Serve) -> None:
    def much(_: HookContext) -> Changes:
        return Changes(metadata={str(time.monotonic_ns()): "x" * 60_000})

    hooks = tuple(hook("before_step", name=f"much_{number}")(much) for number in range(60))
    async with serve([say("done")], offer=Toolset(hooks=hooks)) as served, asyncio.timeout(90):
        with pytest.raises(ExecutionFailed, match="the hook 'much_"):
            await served.client.run(AGENT, "?")


@pytest.mark.slow
@pytest.mark.parametrize("trigger", ["before_tool", "after_tool"])
async def test_the_hooks_around_many_calls_at_once_do_not_end_the_run(serve: Serve, trigger: str) -> None:
    """One workflow task may carry 4 MB; the server terminates a run that sends more."""

    def much(_: HookContext) -> Changes:
        arguments = {"size": 10, "note": "x" * 60_000} if trigger == "before_tool" else None
        return Changes(metadata={str(time.monotonic_ns()): "x" * (3_000 if arguments else 60_000)}, arguments=arguments)

    wanted = calls(*[Call("read", {"size": 10})] * 64)
    offer = Toolset(tools=(read,), hooks=(hook(trigger, name="much", timeout_seconds=5)(much),))
    async with serve([wanted, say("done")], offer=offer) as served, asyncio.timeout(90):
        execution_id = await served.client.start(AGENT, "?")
        with pytest.raises(ExecutionFailed, match="the hook 'much'"):
            await served.client.result(execution_id)


@pytest.mark.slow
async def test_notes_that_hooks_pile_up_leave_the_state_readable(serve: Serve) -> None:
    def note(context: HookContext) -> Changes:
        return Changes(metadata={f"{context.step_number}": "x" * 60_000})

    offer = Toolset(tools=(read,), hooks=(hook("before_step", name="note")(note),))
    async with serve(as_often_as_asked, offer=offer) as served, asyncio.timeout(90):
        execution_id = await served.client.start(AGENT, "40 steps")
        with pytest.raises(ExecutionFailed, match="the hook 'note'") as failed:
            await served.client.result(execution_id)
        assert failed.value.state is not None


async def test_the_input_guard_runs_while_the_model_is_asked(serve: Serve) -> None:
    asked = threading.Event()

    def answer(_: dict[str, Any]) -> Reply:
        asked.set()
        return say("done")

    def guard(_: HookContext) -> Changes:
        return Changes(metadata={"beside": asked.wait(4)})

    offer = Toolset(hooks=(hook("input_guard", name="guard")(guard),))
    async with serve(answer, offer=offer) as served:
        execution_id = await served.client.start(AGENT, "?")
        state = await served.client.result(execution_id)
        await replayed(served.client, execution_id)
    assert (state.final_response, state.metadata["beside"]) == ("done", True)


async def test_a_stop_of_the_input_guard_cancels_the_model_call(serve: Serve) -> None:
    asked = threading.Event()

    def answer(_: dict[str, Any]) -> Reply:
        asked.set()
        return say("done", delay_seconds=600)

    def guard(_: HookContext) -> Changes:
        asked.wait(4)
        return Changes(stop="not this question")

    offer = Toolset(hooks=(hook("input_guard", name="guard")(guard),))
    async with serve(answer, offer=offer) as served, asyncio.timeout(50):
        execution_id = await served.client.start(AGENT, "?")
        state = await served.client.result(execution_id)
        await replayed(served.client, execution_id)
    assert (state.status, state.step_count, state.final_response) == (ExecutionStatus.STOPPED, 0, "")
    assert state.stop_signal is not None
    assert state.stop_signal.message == "not this question"
