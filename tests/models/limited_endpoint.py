"""Chat completions endpoints that lack a part of the API and refuse requests that have it, as real ones do."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

from holdfast.models.route_file import routes_from
from holdfast.models.routed_model import RoutedModel
from holdfast.models.routes import Capability
from holdfast.testing import ScriptedModel
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.openai_wire_format import OPENAI_WIRE, read_request
from holdfast.testing.script import Scripts
from holdfast.testing.wire_format import Refusal

ROUTE = "limited"

ABOUT_TOOLS = ("tools", "tool_choice", "parallel_tool_calls")


def needs(request: dict[str, Any]) -> set[str]:
    """Which capabilities a request needs."""
    form: str = cast("dict[str, Any]", request.get("response_format") or {}).get("type", "text")
    messages = cast("list[dict[str, Any]]", request["messages"])
    of_tools = any(name in request for name in ABOUT_TOOLS) or any(
        each["role"] == "tool" or "tool_calls" in each for each in messages
    )
    needed = {form: form != "text", "tools": of_tools, "stream": bool(request.get("stream"))}
    return {name for name, is_needed in needed.items() if is_needed}


def endpoint(script: Scripts, *can: Capability) -> FakeOpenAI:
    """Return a server that refuses what a model with these capabilities cannot do."""

    def read(content_type: str, raw: bytes, fields: frozenset[str]) -> dict[str, Any] | Refusal:
        request = read_request(content_type, raw, fields)
        if isinstance(request, Refusal) or not (lacking := sorted(needs(request) - {*can})):
            return request
        return Refusal(f"This model does not support {', '.join(lacking)}.")

    class Limited(FakeOpenAI):
        WIRE = replace(OPENAI_WIRE, read_request=read)

    return Limited(script)


def route_to(server: FakeOpenAI, can: Sequence[Capability]) -> dict[str, Any]:
    """Return the entry of `models.yaml` for the server."""
    return {"api": "openai_chat", "model": "small-1", "base_url": server.base_url, "capabilities": list(can)}


@asynccontextmanager
async def limited(script: Scripts, *can: Capability) -> AsyncGenerator[tuple[FakeOpenAI, RoutedModel]]:
    """Serve the script and give the endpoint, and a model whose route says what it can do."""
    async with endpoint(script, *can) as server:
        model = RoutedModel(ScriptedModel([]), routes_from({ROUTE: route_to(server, can)}, {}), {})
        try:
            yield server, model
        finally:
            await model.close()
