"""What every benchmark runs on: the embedded server, the scripted endpoint and both workers, each in its own process.

Everything lives in a temporary directory on free ports and ends with the stage. Measures nothing.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Protocol, TypeVar
from uuid import uuid4

from bench.bare import BareLoop
from bench.task import PROMPT, Task
from holdfast import AgentDefinition
from holdfast.client import Holdfast, Settings
from holdfast.server.embedded import EmbeddedServer

ROOT: Final = Path(__file__).parents[1]
START_SECONDS_MAX: Final = 240.0
"""On a machine with a load of 50 a worker took more than a minute."""

STOP_SECONDS_MAX: Final = 15.0
"""A worker lets its calls end for up to 10 s; then it is killed."""

LAST_WORDS_CHARS_MAX: Final = 2_000
BARE_QUEUE: Final = "bare"
READER: Final = AgentDefinition(name="reader", tools="all", system_prompt=PROMPT)

SCRIPTED: Final = ("holdfast.testing.openai_server", "--script", "bench.script:script")
"""The endpoint that refuses what the real one would refuse."""

QUICK: Final = ("bench.endpoint",)
"""The endpoint that checks nothing, for conversations that are long."""

T = TypeVar("T")


class WrongAnswer(Exception):
    """A run ended without having done its task: nothing it cost means anything."""


class NotStarted(Exception):
    """A process of the stage ended instead of beginning to serve."""


class Loop(Protocol):
    """One of the two things compared."""

    @property
    def name(self) -> str:
        """What the report calls it."""
        ...

    @property
    def worker_pid(self) -> int:
        """Its worker process."""
        ...

    async def run(self, task: Task, workflow_id: str) -> None:
        """Do `task` and return when its answer is known; raise when it ends in any other way."""
        ...


@dataclass(frozen=True, slots=True)
class HoldfastRuns:
    """The agent as a user starts it, by `Holdfast.run`."""

    client: Holdfast
    worker_pid: int
    name: str = "holdfast"

    async def run(self, task: Task, workflow_id: str) -> None:
        """Run the task."""
        result = await self.client.run(READER, task.question, execution_id=workflow_id)
        _check(result.output, task)


@dataclass(frozen=True, slots=True)
class Bare:
    """The hand-written loop, started by Temporal's own client."""

    client: Holdfast
    worker_pid: int
    name: str = "bare"

    async def run(self, task: Task, workflow_id: str) -> None:
        """Run the task."""
        answer = await self.client.temporal.execute_workflow(
            BareLoop.run, task.question, id=workflow_id, task_queue=BARE_QUEUE
        )
        _check(answer, task)


@dataclass(frozen=True, slots=True)
class Stage:
    """A running server with all loops ready, of which one runs at a time.

    `local` is Holdfast with its tool run within the workflow task, where that was asked for. `objects` is where large
    data is kept, `endpoint` the address of the model.
    """

    client: Holdfast
    holdfast: HoldfastRuns
    local: HoldfastRuns | None
    bare: Bare
    server_pid: int
    objects: Path
    endpoint: str

    async def open_seconds(self, workflow_id: str) -> float:
        """Return how long a run that has ended was open, by the server's own clock."""
        described = await self.client.temporal.get_workflow_handle(workflow_id).describe()
        return ((described.close_time or described.start_time) - described.start_time).total_seconds()


