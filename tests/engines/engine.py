"""Third-party endpoints as processes of their own, and a worker that talks to one; what they answer is not ours."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.request import ProxyHandler, Request, build_opener

from holdfast.client import Holdfast, Settings
from holdfast.core.agent.toolset import Toolset
from holdfast.core.tools.tools import AnyTool
from holdfast.models import OpenAIChat, ProviderSettings
from workers import make_worker

START_SECONDS_MAX = 90
ANSWER_SECONDS_MAX = 90
LOOK_SECONDS = 0.02
DIRECT = build_opener(ProxyHandler({}))


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server at `address`, asked over HTTP about itself."""

    address: str

    @property
    def base_url(self) -> str:
        """What an OpenAI client takes."""
        return f"{self.address}/v1"

    def ask(self, path: str, said: object = None) -> str:
        """GET the path, or POST `said` there; return the answer's text."""
        body = None if said is None else json.dumps(said).encode()
        request = Request(self.address + path, data=body)  # noqa: S310  # loopback
        with DIRECT.open(request, timeout=ANSWER_SECONDS_MAX) as answer:
            return cast("bytes", answer.read()).decode()


class Llama(Endpoint):
    """llama.cpp's server: what it counts is measured where the tokens are made."""

    @property
    def tokens_made(self) -> int:
        """How many tokens it has generated."""
        return self._metric("tokens_predicted_total")

    @property
    def tokens_read(self) -> int:
        """How many tokens of prompts it has seen, taken from its cache or not."""
        return self._metric("prompt_tokens_total") + self._metric("prompt_tokens_cached_total")

    @property
    def busy(self) -> int:
        """How many answers it is generating."""
        return sum(slot["is_processing"] for slot in json.loads(self.ask("/slots")))

    def wait_until(self, seen: Callable[[Llama], bool], seconds_max: float = 90) -> None:
        """Block until `seen(self)`; it tells nobody, so it is asked again and again. TimeoutError."""
        until = time.monotonic() + seconds_max
        while not seen(self):
            if time.monotonic() > until:
                raise TimeoutError(f"{self.busy} answers under way, {self.tokens_made} tokens made")
            time.sleep(LOOK_SECONDS)

    def _metric(self, name: str) -> int:
        found = re.search(rf"^llamacpp:{name} (\d+)$", self.ask("/metrics"), re.MULTILINE)
        assert found is not None, name
        return int(found[1])


class LLMock(Endpoint):
    """llmock: faults are queued in it, and it judges its client by the requests it has seen."""

    def plan(self, *behaviors: dict[str, Any]) -> None:
        """Queue what the next requests meet."""
        self.ask("/_llmock/scenario", {"behaviors": behaviors})

    @property
    def pending(self) -> list[dict[str, Any]]:
        """Faults that have not struck yet."""
        return cast("list[dict[str, Any]]", json.loads(self.ask("/_llmock/scenario"))["pending"])

    @property
    def requests(self) -> list[dict[str, Any]]:
        """What was asked, and how each request ended."""
        return cast("list[dict[str, Any]]", json.loads(self.ask("/_llmock/requests"))["requests"])

    @property
    def verdict(self) -> dict[str, Any]:
        """What it thinks of its client."""
        return cast("dict[str, Any]", json.loads(self.ask("/_llmock/verdict")))

    def reset(self) -> None:
        """Forget all requests and faults."""
        self.ask("/_llmock/reset", {})


@contextmanager
def running(command: Sequence[str], log: Path, found: str) -> Generator[str]:
    """Run a server until the end of the block; yield what the pattern `found` takes from its first words."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT)
        try:
            yield _told(process, log, found)
        finally:
            process.kill()  # nothing of it is needed any more, and a busy one can take long
            process.wait()
            if process.stdin:
                process.stdin.close()


def _told(process: subprocess.Popen[bytes], log: Path, found: str) -> str:
    until = time.monotonic() + START_SECONDS_MAX
    while not (match := re.search(found, log.read_text(errors="replace"))):
        assert process.poll() is None, log.read_text(errors="replace")[-2_000:]
        assert time.monotonic() < until, log.read_text(errors="replace")[-2_000:]
        time.sleep(LOOK_SECONDS)
    return match[1]


@contextmanager
def llama(log: Path, context_tokens: int, *options: str) -> Generator[Llama]:
    """Run llama.cpp's server with so much context for each of two answers at a time."""
    program = str(Path(__file__).with_name("llama_server.py"))
    with running([sys.executable, program, str(context_tokens), *options], log, r"(?m)^(http://\S+)$") as address:
        yield Llama(address)


@asynccontextmanager
async def working(settings: Settings, base_url: str, tools: Sequence[AnyTool] = ()) -> AsyncGenerator[Holdfast]:
    """Run a worker in this process against the endpoint."""
    client = await Holdfast.connect(settings)
    model = OpenAIChat(ProviderSettings(base_url=base_url, api_key="test-key", model="smollm2"))
    try:
        async with make_worker(client.temporal, settings, Toolset(tools=tuple(tools)), model):
            yield client
    finally:
        await model.close()
