"""The catalogs of MCP tools that runs have pinned, read from the record store."""

from __future__ import annotations

from holdfast.client.runs import Runs
from holdfast.core.base.errors import InvalidInput
from holdfast.core.tools.mcp_catalog import McpCatalog
from holdfast.storage.data_converter import records_of


async def pinned_catalog(runs: Runs, execution_id: str) -> McpCatalog:
    """Return the tools of MCP servers that the run has pinned, as their servers described them then.

    Raises InvalidInput for a run without any, ExecutionNotFound, ServerUnavailable, ObjectMissing, StorageFailed.
    """
    digest = (await runs.state(execution_id)).mcp_catalog
    if digest is None:
        problem = f"the run {execution_id} has pinned no tools of MCP servers"
        raise InvalidInput(f"{problem}; give a run of an agent that names some under `mcp`")
    return await records_of(runs.temporal.data_converter).read_catalog(digest)