@asynccontextmanager
async def set_stage(
    endpoint: Sequence[str] = SCRIPTED, *, local: bool = False, environment: Mapping[str, str] | None = None
) -> AsyncGenerator[Stage]:
    """Start everything, and stop it at the end, whatever happened. `environment` is told to the workers besides."""
    async with AsyncExitStack() as scene:
        folder = Path(scene.enter_context(TemporaryDirectory(prefix="holdfast-bench-")))
        server = scene.enter_context(EmbeddedServer.start(folder / "data", port=0, ui_port=0))
        address = server.address.address

        async def start(name: str, *arguments: str, **environment: str) -> tuple[str, int]:
            started = process(folder / f"{name}.log", arguments, environment)
            return await scene.enter_async_context(started)

        base_url, _ = await start("endpoint", *endpoint)
        variables = {"OPENAI_BASE_URL": base_url, "OPENAI_API_KEY": "bench", "HOLDFAST_MODEL": "scripted"}
        variables |= environment or {}
        objects = folder / "objects"

        async def holdfast(name: str, module: str) -> HoldfastRuns:
            settings = Settings(address=address, task_queue=name, data_dir=folder / "data", storage=objects.as_uri())
            at = ("--address", address, "--task-queue", name, "--storage", objects.as_uri())
            _, pid = await start(name, "worker", "--import", module, *at, **variables)
            return HoldfastRuns(await Holdfast.connect(settings), pid, name)

        ours = await holdfast("holdfast", "bench.script")
        within = await holdfast("local", "bench.local_script") if local else None
        _, bare_pid = await start(
            "bare", "bench.bare_worker", "--address", address, "--task-queue", BARE_QUEUE, **variables
        )
        yield Stage(
            client=ours.client,
            holdfast=ours,
            local=within,
            bare=Bare(ours.client, bare_pid),
            server_pid=server.address.pid,
            objects=objects,
            endpoint=base_url,
        )


def fresh_id() -> str:
    """Return an id for a run."""
    return str(uuid4())


def perform(benchmark: Coroutine[None, None, T], seconds_max: float) -> T:
    """Run a benchmark within a time limit; SIGTERM and Ctrl-C end it in order, with everything it started.

    Exits with a message where it did not come to its end.
    """

    async def bounded() -> T:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # this very coroutine runs in one
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        async with asyncio.timeout(seconds_max):
            return await benchmark

    try:
        return asyncio.run(bounded())
    except TimeoutError:
        sys.exit(f"the benchmark has not ended within {seconds_max:g} s; give it more with --seconds-max")
    except asyncio.CancelledError:
        sys.exit("the benchmark was asked to end before it was done")


def cpu_seconds(pid: int) -> float:
    """Return the processor time a process has used so far (Linux), 0 where that cannot be read."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:
        return 0.0
    user, system = int(words[11]), int(words[12])  # fields 14 and 15 of proc(5), counted after the name
    return (user + system) / os.sysconf("SC_CLK_TCK")


def _check(answer: str, task: Task) -> None:
    if answer != task.answer:
        raise WrongAnswer(f"the run said {answer[:200]!r} instead of {task.answer!r}")


@asynccontextmanager
async def process(
    log: Path, arguments: Sequence[str], environment: Mapping[str, str]
) -> AsyncGenerator[tuple[str, int]]:
    """Run a module of ours; give the first line it says, which tells that it is ready, and its pid."""
    with log.open("wb") as errors:
        started = await asyncio.create_subprocess_exec(
            sys.executable, "-m", *arguments, cwd=ROOT, env={**_clean(), **environment}, stdout=PIPE, stderr=errors
        )
    try:
        yield await _first_line(started, log), started.pid
    finally:
        await _stop(started)


async def _first_line(process: Process, log: Path) -> str:
    assert process.stdout is not None  # noqa: S101  # it is a pipe
    try:
        async with asyncio.timeout(START_SECONDS_MAX):
            line = (await process.stdout.readline()).decode().strip()
    except TimeoutError:
        raise NotStarted(f"{log.stem} is not ready after {START_SECONDS_MAX:g} s: {_tail(log)}") from None
    if not line:
        raise NotStarted(f"{log.stem} ended before it was ready: {_tail(log)}")
    return line


def _tail(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")[-LAST_WORDS_CHARS_MAX:]


async def _stop(process: Process) -> None:
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(STOP_SECONDS_MAX):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def _clean() -> dict[str, str]:
    """Return our environment without what would lead our processes to another model, server or proxy."""
    foreign = ("OPENAI_", "TEMPORAL_", "HOLDFAST_")
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(foreign) and not name.lower().endswith("_proxy")
    }
