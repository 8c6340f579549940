"""A real MCP server that asks people: `python asking_server.py stdio`, or `http PORT`.

It appends a line per question and per effect to the file in the variable LEDGER.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Context, MCPServer, RequestStateSecurity
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import (
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    InputRequest,
    InputRequiredResult,
)
from pydantic import BaseModel

KEY = b"0123456789abcdef0123456789abcdef"
"""The same in each of its processes: what one has asked, another can go on with."""

DAYS = 30 * 24 * 3600.0

server = MCPServer("theatre", version="1", request_state_security=RequestStateSecurity(keys=[KEY], ttl=DAYS))

SEATS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "seats": {"type": "integer", "minimum": 1, "maximum": 9, "description": "How many?"},
        "row": {"type": "string", "enum": ["front", "back"], "default": "front"},
    },
    "required": ["seats"],
}
SURE: dict[str, Any] = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}


def note(line: str) -> None:
    with Path(os.environ["LEDGER"]).open("a", encoding="utf-8") as ledger:
        ledger.write(f"{line}\n")


def form(message: str, schema: dict[str, Any]) -> InputRequest:
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


def answered(ctx: Context[Any, Any], key: str) -> dict[str, Any] | None:
    """The values of an accepted form; none for one that was declined, or has not come."""
    answer = (ctx.input_responses or {}).get(key)
    return dict(answer.content or {}) if isinstance(answer, ElicitResult) and answer.action == "accept" else None


def key_of(ctx: Context[Any, Any]) -> str:
    meta = ctx.request_context.meta
    return str(dict(meta).get("holdfast.dev/idempotency-key", "")) if meta else ""


@server.tool()
def book(show: str, ctx: Context[Any, Any]) -> str | InputRequiredResult:
    """Book seats: ask how many, and then whether that is right."""
    state: dict[str, Any] = json.loads(ctx.request_state) if ctx.request_state else {}
    if not state:
        note(f"asks seats {key_of(ctx)}")
        state = {"show": show, "secret": "of-the-server"}
        return InputRequiredResult(
            input_requests={"seats": form(f"How many seats for {show}?", SEATS)}, request_state=json.dumps(state)
        )
    if "seats" not in state:
        if (filled := answered(ctx, "seats")) is None:
            return "nothing booked"
        note(f"asks sure {key_of(ctx)}")
        return InputRequiredResult(
            input_requests={"sure": form(f"Book {filled['seats']}?", SURE)}, request_state=json.dumps(state | filled)
        )
    if not (answered(ctx, "sure") or {}).get("sure"):
        return "nothing booked"
    note(f"booked {state['seats']} {key_of(ctx)}")
    return f"booked {state['seats']} for {state['show']}"


@server.tool()
def consent(ctx: Context[Any, Any]) -> str | InputRequiredResult:
    """Have a person open a page first."""
    if not ctx.request_state:
        link = ElicitRequestURLParams(message="Allow access", url="https://example.com/consent?id=7")
        return InputRequiredResult(input_requests={"page": ElicitRequest(params=link)}, request_state="asked")
    answer = (ctx.input_responses or {}).get("page")
    note("consented")
    return answer.action if isinstance(answer, ElicitResult) else "no answer"


@server.tool()
def agree(ctx: Context[Any, Any], *, note_too: bool = False) -> str | InputRequiredResult:
    """Have a person agree, who has nothing to fill in, or only an optional note."""
    if not ctx.request_state:
        properties = {"note": {"type": "string"}} if note_too else {}
        asked = {"agreed": form("Delete everything?", {"type": "object", "properties": properties})}
        return InputRequiredResult(input_requests=asked, request_state="asked")
    note("agreed")
    return json.dumps(answered(ctx, "agreed"))


@server.tool()
def both(ctx: Context[Any, Any]) -> str | InputRequiredResult:
    """Ask two things at once."""
    if not ctx.request_state:
        asked = {"seats": form("How many?", SEATS), "sure": form("Sure?", SURE)}
        return InputRequiredResult(input_requests=asked, request_state="asked")
    note("both")
    return json.dumps([answered(ctx, "seats"), answered(ctx, "sure")])


@server.tool()
def insist(size: int = 1) -> InputRequiredResult:
    """Want the call again and again, with a state of `size` bytes."""
    note("insists")
    return InputRequiredResult(request_state="x" * size)


@server.tool()
def refuse() -> str:
    """Say which token is refused."""
    raise ToolError(f"refused: {os.environ['TOKEN']}")


class Answer(BaseModel):
    value: str


@server.tool()
async def elicit(ctx: Context[Any, Any]) -> str:
    """Ask in the middle of the call, as servers of the older protocol do."""
    result = await ctx.elicit("What is your name?", Answer)
    note(f"elicited {result.action}")
    if result.action != "accept":
        raise ToolError(f"no name: {result.action}")
    return "hello"


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
