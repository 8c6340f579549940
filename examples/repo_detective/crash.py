"""One run whose worker is killed in the middle of a tool call, followed to its end. Starts workers, ends them all."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

from temporalio.service import RPCError

from examples.repo_detective.evidence import keys_after_first_step, under_way
from examples.repo_detective.screen import Narrator, Screen
from examples.repo_detective.stage import AGENTS, PAUSE_SECONDS, START_SECONDS_MAX, DemoWorker, in_order
from holdfast import AgentState, ExecutionBudget, HoldfastError
from holdfast.client import Holdfast, Settings, load_definition
from holdfast.testing import Entry, Ledger

AGENT: Final = "repo_detective"
STEPS_MAX: Final = 100
"""The most steps whose calls are recognised, should somebody raise the definition's limit."""

RUN_SECONDS_MAX: Final = 80.0
"""The run's own budget; with a real model it may need it."""

TOTAL_SECONDS_MAX: Final = 100.0
"""When the demo gives up on it all, so that it ends within two minutes whatever happens."""

POLL_SECONDS: Final = 0.05
"""A file that other processes append to has no event to wait for."""

STOP_SECONDS_MAX: Final = 2.0
"""How long a stop may take that somebody waits for with a finger on Ctrl-C."""


@dataclass(frozen=True, slots=True)
class Crash:
    """What the run needs: where the server is, the run's id, the ledger, the workers' environment, the screen."""

    settings: Settings
    run_id: str
    ledger: Ledger
    environment: Mapping[str, str]
    screen: Screen


@dataclass(frozen=True, slots=True)
class Ran:
    """How it ended, and the tool calls that the kill cut off."""

    state: AgentState
    cut: tuple[Entry, ...]


async def perform(crash: Crash, question: str) -> Ran:
    """Run the agent, kill its worker half-way through a tool call of the second step, and follow it to its end."""
    try:
        # Left from the inside out: signals are off, then the run is stopped, then the workers end
        async with asyncio.timeout(TOTAL_SECONDS_MAX), AsyncExitStack() as workers:
            with in_order(crash.screen.ending):
                crash.screen.working("starting a worker")
                worker = await _worker(crash, workers)
                crash.screen.fact("worker", f"pid {worker.pid}")
                client = await Holdfast.connect(crash.settings)
            async with _not_left_behind(client, crash.run_id):
                with in_order(crash.screen.ending):
                    cut = await _run(crash, client, question, worker, workers)
                    return Ran(await client.result(crash.run_id), cut)
    except TimeoutError:
        raise HoldfastError(
            f"the demo did not end within {TOTAL_SECONDS_MAX:g} s; is this machine very busy?"
        ) from None


async def _run(
    crash: Crash, client: Holdfast, question: str, worker: DemoWorker, workers: AsyncExitStack
) -> tuple[Entry, ...]:
    """Start the run and follow it."""
    definition = load_definition(AGENTS / f"{AGENT}.md")
    budget = ExecutionBudget(max_seconds=RUN_SECONDS_MAX)
    await client.start(definition, question, budget=budget, execution_id=crash.run_id)
    crash.screen.heading(f"Run {crash.run_id}")
    crash.screen.began = time.monotonic()
    return await _follow(crash, client, worker, workers)


async def _follow(crash: Crash, client: Holdfast, worker: DemoWorker, workers: AsyncExitStack) -> tuple[Entry, ...]:
    """Tell the run until it has ended, with the kill in between; return the calls that were cut off."""
    narrator = Narrator(crash.screen)
    watching = asyncio.create_task(_watch(client, crash.run_id, narrator))
    middle = asyncio.create_task(_in_the_middle(crash))
    await asyncio.wait([watching, middle], return_when=asyncio.FIRST_COMPLETED)
    if watching.done():
        middle.cancel()
        await watching  # raises what went wrong, if so
        return ()
    watching.cancel()  # a question to a worker that has just died would be answered late; we ask anew afterwards
    cut = await _kill_and_recover(crash, worker, workers)
    await _watch(client, crash.run_id, narrator)
    return cut


async def _watch(client: Holdfast, run_id: str, narrator: Narrator) -> None:
    async for state in client.follow(run_id):
        narrator.tell(state)


async def _in_the_middle(crash: Crash) -> None:
    """Return when a tool call of the second step or later is half-way through its pause."""
    keys = keys_after_first_step(crash.run_id, STEPS_MAX)
    while True:
        begun = [entry.at for entry in under_way(crash.ledger.entries(kind="tool")) if entry.key in keys]
        if begun and time.time() - min(begun) >= PAUSE_SECONDS / 2:
            return
        await asyncio.sleep(POLL_SECONDS)


async def _kill_and_recover(crash: Crash, worker: DemoWorker, workers: AsyncExitStack) -> tuple[Entry, ...]:
    """Kill the worker, start another one, and return the calls that were cut off."""
    worker.kill()
    killed_at = time.time()
    cut = under_way(crash.ledger.entries(kind="tool"))
    names = ", ".join(sorted(entry.name for entry in cut)) or "nothing"
    told = f"KILL -9 worker {worker.pid}, in the middle of: {names} (the ledger says started, not finished)"
    crash.screen.happened(told, "bold red", whole=True)
    crash.screen.working("no worker is left; another one starts")
    another = await _worker(crash, workers)
    seconds = time.time() - killed_at
    crash.screen.happened(f"another worker serves, pid {another.pid}, {seconds:.1f} s after the kill", "bold")
    crash.screen.working("Temporal misses the dead worker's heartbeat")
    seconds = await _begun_by(crash, another.pid) - killed_at
    crash.screen.happened(
        f"the same run goes on, {seconds:.1f} s after the kill; what was cut off begins again", "bold"
    )
    return cut


async def _begun_by(crash: Crash, pid: int) -> float:
    """Wait until the worker of this `pid` begins a tool call, and return when that was."""
    while True:
        for entry in crash.ledger.entries(kind="tool", phase="started"):
            if entry.pid == pid:
                return entry.at
        await asyncio.sleep(POLL_SECONDS)


async def _worker(crash: Crash, workers: AsyncExitStack) -> DemoWorker:
    """Start one more of the `workers` and return it once it serves."""
    worker = workers.enter_context(DemoWorker(crash.settings, crash.environment))
    ends_at = time.monotonic() + START_SECONDS_MAX
    while not worker.ready:
        if time.monotonic() > ends_at:
            raise HoldfastError(f"the worker did not begin to serve within {START_SECONDS_MAX:g} s")
        await asyncio.sleep(POLL_SECONDS)
    return worker


@asynccontextmanager
async def _not_left_behind(client: Holdfast, run_id: str) -> AsyncGenerator[None]:
    """Stop the run when the demo is interrupted: nobody else would ever take it up. Without a worker, terminate it."""
    try:
        yield
    except BaseException:
        with suppress(HoldfastError, RPCError, TimeoutError):
            async with asyncio.timeout(2 * STOP_SECONDS_MAX):
                await _stop(client, run_id, "the demo was interrupted")
        raise


async def _stop(client: Holdfast, run_id: str, reason: str) -> None:
    await client.stop(run_id, reason, source="demo")
    try:
        async with asyncio.timeout(STOP_SECONDS_MAX):
            await client.result(run_id)
    except TimeoutError:
        await client.temporal.get_workflow_handle(run_id).terminate(reason)
