"""Arguments that a modern server wants in headers, too: by the pinned tools, on a connection that has listed none."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.core.tools.tool_context import ToolContext
from holdfast.mcp.answers import McpAnswer
from holdfast.mcp.pool import McpPool
from holdfast.mcp.tools import call_mcp_tool
from tests.mcp.places import noted, over_http

pytestmark = pytest.mark.timeout(120)


async def test_another_worker_sends_the_headers_that_a_pinned_tool_wants(tmp_path: Path) -> None:
    accepted = tmp_path / "accepted"
    accepted.write_text("key")
    async with over_http(tmp_path / "ledger", "guarded_server.py", str(accepted)) as (place, _):
        keyed = place.model_copy(update={"headers": {"Authorization": "Bearer key"}})
        first, second = McpPool({"till": keyed}, {}), McpPool({"till": keyed}, {})
        try:
            pinned = {tool.tool: tool for tool in (await first.catalog(("till",), "clerk")).tools}
            context = ToolContext(execution_id="run", idempotency_key="k", attempt=1)
            for city in ("Graz", "Wörgl"):
                answer = await call_mcp_tool(second, keyed, pinned["deliver"], {"city": city}, context)
                assert isinstance(answer, McpAnswer)
                assert answer.text == f"delivered to {city}"
        finally:
            await first.close()
            await second.close()
    assert noted(tmp_path / "ledger") == ["deliver Graz", "deliver Wörgl"]
