"""Faults for some time, then quiet: workers and a server that die again and again, and what their sessions come to.

`python -m tests.chaos.storm --sessions 5000 --turns 3` runs one from a shell. It prints a line each ten seconds, what
is wrong, and the figures; the exit code is 0 when everything held and faults of both kinds have met.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import random
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from holdfast.client import Holdfast, Settings
from holdfast.core.base.errors import HoldfastError, ServerUnavailable
from holdfast.server.worker_process import worker_command, worker_environment
from holdfast.testing.openai_server import FakeOpenAI
from tests import forked
from tests.chaos.certificate.certify import MEMORY
from tests.chaos.storm_sessions import Figures, reply, talk, whole_problems
from tests.chaos.test_server_lost import OwnServer
from tests.forked import WarmWorker

COMMAND: Final = "python -m tests.chaos.storm"
START_SECONDS_MAX: Final = 180.0
STARTS_MAX: Final = 5
"""How often a server or a worker that does not start is started again: the machine is busy with their deaths."""

WORKER_SERVES: Final = (2.0, 8.0)
SERVER_SERVES: Final = (5.0, 20.0)
STUCK_SECONDS: Final = 300.0
"""How long nothing may be answered and no session end once it is calm: longer means stuck."""

DRAIN_SECONDS_MAX: Final = 3_600.0
"""How long all that is under way is waited for at most once it is calm."""

LOOK_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Plan:
    """`sessions` of `turns` each, `at_once` of them under way; no new one begins after `seconds`, and faults end."""

    sessions: int
    turns: int
    seed: int
    seconds: float
    at_once: int = 20
    workers: int = 1
    worker_serves: tuple[float, float] = WORKER_SERVES
    server_serves: tuple[float, float] = SERVER_SERVES


@dataclass
class Storm:
    """Workers and one server that die after some time of serving, each again and again until it is calm."""

    plan: Plan
    settings: Settings
    own: OwnServer
    endpoint: FakeOpenAI
    folder: Path
    figures: Figures = field(default_factory=Figures)
    calm: asyncio.Event = field(default_factory=asyncio.Event)
    _over: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def raging(self) -> AsyncGenerator[None]:
        """Let them die until `calm` is set; then workers and a server are there to the end of the block."""
        tasks = [asyncio.create_task(self._worker(number)) for number in range(self.plan.workers)]
        tasks.append(asyncio.create_task(self._servers()))
        try:
            yield
        finally:
            self.calm.set()
            self._over.set()
            await asyncio.gather(*tasks)

    async def _rests(self, span: tuple[float, float], chance: random.Random) -> bool:
        """Wait for a time of that span; return whether it became calm meanwhile."""
        try:
            await asyncio.wait_for(self.calm.wait(), chance.uniform(*span))
        except TimeoutError:
            return False
        return True

    async def _worker(self, number: int) -> None:
        chance = random.Random(f"{self.plan.seed} worker {number}")  # noqa: S311  # repeatable
        environment = {
            **worker_environment(),
            "OPENAI_BASE_URL": self.endpoint.base_url,
            "HOLDFAST_MODEL": "scripted",
            "HOLDFAST_LEDGER": str(self.folder / "tools.jsonl"),
        }
        starts = 0
        while True:
            command = worker_command(self.settings, ["tests.chaos.tools"])
            process = await asyncio.to_thread(WarmWorker, command, self._heard, environment)
            try:
                starts += 1
                if not await asyncio.to_thread(process.wait_until_ready, START_SECONDS_MAX):
                    assert starts < STARTS_MAX, "no worker starts"
                    continue
                starts = 0
                if await self._rests(self.plan.worker_serves, chance):
                    await self._over.wait()
                    return
                process.kill()
                self.figures.worker_kills += 1
            finally:
                await asyncio.to_thread(process.stop)

    def _heard(self, line: str) -> None:
        with (self.folder / "workers.log").open("a") as log:
            log.write(f"{line}\n")

    async def _servers(self) -> None:
        chance = random.Random(f"{self.plan.seed} server")  # noqa: S311  # repeatable
        while not await self._rests(self.plan.server_serves, chance):
            await asyncio.to_thread(self.own.kill)
            self.figures.server_kills += 1
            for left in reversed(range(STARTS_MAX)):
                try:
                    await asyncio.to_thread(self.own.start_again)
                    break
                except HoldfastError:
                    if not left:
                        raise


async def storm(plan: Plan, settings: Settings, folder: Path, say: Callable[[str], None]) -> Figures:
    """Carry a plan out in `folder`, which is there; `say` is told each ten seconds how far it is."""
    forked.begin()
    await asyncio.to_thread(forked.ready)
    own = await asyncio.to_thread(OwnServer, folder / "server")
    try:
        here = replace(settings, address=own.address, data_dir=folder / "server")
        async with FakeOpenAI(reply, ledger=folder / "model.jsonl") as endpoint:
            holdfast = await _client(here)
            return await _talked(Storm(plan, here, own, endpoint, folder), holdfast, say)
    finally:
        await asyncio.to_thread(own.server.stop)


async def _talked(storm: Storm, holdfast: Holdfast, say: Callable[[str], None]) -> Figures:
    plan, figures, places = storm.plan, storm.figures, asyncio.Semaphore(storm.plan.at_once)
    until = time.monotonic() + plan.seconds

    async def session(number: int) -> None:
        async with places:
            if time.monotonic() < until:
                await talk(holdfast, f"s{number}", plan.turns, figures)

    async with storm.raging():
        talks = [asyncio.create_task(session(number)) for number in range(plan.sessions)]
        while time.monotonic() < until and any(not each.done() for each in talks):
            await asyncio.wait(talks, timeout=min(LOOK_SECONDS, max(0.1, until - time.monotonic())))
            say(figures.line(time.monotonic() - until + plan.seconds))
        storm.calm.set()
        figures.calm_at(time.monotonic())
        stuck = await _drained(talks, figures, say)
        figures.seconds = time.monotonic() - until + plan.seconds
        for each in stuck:
            each.cancel()
        ended = await asyncio.gather(*talks, return_exceptions=True)
    figures.problems += ["a session is stuck after the faults' end" for _ in stuck]
    figures.problems += [f"{type(each).__name__}: {each}" for each in ended if isinstance(each, Exception)]
    figures.problems += whole_problems(figures, storm.folder / "model.jsonl", storm.folder / "tools.jsonl")
    return figures


async def _drained(
    talks: Sequence[asyncio.Task[None]], figures: Figures, say: Callable[[str], None]
) -> set[asyncio.Task[None]]:
    """Wait until all have ended, or nothing gets on any more; return those that have not ended."""
    began = moved = time.monotonic()
    before, left = (-1, -1), {each for each in talks if not each.done()}
    while left and time.monotonic() < min(moved + STUCK_SECONDS, began + DRAIN_SECONDS_MAX):
        _, left = await asyncio.wait(left, timeout=LOOK_SECONDS)
        if (now := (len(figures.answered), figures.ended)) != before:
            before, moved = now, time.monotonic()
            say(f"calm: {figures.line(time.monotonic() - began)}")
    return left


async def _client(settings: Settings) -> Holdfast:
    while True:
        try:
            return await Holdfast.connect(settings)
        except ServerUnavailable:
            await asyncio.sleep(0.2)


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201  # what one runs it for


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=COMMAND, description="Sessions under random kills of workers and server.")
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="a new one by default")  # noqa: S311
    parser.add_argument("--minutes", type=float, default=10.0, metavar="M", help="begin no session later (10)")
    parser.add_argument("--jobs", type=int, default=20, metavar="N", help="how many sessions at once (20)")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="how many workers die (2)")
    parser.add_argument("--server-serves", type=float, nargs=2, default=SERVER_SERVES, metavar="SECONDS")
    parser.add_argument("--worker-serves", type=float, nargs=2, default=WORKER_SERVES, metavar="SECONDS")
    return parser.parse_args()


async def _run(arguments: argparse.Namespace) -> int:
    logging.getLogger("temporalio").setLevel(logging.CRITICAL)  # it tells of each retry while a server is away
    plan = Plan(
        sessions=arguments.sessions,
        turns=arguments.turns,
        seed=arguments.seed,
        seconds=arguments.minutes * 60,
        at_once=arguments.jobs,
        workers=arguments.workers,
        worker_serves=tuple(arguments.worker_serves),
        server_serves=tuple(arguments.server_serves),
    )
    _say(f"seed {plan.seed}: {plan.sessions} sessions of {plan.turns} turns, {plan.at_once} at once")
    memory = MEMORY if MEMORY.is_dir() and os.environ.get("HOLDFAST_STORM_DISK") is None else None
    with tempfile.TemporaryDirectory(prefix="holdfast-storm-", dir=memory) as place:
        settings = Settings(task_queue="storm", storage=(Path(place) / "objects").as_uri())
        figures = await storm(plan, settings, Path(place), _say)
    for each in figures.problems[:20]:
        _say(f"WRONG {each}")
    _say(figures.report())
    return 0 if figures.holds else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(_run(_arguments())))
