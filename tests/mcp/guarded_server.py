"""The server of `servers`, over HTTP, for holders of a token: `python guarded_server.py http PORT FILE`.

FILE has the tokens that count, one a line. The tool `seen` returns what came with its call, `deliver` wants its
argument in a header, too, and `revoke` ends every token.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import uvicorn
from mcp.server.mcpserver import Context
from pydantic import Field
from servers import note, server  # type: ignore[import-not-found]  # beside this program
from starlette.types import Receive, Scope, Send

PORT, TOKENS = int(sys.argv[2]), Path(sys.argv[3])
CLAIMED: list[str] = []


@server.tool()  # type: ignore[untyped-decorator]  # not found
def seen(ctx: Context[Any, Any]) -> str:
    """Return the token and the `_meta` of this call."""
    meta = ctx.request_context.meta
    return json.dumps({"token": CLAIMED[-1], "meta": dict(meta) if meta else {}})


@server.tool()  # type: ignore[untyped-decorator]  # not found
def deliver(city: Annotated[str, Field(json_schema_extra={"x-mcp-header": "City"})]) -> str:
    """Deliver to a city, which a gateway before the server routes by."""
    note(f"deliver {city}")
    return f"delivered to {city}"


@server.tool()  # type: ignore[untyped-decorator]  # not found
def revoke() -> str:
    """End the tokens that count: the next request is refused."""
    TOKENS.write_text("none", encoding="utf-8")
    note("revoke")
    return "revoked"


app = server.streamable_http_app()


async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
    """Refuse requests without a token that counts."""
    if scope["type"] == "http":
        headers = dict(scope["headers"])
        claimed = headers.get(b"authorization", b"").decode().removeprefix("Bearer ")
        if claimed not in TOKENS.read_text(encoding="utf-8").split():  # noqa: ASYNC240  # a test's
            note(f"refused {claimed}")
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        CLAIMED.append(claimed)
    await app(scope, receive, send)


uvicorn.run(guarded, host="127.0.0.1", port=PORT, log_level="warning")
