"""The client without await: nothing of the other one is missing, and a blocked caller can be interrupted."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from holdfast import AgentDefinition
from holdfast.client import AgentHandle, Holdfast, Settings, sync
from holdfast.client.runs import Runs
from holdfast.client.sync import runs
from holdfast.client.sync.portal import Portal
from holdfast.core.base.errors import InvalidInput, ServerUnavailable
from holdfast.testing.script import say
from tests.serving import Serve

ROOT = Path(__file__).resolve().parents[2]
FRIEND = AgentDefinition(name="friend", tools=())
TWINS = {sync.AgentHandle: AgentHandle, runs.Runs: Runs, sync.Holdfast: Holdfast}
OTHERS = {"connect", "close", "client", "temporal", "settings", "closed_runs"}
"""Names with a meaning of their own, or with none here."""


def public(kind: type) -> dict[str, Any]:
    everything = {name: value for each in reversed(kind.__mro__[:-1]) for name, value in vars(each).items()}
    return {name: value for name, value in everything.items() if not name.startswith("_")}


@pytest.mark.parametrize(("ours", "theirs"), TWINS.items(), ids=lambda kind: kind.__name__)
def test_every_public_method_is_there_with_the_same_parameters(ours: type, theirs: type) -> None:
    for name, method in public(theirs).items():
        if name in OTHERS and not inspect.iscoroutinefunction(method):
            continue
        assert name in public(ours), f"{ours.__name__} lacks {name}"
        if isinstance(method, property):
            continue
        here, there = inspect.signature(public(ours)[name]), inspect.signature(method)
        assert list(here.parameters.values()) == list(there.parameters.values()), name
        told = there.return_annotation.replace("AsyncGenerator", "Generator").replace("'", "")
        assert here.return_annotation.replace("holdfast.", "").replace(", None, None]", ", None]") == told, name
    more = {name for name in public(ours) if name not in public(theirs)} - OTHERS
    assert more <= {"agent_id"}


# --- the portal


@pytest.fixture
def portal() -> Any:  # noqa: ANN401  # a generator of one Portal
    made = Portal()
    yield made
    made.close()


def test_what_a_coroutine_raises_is_raised_to_the_caller(portal: Portal) -> None:
    async def fails() -> None:
        raise ServerUnavailable("away")

    with pytest.raises(ServerUnavailable, match="away"):
        portal.run(fails())


def test_a_generator_that_is_left_is_closed(portal: Portal) -> None:
    closed: list[int] = []

    async def numbers() -> AsyncGenerator[int, None]:
        try:
            for number in range(5):
                yield number
        finally:
            await asyncio.sleep(0)
            closed.append(1)

    assert list(portal.each(numbers())) == [0, 1, 2, 3, 4]
    each = portal.each(numbers())
    assert [next(each), next(each)] == [0, 1]
    each.close()
    assert closed == [1, 1]


def test_who_waits_is_let_go_when_it_is_closed_and_then_nothing_runs(portal: Portal) -> None:
    outcomes: list[BaseException] = []
    begun = threading.Event()

    async def waits() -> None:
        begun.set()
        await asyncio.Event().wait()

    def wait() -> None:
        try:
            portal.run(waits())
        except CancelledError as error:
            outcomes.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert begun.wait(5)
    portal.close()
    waiting.join(5)
    assert len(outcomes) == 1
    portal.close()
    with pytest.raises(InvalidInput, match="the connection is closed"):
        portal.run(waits())


# --- on a real server


@pytest.mark.slow
@pytest.mark.temporal
async def test_an_agent_is_talked_to_without_await(serve: Serve, settings: Settings) -> None:
    def talk() -> None:
        with sync.Holdfast.connect(settings) as holdfast:
            agent = holdfast.agent(definition=FRIEND)
            assert agent.ask("one").output == "hello"
            receipt = agent.send("two")
            assert agent.answer(receipt).final_response == "hello"
            fork = agent.fork()
            assert fork.agent_id != agent.agent_id
            fork.send("three")
            kinds: list[str] = []
            for event in fork.watch():
                kinds.append(event.kind)
                if event.kind == "AgentExecutionCompleted":
                    break
            assert kinds[0] == "AgentExecutionStarted"
            assert [each.number for each in agent.records()] == [2, 1]
            state = holdfast.run(FRIEND, "alone")
            assert [*holdfast.watch(state.execution_id)][-1].kind == "AgentExecutionCompleted"
            assert agent.close().status == "closed"

    async with serve([say("hello")] * 3):
        await asyncio.to_thread(talk)


WAITS = """
import signal, sys
from holdfast.client import Settings, sync
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has what runs in its background ignore it

with sync.Holdfast.connect(Settings(address=sys.argv[1], task_queue=sys.argv[2], storage="memory://")) as holdfast:
    started = holdfast.start(__import__("holdfast").AgentDefinition(name="a"), "hi", execution_id=sys.argv[3])
    for wait in (lambda: holdfast.result(started), lambda: next(holdfast.watch(started))):
        print("waiting", flush=True)
        try:
            wait()
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    holdfast.stop(started)
    print("stopped", flush=True)
"""


@pytest.mark.slow
@pytest.mark.temporal
async def test_an_interrupt_ends_what_is_waited_for_and_nothing_else(settings: Settings) -> None:
    chosen = str(uuid4())
    command = [sys.executable, "-c", WAITS, str(settings.address), settings.task_queue, chosen]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env={**os.environ}) as program:  # noqa: ASYNC220
        assert program.stdout is not None
        lines: list[str] = []
        for line in program.stdout:
            lines.append(line.strip())
            if line.strip() == "waiting":
                await asyncio.sleep(0.5)  # until it waits: nothing tells
                program.send_signal(signal.SIGINT)
        assert program.wait(20) == 0
    assert lines == ["waiting", "interrupted", "waiting", "interrupted", "stopped"]
    client = await Holdfast.connect(settings)
    await client.temporal.get_workflow_handle(chosen).terminate()
