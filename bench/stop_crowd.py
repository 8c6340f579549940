"""What many idle calls cost, and how soon stops of all of them have arrived. `python -m bench.stop_crowd`."""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final, TypeVar

from temporalio.api.enums.v1 import PendingActivityState

from bench.report import Goal, hand_over, quantile, show_goals, show_table
from bench.stage import Stage, cpu_seconds, perform, set_stage
from holdfast import AgentDefinition, ExecutionStatus, StopReason
from holdfast.client import Holdfast
from holdfast.runtime.process_exit import leave
from holdfast.testing.script import Call, Reply, calls

CALLS: Final = 360
PER_RUN: Final = 20
AT_ONCE: Final = 20
"""Runs started at the same time."""

IDLE_SECONDS: Final = 20.0
BEGIN_SECONDS_MAX: Final = 300.0
IDLE_CORES_MAX: Final = 0.1
ENDED_P50_SECONDS_MAX: Final = 5.0
BENCH_SECONDS_MAX: Final = 900.0
ENDPOINT: Final = ("holdfast.testing.openai_server", "--script", "bench.stop_crowd:plays")
IDLER: Final = AgentDefinition(name="idler", tools=("stand",), system_prompt="You wait.")

EPILOG: Final = """\
Starts runs on one worker, each of which stands in so many tools that say nothing; measures what server and worker use
meanwhile; then stops all of them at once. A run's time goes from the call of `stop` to its end by the server's clock.
"told" is when `stop` had returned. With --per-run 1 each call has a run of its own: then the ends of the runs are what
takes the time, some 80 ms of the embedded server's processor each.

JSON: {machine, calls, per_run, burners, idle: {server, worker}, stops: {server, worker} in seconds of processor,
told: [seconds], ended: [seconds], goals: [...]}.
"""

T = TypeVar("T")


def plays(request: dict[str, Any]) -> Reply:
    """Return as many calls that stand as the last message has words."""
    return calls(*(Call("stand") for _ in request["messages"][-1]["content"].split()))


async def crowd(work: Iterable[Coroutine[None, None, T]], at_once: int) -> list[T]:
    """Await all of `work`, so many at a time."""
    turns = asyncio.Semaphore(at_once)

    async def one(each: Coroutine[None, None, T]) -> T:
        async with turns:
            return await each

    return await asyncio.gather(*map(one, work))


async def stands(client: Holdfast, execution_id: str, per_run: int) -> None:
    """Wait until the run's tools have begun."""
    handle = client.temporal.get_workflow_handle(execution_id)
    started = PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
    while True:
        pending = (await handle.describe()).raw_description.pending_activities
        if sum(each.activity_type.name == "stand" and each.state == started for each in pending) == per_run:
            return
        await asyncio.sleep(0.2)


def processor_seconds(stage: Stage) -> dict[str, float]:
    """Return what server and worker have used so far."""
    return {"server": cpu_seconds(stage.server_pid), "worker": cpu_seconds(stage.holdfast.worker_pid)}


async def idle_cores(stage: Stage) -> dict[str, float]:
    """Return how much of a core server and worker use while nothing happens."""
    before = processor_seconds(stage)
    await asyncio.sleep(IDLE_SECONDS)
    return {name: (used - before[name]) / IDLE_SECONDS for name, used in processor_seconds(stage).items()}


async def stopped(client: Holdfast, execution_id: str) -> tuple[float, float]:
    """Stop a run; return the seconds until it was told, and until it had ended."""
    began, wall = time.monotonic(), time.time()
    await client.stop(execution_id, "bench")
    acknowledged = time.monotonic() - began
    state = await client.result(execution_id)
    if (state.status, state.stop_reason) != (ExecutionStatus.STOPPED, StopReason.USER_REQUESTED):
        raise AssertionError(f"the run ended {state.status} ({state.stop_reason}): {state.debug()}")
    closed = (await client.temporal.get_workflow_handle(execution_id).describe()).close_time
    assert closed is not None  # noqa: S101  # it has a result
    return acknowledged, closed.timestamp() - wall


async def run(runs: int, per_run: int, log: Callable[[str], object]) -> dict[str, Any]:
    """Measure."""
    question = " ".join(["wait"] * per_run)
    async with set_stage(ENDPOINT) as stage:
        client = stage.client
        began = time.monotonic()
        ids = await crowd((client.start(IDLER, question) for _ in range(runs)), AT_ONCE)
        async with asyncio.timeout(BEGIN_SECONDS_MAX):
            await crowd((stands(client, each, per_run) for each in ids), AT_ONCE)
        log(f"{runs * per_run} calls stand after {time.monotonic() - began:.1f} s")
        idle = await idle_cores(stage)
        log(f"idle: {idle}")
        before = processor_seconds(stage)
        ends = await asyncio.gather(*(stopped(client, each) for each in ids))
        stops = {name: used - before[name] for name, used in processor_seconds(stage).items()}
        log(f"processor seconds of the stops: {stops}")
    times = {"told": [each for each, _ in ends], "ended": [each for _, each in ends]}
    return {"calls": runs * per_run, "per_run": per_run, "idle": idle, "stops": stops, **times}


@contextmanager
def burning(burners: int) -> Generator[None]:
    """Keep so many processes busy."""
    busy = [subprocess.Popen((sys.executable, "-c", "while True: pass")) for _ in range(burners)]
    try:
        yield
    finally:
        for each in busy:
            each.kill()
            each.wait()


def show(result: dict[str, Any]) -> None:
    """Print the figures."""
    rows = [
        (what, *(f"{value:.2f}" for value in (min(each), median(each), quantile(each, 0.99), max(each))))
        for what in ("told", "ended")
        for each in (result[what],)
    ]
    show_table(
        f"Stops of {result['calls']} idle calls at once, {result['per_run']} to a run",
        ("", "min s", "p50 s", "p99 s", "max s"),
        rows,
    )


def goals(result: dict[str, Any]) -> list[Goal]:
    """Judge."""
    server, typical = result["idle"]["server"], median(result["ended"])
    idle = f"server, {result['calls']} idle calls <= {IDLE_CORES_MAX:g} of a core"
    return [
        Goal(idle, f"{server:.2f}", server <= IDLE_CORES_MAX),
        Goal(f"p50 of the stops <= {ENDED_P50_SECONDS_MAX:g} s", f"{typical:.2f} s", typical <= ENDED_P50_SECONDS_MAX),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(
        prog="bench.stop_crowd",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--calls", type=int, default=CALLS, help=f"how many idle calls (default {CALLS})")
    parser.add_argument("--per-run", type=int, default=PER_RUN, help=f"how many of them to a run (default {PER_RUN})")
    parser.add_argument("--burners", type=int, default=0, help="processes that keep the machine busy (default none)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the JSON there instead of to stdout")
    options = parser.parse_args(arguments)
    with burning(options.burners):
        log = partial(print, file=sys.stderr, flush=True)
        result = perform(run(max(1, options.calls // options.per_run), options.per_run, log), BENCH_SECONDS_MAX)
    judged = goals(result)
    show(result)
    show_goals(judged)
    hand_over({**result, "burners": options.burners}, judged, options.json)
    return 0


if __name__ == "__main__":
    leave(main())
