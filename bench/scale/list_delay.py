"""How far lists lag behind runs: `python -m bench.scale.list_delay`.

Against the server that TEMPORAL_ADDRESS names, such as that of `python -m tests.cluster`; else against an embedded one.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bench.report import show_table
from bench.scale.process_trees import load_average
from bench.scale.step_times import spread
from bench.stage import QUICK, READER, fresh_id, perform, process
from bench.task import Task
from holdfast.client import ExecutionSummary, Holdfast, Settings
from holdfast.runtime.process_exit import leave
from holdfast.server.embedded import EmbeddedServer

RUNS: Final = 50
WARM_UP_RUNS: Final = 3
TASK: Final = Task(steps=2, page_bytes=100)
LISTED: Final = 20
"""As many as `holdfast list` shows."""

LOOK_SECONDS: Final = 0.01
"""Between two lists. A frontend of a production server refuses more than some lists a second."""

SEEN_SECONDS_MAX: Final = 120.0
SECONDS_MAX: Final = 3_600.0


@dataclass(frozen=True, slots=True)
class Delays:
    """Of one run, in seconds."""

    shown: float
    """From the return of `Holdfast.start` to the list that shows it."""
    ended: float
    """From its end, by the server's clock, to the list that says so."""
    look: float
    """How long such a list took on average."""


async def delays(client: Holdfast) -> Delays:
    """Start a run and list until the list shows its end. Raises TimeoutError after SEEN_SECONDS_MAX."""
    id_ = await client.start(READER, TASK.question, execution_id=fresh_id())
    started, looks, looking = time.perf_counter(), 0, 0.0
    shown: float | None = None
    async with asyncio.timeout(SEEN_SECONDS_MAX):
        while True:
            asked = time.perf_counter()
            run = await _listed(client, id_)
            looks, looking = looks + 1, looking + time.perf_counter() - asked
            took = time.perf_counter() - started
            if run is not None and shown is None:
                shown = took
            if run is not None and shown is not None and run.closed_at is not None:
                ended = (datetime.now(UTC) - run.closed_at).total_seconds()
                return Delays(shown, ended, looking / looks)
            await asyncio.sleep(LOOK_SECONDS)


async def _listed(client: Holdfast, id_: str) -> ExecutionSummary | None:
    return next((each for each in await client.runs(LISTED) if each.execution_id == id_), None)


@asynccontextmanager
async def connected(address: str | None) -> AsyncGenerator[Holdfast]:
    """A client of a server, with a worker process; without an address, of an embedded server of its own."""
    async with AsyncExitStack() as scene:
        folder = Path(scene.enter_context(TemporaryDirectory(prefix="holdfast-list-delay-")))
        if address is None:
            server = scene.enter_context(EmbeddedServer.start(folder / "data", port=0, ui_port=0))
            address = server.address.address
        endpoint, _ = await scene.enter_async_context(process(folder / "endpoint.log", QUICK, {}))
        storage, queue = (folder / "objects").as_uri(), "list-delay"
        arguments: tuple[str, ...] = ("worker", "--import", "bench.script", "--address", address)
        arguments += ("--task-queue", queue, "--data-dir", str(folder), "--storage", storage)
        variables = {"OPENAI_BASE_URL": endpoint, "OPENAI_API_KEY": "bench", "HOLDFAST_MODEL": "scripted"}
        await scene.enter_async_context(process(folder / "worker.log", arguments, variables))
        yield await Holdfast.connect(Settings(address=address, task_queue=queue, data_dir=folder, storage=storage))


async def measure(runs: int, address: str | None) -> list[Delays]:
    """Measure runs, one after the other."""
    async with connected(address) as client:
        for _ in range(WARM_UP_RUNS):
            await client.run(READER, TASK.question)
        return [await delays(client) for _ in range(runs)]


def main() -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="python -m bench.scale.list_delay", description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS, help=f"one after the other ({RUNS})")
    options = parser.parse_args()
    address, load = os.environ.get("TEMPORAL_ADDRESS"), load_average()
    measured = perform(measure(options.runs, address), SECONDS_MAX)
    columns = {
        "from start to the list": [each.shown for each in measured],
        "from its end to the list": [each.ended for each in measured],
        "one list": [each.look for each in measured],
    }
    rows: list[tuple[str, ...]] = []
    for name, seconds in columns.items():
        times = spread(seconds)
        rows.append((name, f"{times.p50:,.0f}", f"{times.p95:,.0f}", f"{times.longest:,.0f}"))
    server = "the embedded server" if address is None else "the server of TEMPORAL_ADDRESS"
    loads = f"load average {load:.1f} before, {load_average():.1f} after"
    show_table(f"{options.runs} runs, {server}, {loads}, ms", ("", "p50", "p95", "longest"), rows)
    return 0


if __name__ == "__main__":
    leave(main())
