"""What a worker knows of the MCP servers whose tools another worker has listed."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

import pytest
from temporalio.exceptions import ApplicationError

from activities.mcp import McpTools
from activities.tools import Catalog
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.toolset import Toolset
from holdfast.core.tools.mcp_catalog import McpCatalog, McpTool
from holdfast.core.tools.mcp_servers import McpServer
from holdfast.core.wire.tool_catalog import ToolsRequest
from holdfast.mcp.pool import McpPool
from holdfast.runtime.prices import PriceList
from holdfast.storage.object_store import Objects
from holdfast.storage.records import Records

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TILL = McpServer(name="till", command=("true",))
PAY = McpTool(name="till_pay", server="till", tool="pay", parameters={"type": "object"})


async def test_a_run_is_not_begun_with_the_tools_of_a_server_that_the_worker_lacks() -> None:
    records = Records(Objects(f"memory://{uuid4()}"))
    digest = await records.write_catalog(McpCatalog(tools=(PAY,)))
    request = ToolsRequest.of(AgentDefinition(name="clerk", mcp=("till",)), NOW, digest)
    knowing = McpTools(McpPool({"till": TILL}, {}), records)
    assert [each.name for each in (await Catalog(Toolset(), PriceList(), knowing).resolve(request)).tools] == [
        "till_pay"
    ]
    lacking = McpTools(McpPool({}, {}), records)
    assert [each.name for each in await lacking.pinned_tools(digest)] == ["till_pay"], "it can describe them"
    with pytest.raises(ApplicationError, match=r"another worker listed .* knows no MCP server 'till'") as refused:
        await Catalog(Toolset(), PriceList(), lacking).resolve(request)
    assert (refused.value.type, refused.value.non_retryable) == ("InvalidInput", True)
