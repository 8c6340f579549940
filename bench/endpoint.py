"""A model endpoint that is as quick as it can be: it checks nothing, and it remembers a digest of every request.

It plays the pages of `bench.task` for conversations of any length, without reading their JSON; `tick for N s`: an
answer in pieces that say when they were sent; `answer with N bytes`. `python -m bench.endpoint` serves until SIGTERM.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import signal
import sys
import time
from typing import Any, Final, Self

from aiohttp import web

from bench.task import TOOL, Task, page_text
from holdfast.testing.openai_wire_format import answer_pieces
from holdfast.testing.script import Call, Reply, say

HOST: Final = "127.0.0.1"
REQUEST_BYTES_MAX: Final = 256 * 1024 * 1024
SHUTDOWN_SECONDS: Final = 0.2

PAGES: Final = re.compile(rb"read (\d+) pages of (\d+) bytes")
PAGE: Final = re.compile(rb'page\\": ?(\d+)')
"""A call's argument, within the string that arguments travel as."""
TICKS: Final = re.compile(rb"tick for ([\d.]+) s")
WORDS: Final = re.compile(rb"answer with (\d+) bytes")
STREAMED: Final = re.compile(rb'"stream": ?true')

TICK_SECONDS: Final = 0.05
TICK: Final = re.compile(r"@([\d.]+) ")
"""A piece of a ticking answer: the sender's `time.monotonic()`, which all processes of a machine share."""


class Endpoint:
    """The endpoint, on a free port of 127.0.0.1. Enter it to start it."""

    def __init__(self) -> None:
        self.digests: list[str] = []
        """Of every request's body, in the order of their arrival."""
        self.sizes: list[int] = []
        """In bytes, the same order."""
        self.times: list[float] = []
        """When each came by `time.monotonic()`, which all processes of a machine share."""
        app = web.Application(client_max_size=REQUEST_BYTES_MAX)
        app.router.add_post("/v1/chat/completions", self._answer)
        app.router.add_get("/seen", self._seen)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS)

    async def __aenter__(self) -> Self:
        """Start serving."""
        await self._runner.setup()
        await web.TCPSite(self._runner, HOST, 0).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop serving."""
        await self._runner.cleanup()

    @property
    def base_url(self) -> str:
        """What an OpenAI client takes as `base_url`."""
        return f"http://{HOST}:{self._runner.addresses[0][1]}/v1"

    async def _seen(self, request: web.Request) -> web.Response:
        start = int(request.query.get("start", "0"))  # of the first request that is told of
        seen = {"digests": self.digests[start:], "sizes": self.sizes[start:], "times": self.times[start:]}
        return web.json_response(seen)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.times.append(time.monotonic())
        raw = await request.read()
        self.digests.append(hashlib.sha256(raw).hexdigest())
        self.sizes.append(len(raw))
        if match := TICKS.search(raw):
            return await self._tick(request, float(match[1]))
        streamed = STREAMED.search(raw) is not None
        fields: dict[str, Any] = {
            "model": "scripted",
            "messages": [],
            "stream": streamed,
            "stream_options": {"include_usage": True},
        }
        words = WORDS.search(raw)
        turn = say(page_text(len(self.sizes), int(words[1]))) if words else _next_page(raw)
        body = b"".join(answer_pieces(turn, fields))
        return web.Response(body=body, content_type="text/event-stream" if streamed else "application/json")

    async def _tick(self, request: web.Request, seconds: float) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        ends_at = time.monotonic() + seconds
        while (now := time.monotonic()) < ends_at:
            await response.write(_chunk({"content": f"@{now:.4f} "}, None))
            await asyncio.sleep(TICK_SECONDS)
        await response.write(_chunk({}, "stop"))
        usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
        await response.write(_event({"choices": [], "usage": usage}) + b"data: [DONE]\n\n")
        await response.write_eof()
        return response


def _next_page(raw: bytes) -> Reply:
    """Return the turn that answers a request; of the conversation only the last call is looked at."""
    match = PAGES.search(raw)
    if match is None:
        return say("There is nothing to read.")
    task = Task(steps=int(match[1]), page_bytes=int(match[2]))
    place = raw.rfind(b"tool_calls")
    last = PAGE.search(raw, place) if place >= 0 else None
    number = 0 if last is None else int(last[1]) + 1
    read_page = Call(TOOL, {"page": number, "size": task.page_bytes}, id=f"call_{number}")
    return Reply(calls=(read_page,)) if number < task.steps else say(task.answer)


def _chunk(delta: dict[str, Any], finish_reason: str | None) -> bytes:
    return _event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]})


def _event(fields: dict[str, Any]) -> bytes:
    head = {"id": "chatcmpl-0", "object": "chat.completion.chunk", "created": 1, "model": "scripted"}
    return f"data: {json.dumps({**head, **fields})}\n\n".encode()


async def _serve() -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with Endpoint() as endpoint:
        sys.stdout.write(f"{endpoint.base_url}\n")
        sys.stdout.flush()
        await stopping.wait()


if __name__ == "__main__":
    asyncio.run(_serve())
