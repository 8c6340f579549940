"""A worker and a fake endpoint around one test. The server behind them is `conftest`'s."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from activities.transcript_cache import TranscriptCache
from holdfast.client import Holdfast, Settings
from holdfast.connection.worker_settings import WorkerSettings
from holdfast.core.agent.toolset import Toolset
from holdfast.core.tools.mcp_servers import McpServer
from holdfast.models import OpenAIChat, ProviderSettings
from holdfast.runtime.tool_runner import Results
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import Scripts
from workers import make_worker


@dataclass(frozen=True, slots=True)
class Served:
    """A worker at work on its own task queue, and what it talks to. `ledger` has a line per model call."""

    client: Holdfast
    endpoint: FakeOpenAI
    ledger: Path


Serve = Callable[..., AbstractAsyncContextManager[Served]]


@asynccontextmanager
async def served(
    settings: Settings,
    ledger: Path,
    script: Scripts,
    offer: Toolset,
    cache: TranscriptCache | None = None,
    serving: WorkerSettings | None = None,
    results: Results | None = None,
    mcp: Mapping[str, McpServer] | None = None,
) -> AsyncGenerator[Served]:
    """Run a worker in this process against a scripted endpoint; with HOLDFAST_CACHED_RUNS=0, one without a cache."""
    chosen = serving or WorkerSettings.from_environment()
    async with FakeOpenAI(script, ledger=ledger) as endpoint:
        client = await Holdfast.connect(settings)
        model = OpenAIChat(ProviderSettings(base_url=endpoint.base_url, api_key="test-key", model="scripted"))
        try:
            async with make_worker(client.temporal, settings, offer, model, cache, chosen, results, mcp=mcp):
                yield Served(client, endpoint, ledger)
        finally:
            await model.close()
