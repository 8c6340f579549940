"""What the scale is measured on: a production cluster, a quick model endpoint, a counting bucket, workers.

Each is a process of its own in a temporary folder, and ends with the block. Measures nothing.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.request import urlopen
from uuid import uuid4

from aiohttp import ClientSession, ClientTimeout

from bench.scale import bucket
from bench.scale.process_trees import cpu_seconds_of
from bench.stage import QUICK, process
from bench.talks import resident_bytes
from holdfast.client import Holdfast, Settings
from tests.cluster.cluster import METRICS_PORT, Cluster, cluster

SETUP_SECONDS_MAX: Final = 300
READ_SECONDS_MAX: Final = 30.0
LOOK_SECONDS: Final = 0.5
REFUSED: Final = re.compile(r"^service_errors_resource_exhausted\{(.*)\} (\S+)$", re.MULTILINE)
CAUSE: Final = re.compile(r'resource_exhausted_cause="([^"]*)"')


@dataclass
class Ground:
    """A running cluster with everything around it."""

    cluster: Cluster
    client: Holdfast
    folder: Path
    endpoint: str
    """The model's base URL."""
    bucket: str
    """HOST:PORT of the bucket."""
    scene: AsyncExitStack
    others: dict[str, list[int]]
    """Process ids of what a production has elsewhere: the model's endpoint, the bucket."""
    workers: list[tuple[int, AsyncExitStack]] = field(default_factory=list[tuple[int, AsyncExitStack]])

    async def add_worker(self, **environment: str) -> int:
        """Start a worker, each at the next frontend; return its process id."""
        targets = self.cluster.balancer.targets
        stack = await self.scene.enter_async_context(AsyncExitStack())
        number = len(self.workers)
        settings = self.client.settings
        arguments: tuple[str, ...] = ("worker", "--import", "bench.script", "--address", targets[number % len(targets)])
        arguments += ("--task-queue", settings.task_queue, "--data-dir", str(self.folder), "--storage", bucket.URL)
        variables = {"OPENAI_BASE_URL": self.endpoint, "OPENAI_API_KEY": "bench", "HOLDFAST_MODEL": "scripted"}
        variables |= {**bucket.environment(self.bucket), **environment}
        log = self.folder / f"worker-{uuid4().hex[:8]}.log"
        _, pid = await stack.enter_async_context(process(log, arguments, variables))
        self.workers.append((pid, stack))
        return pid

    async def end_workers(self) -> None:
        """Stop all workers."""
        for _, stack in self.workers:
            await stack.aclose()
        self.workers.clear()

    @property
    def roles(self) -> dict[str, list[int]]:
        """The processes by what they are; each worker's guardian is below it."""
        server = {role: [each.pid for each in nodes] for role, nodes in self.cluster.nodes.items()}
        server["internal worker"] = server.pop("worker")
        workers = [pid for pid, _ in self.workers]
        return {"workers": workers, **server, "PostgreSQL": [self.cluster.postgres.process.pid], **self.others}

    def cpu_seconds(self) -> dict[str, float]:
        """Return the processor seconds that each role, and this process, have used so far."""
        return {**cpu_seconds_of(self.roles), "bench": time.process_time()}

    def resident(self) -> list[int]:
        """Return the bytes of memory of each worker, without its guardian."""
        return [resident_bytes(pid) for pid, _ in self.workers]

    async def closed(self) -> int:
        """Return how many workflows have ended, as visibility has it."""
        return (await self.client.temporal.count_workflows("ExecutionStatus != 'Running'")).count

    async def until_closed(self, count: int) -> None:
        """Wait until so many workflows have ended."""
        while await self.closed() < count:  # noqa: ASYNC110  # in other processes
            await asyncio.sleep(LOOK_SECONDS)

    async def stored(self) -> Stored:
        """Return what the bucket has been asked and holds."""
        timeout = ClientTimeout(READ_SECONDS_MAX)
        async with ClientSession(timeout=timeout) as http, http.get(f"http://{self.bucket}/seen") as answer:
            seen: dict[str, Any] = await answer.json()
        return Stored(Counter(seen["requests"]), {name: (held[0], held[1]) for name, held in seen["folders"].items()})

    def refusals(self) -> Counter[str]:
        """Return how often the server's processes have refused a request for want of room, by cause."""
        refused: Counter[str] = Counter()
        for each in self.cluster.programs:
            host = each.environment["BIND_ON_IP"]
            with urlopen(f"http://{host}:{METRICS_PORT}/metrics", timeout=READ_SECONDS_MAX) as answer:
                text = answer.read().decode()
            for labels, value in REFUSED.findall(text):
                cause = CAUSE.search(labels)
                refused[cause[1] if cause else "unknown"] += int(float(value))
        return refused


@dataclass(frozen=True, slots=True)
class Stored:
    """The bucket's requests by kind and folder, and each folder's objects and bytes."""

    requests: Counter[str]
    folders: Mapping[str, tuple[int, int]]

    @property
    def objects(self) -> int:
        """All objects."""
        return sum(count for count, _ in self.folders.values())

    @property
    def bytes(self) -> int:
        """All their bytes."""
        return sum(size for _, size in self.folders.values())

    def since(self, before: Stored) -> dict[str, int]:
        """Return how many requests of each kind came since."""
        kinds: Counter[str] = Counter()
        for each, count in (self.requests - before.requests).items():
            kinds[each.partition(" ")[0]] += count
        return dict(kinds)


@asynccontextmanager
async def set_ground(shards: int) -> AsyncGenerator[Ground]:
    """Start a cluster of so many shards and all but the workers, and stop everything at the end."""
    async with AsyncExitStack() as scene:
        folder = Path(scene.enter_context(TemporaryDirectory(prefix="holdfast-scale-")))
        running = scene.enter_context(cluster(folder, shards=shards, measured=True))
        await running.until_ready()
        address = running.balancer.targets[0]
        setup = [sys.executable, "-m", "holdfast", "setup", "--create-namespace", "--address", address]
        await asyncio.to_thread(subprocess.run, setup, check=True, timeout=SETUP_SECONDS_MAX, stdout=subprocess.DEVNULL)
        endpoint, endpoint_pid = await scene.enter_async_context(process(folder / "endpoint.log", QUICK, {}))
        bucket_log, bucket_module = folder / "bucket.log", ("bench.scale.bucket",)
        place, bucket_pid = await scene.enter_async_context(process(bucket_log, bucket_module, {}))
        os.environ.update(bucket.environment(place))  # for what clients of this process read
        settings = Settings(address=address, task_queue="scale", data_dir=folder, storage=bucket.URL)
        client = await Holdfast.connect(settings)
        others = {"endpoint": [endpoint_pid], "bucket": [bucket_pid]}
        workers = await scene.enter_async_context(AsyncExitStack())
        yield Ground(running, client, folder, endpoint, place, workers, others)
