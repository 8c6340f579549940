"""A real HTTP endpoint that takes webhooks as badly as endpoints do, and remembers every request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from aiohttp import web

Way = Literal["400", "500", "503", "hang", "drop", "take"]


@dataclass
class Receiver:
    """What came, and what it does about it: one of `ways` after another, then it takes everything.

    `drop` takes the request and closes the connection without an answer. What `refuses` says True to is never taken,
    but answered 400.
    """

    ways: list[Way]
    refuses: Callable[[dict[str, Any]], bool] = lambda _: False
    url: str = ""
    requests: list[tuple[Way, dict[str, str], bytes]] = field(default_factory=list[Any])

    @property
    def taken(self) -> dict[str, dict[str, Any]]:
        """What was taken, by its key: once each, as a receiver that keeps keys has it."""
        return {
            head["Idempotency-Key"]: json.loads(body) for how, head, body in self.requests if how in ("take", "drop")
        }

    @property
    def ids(self) -> list[str]:
        """The ids of all events that were taken."""
        return [event["id"] for each in self.taken.values() for event in each["events"]]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Do it."""
        body = await request.read()
        way: Way = self.ways[0] if self.ways else "take"
        if way in ("take", "drop") and any(map(self.refuses, json.loads(body)["events"])):
            way = "400"
        elif self.ways:
            self.ways.pop(0)
        self.requests.append((way, dict(request.headers), body))
        if way == "hang":
            await asyncio.Event().wait()
        if way == "drop" and request.transport is not None:
            request.transport.close()
        return web.Response(status={"500": 500, "503": 503, "400": 400}.get(way, 204))


@asynccontextmanager
async def receiving(
    *ways: Way, refuses: Callable[[dict[str, Any]], bool] = lambda _: False
) -> AsyncGenerator[Receiver]:
    """An endpoint on a free port of this machine."""
    receiver = Receiver(list(ways), refuses)
    app = web.Application(client_max_size=16 * 1024 * 1024)
    app.router.add_post("/hook", receiver.answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
        yield receiver
    finally:
        await runner.cleanup()
