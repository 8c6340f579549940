"""A collector of traces on loopback: OTLP over HTTP, as a real one takes it."""

from __future__ import annotations

import asyncio
import gzip
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass(slots=True)
class Collector:
    """What has come so far: each span with its process's service name."""

    url: str = ""
    silent: bool = False
    """Take what comes and never answer."""
    asked: threading.Event = field(default_factory=threading.Event)
    spans: list[tuple[str, Span]] = field(default_factory=list[tuple[str, Span]])

    def has(self, name: str, seconds_max: float = 90) -> bool:
        """Return whether a span of that name comes within the time."""
        deadline = time.monotonic() + seconds_max
        while not (there := any(span.name == name for _, span in self.spans)) and time.monotonic() < deadline:
            time.sleep(0.05)
        return there

    async def take(self, request: web.Request) -> web.Response:
        self.asked.set()
        if self.silent:
            await asyncio.Event().wait()
        body = await request.read()
        told = ExportTraceServiceRequest.FromString(gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body)
        for resource in told.resource_spans:
            service = {each.key: each.value.string_value for each in resource.resource.attributes}["service.name"]
            self.spans += [(service, span) for scope in resource.scope_spans for span in scope.spans]
        body = ExportTraceServiceResponse().SerializeToString()
        return web.Response(body=body, content_type="application/x-protobuf")


@contextmanager
def collecting(*, silent: bool = False) -> Generator[Collector]:
    """Run a collector in a thread of its own."""
    collector, loop, ready = Collector(silent=silent), asyncio.new_event_loop(), threading.Event()

    async def begin() -> web.AppRunner:
        app = web.Application()
        app.router.add_post("/v1/traces", collector.take)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        collector.url = f"http://{host}:{port}"
        return runner

    def run() -> None:
        runner = loop.run_until_complete(begin())
        ready.set()
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield collector
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)


def attributes(span: Span) -> dict[str, str]:
    return {each.key: each.value.string_value for each in span.attributes}
