"""A worker whose metrics are read, and how to read them."""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from holdfast.client import Holdfast, Settings
from holdfast.connection.temporal_client import connect, core_runtime
from holdfast.connection.worker_settings import WorkerSettings
from holdfast.core.agent.toolset import Toolset
from holdfast.models import OpenAIChat, ProviderSettings
from holdfast.sinks.sink import Sink
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import Script
from workers import make_worker


@dataclass(frozen=True, slots=True)
class Metered:
    """A worker at work that serves its metrics at `address`."""

    client: Holdfast
    endpoint: FakeOpenAI
    address: str

    def samples(self) -> list[Sample]:
        """Read all that it tells now."""
        with urllib.request.urlopen(f"http://{self.address}/metrics", timeout=90) as answer:  # our own
            text = answer.read().decode()
        return [sample for family in text_string_to_metric_families(text) for sample in family.samples]

    def told(self, name: str, *labels: str) -> dict[tuple[str, ...], float]:
        """Return the values of a metric that are not 0, by those labels."""
        found: dict[tuple[str, ...], float] = {}
        for sample in self.samples():
            if sample.name == name and sample.value:
                key = tuple(sample.labels.get(label, "") for label in labels)
                found[key] = found.get(key, 0.0) + sample.value
        return found


@asynccontextmanager
async def metered(
    settings: Settings,
    script: Script,
    offer: Toolset,
    serving: WorkerSettings | None = None,
    address: str | None = None,
    sinks: Sequence[Sink] = (),
) -> AsyncGenerator[Metered]:
    """Run a worker in this process, with a runtime that serves metrics: a new one, or that of `address`."""
    address = address or f"127.0.0.1:{free_port()}"
    async with FakeOpenAI(script) as endpoint:
        client = Holdfast(await connect(settings, runtime=core_runtime(address)), settings)
        model = OpenAIChat(ProviderSettings(base_url=endpoint.base_url, api_key="test-key", model="scripted"))
        try:
            async with make_worker(
                client.temporal, settings, offer, model, serving=serving or WorkerSettings(), sinks=sinks
            ):
                yield Metered(client, endpoint, address)
        finally:
            await model.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def labels_of(samples: list[Sample]) -> Mapping[str, set[str]]:
    """Return every value of every label."""
    found: dict[str, set[str]] = {}
    for sample in samples:
        for label, value in sample.labels.items():
            found.setdefault(label, set()).add(value)
    return found
