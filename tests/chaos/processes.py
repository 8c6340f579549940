"""Workers and servers as processes that tests kill, freeze and start again, and what is seen of a run from outside."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from holdfast.client import Holdfast, Settings
from holdfast.server.worker_process import WorkerProcess, worker_command, worker_environment
from holdfast.testing.openai_server import FakeOpenAI
from tests.forked import WarmWorker

READY_SECONDS_MAX = 90
FREEZE_SECONDS_MAX = 10
CONTINUED = int(EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW)


@asynccontextmanager
async def worker(
    settings: Settings,
    endpoint: FakeOpenAI,
    ledger: Path,
    environment: Mapping[str, str] | None = None,
    modules: Sequence[str] = ("tests.chaos.tools",),
) -> AsyncGenerator[WorkerProcess]:
    """A worker process of its own, so that it can be killed."""
    told = {
        **worker_environment(),
        "OPENAI_BASE_URL": endpoint.base_url,
        "HOLDFAST_MODEL": "scripted",
        "HOLDFAST_LEDGER": str(ledger),
        **(environment or {}),
    }
    heard: list[str] = []
    process = WarmWorker(worker_command(settings, modules), heard.append, told)
    try:
        assert await asyncio.to_thread(process.wait_until_ready, READY_SECONDS_MAX), heard
        yield process
    finally:
        await asyncio.to_thread(process.stop)


def freeze(pid: int) -> None:
    """Stop a process in its tracks (SIGSTOP); a thread that runs goes on until the system has told it so."""
    os.kill(pid, signal.SIGSTOP)
    until = time.monotonic() + FREEZE_SECONDS_MAX
    while sys.platform == "linux" and not all(_is_stopped(stat) for stat in Path(f"/proc/{pid}/task").glob("*/stat")):
        assert time.monotonic() < until, f"process {pid} does not stop"
        time.sleep(0.01)


def _is_stopped(stat: Path) -> bool:
    with suppress(OSError):  # the thread has ended
        return stat.read_text().rpartition(")")[2].split()[0] == "T"
    return True


@contextmanager
def frozen(pid: int) -> Generator[None]:
    """Freeze a process for the length of the block."""
    freeze(pid)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


async def events_of(client: Holdfast, execution_id: str) -> AsyncIterator[HistoryEvent]:
    """Yield an execution's history as it grows, from run to run where it goes on in a new one."""
    run_id: str | None = None
    while True:
        handle = client.temporal.get_workflow_handle(execution_id, run_id=run_id)
        if run_id is None:
            run_id = (await handle.describe()).raw_description.workflow_execution_info.first_run_id or None
            handle = client.temporal.get_workflow_handle(execution_id, run_id=run_id)
        next_run = ""
        async for event in handle.fetch_history_events(wait_new_event=True):
            yield event
            if event.event_type == CONTINUED:
                next_run = event.workflow_execution_continued_as_new_event_attributes.new_execution_run_id
        if not next_run:
            return
        run_id = next_run


def guardian_of(process: WorkerProcess) -> int:
    """Return the process id of a worker's guardian, 0 where there is none."""
    for each in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int((each / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == process.pid and b"activities.guardian" in (each / "cmdline").read_bytes():
                return int(each.name)
    return 0
