"""An OAuth token endpoint for tests: gives numbered tokens, and refuses used refresh tokens."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web


@dataclass(slots=True)
class TokenEndpoint:
    """What it was asked, and what counts. The tokens that it gives are good at once: it writes them to `accepted`."""

    accepted: Path
    url: str = ""
    seconds: float = 3_600
    refresh_tokens: set[str] = field(default_factory=set[str])
    asked: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    is_broken: bool = False
    opened: asyncio.Event = field(default_factory=asyncio.Event)
    """Answers wait for this; clear it to hold them back."""

    def __post_init__(self) -> None:
        self.opened.set()

    async def answer(self, request: web.Request) -> web.Response:
        """Give a token."""
        form = {name: str(value) for name, value in (await request.post()).items()}
        if basic := request.headers.get("Authorization", "").removeprefix("Basic "):
            form["basic"] = base64.b64decode(basic).decode()
        self.asked.append(form)
        if self.is_broken:
            return web.Response(status=503)
        answer: dict[str, object] = {"expires_in": self.seconds, "token_type": "Bearer"}
        if form["grant_type"] == "refresh_token":
            if form["refresh_token"] not in self.refresh_tokens:
                return web.json_response({"error": "invalid_grant"}, status=400)
            self.refresh_tokens = {f"refresh-{len(self.asked)}"}
            answer["refresh_token"] = f"refresh-{len(self.asked)}"
        token = f"access-{len(self.asked)}"
        self.accept(token)
        await self.opened.wait()
        return web.json_response({**answer, "access_token": token})

    def accept(self, *tokens: str) -> None:
        """Have the server take these tokens alone."""
        self.accepted.write_text("\n".join(tokens), encoding="utf-8")


@asynccontextmanager
async def token_endpoint(accepted: Path) -> AsyncGenerator[TokenEndpoint]:
    """The endpoint on a free port."""
    endpoint = TokenEndpoint(accepted)
    endpoint.accept("none")
    app = web.Application()
    app.router.add_post("/token", endpoint.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    endpoint.url = f"http://127.0.0.1:{runner.addresses[0][1]}/token"
    try:
        yield endpoint
    finally:
        await runner.cleanup()
