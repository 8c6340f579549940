"""A worker's MCP connections: opened once, shared where that is safe, opened anew, closed."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from holdfast.core.base.errors import InvalidInput
from holdfast.mcp.errors import McpOutcomeUnknown
from holdfast.mcp.pool import CONNECTIONS_MAX, McpPool
from tests.mcp.places import odd, over_http, trial

pytestmark = pytest.mark.timeout(60)


async def test_calls_share_a_connection_and_one_that_broke_is_opened_anew(tmp_path: Path) -> None:
    server = trial(tmp_path / "ledger")
    pool = McpPool({"till": server}, os.environ)
    try:
        async with pool.connection(server, "run-1") as first, pool.connection(server, "run-2") as second:
            assert first is second
            with pytest.raises(McpOutcomeUnknown):
                await first.call("die", {})
        async with pool.connection(server, "run-1") as third:
            assert third is not first
            assert (await third.call("add", {"a": 1, "b": 2})).text == "3"
    finally:
        await pool.close()
    assert not third.open


async def test_a_server_of_the_modern_era_is_shared_over_http(tmp_path: Path) -> None:
    async with over_http(tmp_path / "ledger") as (server, _):
        pool = McpPool({"till": server}, os.environ)
        try:
            async with pool.connection(server, "run-1") as first, pool.connection(server, "run-2") as second:
                assert first is second
        finally:
            await pool.close()


async def test_many_at_once_open_one_connection(tmp_path: Path) -> None:
    server = trial(tmp_path / "ledger")
    pool = McpPool({"till": server}, os.environ)

    async def borrowed() -> int:
        async with pool.connection(server) as connection:
            await asyncio.sleep(0)
            return id(connection)

    try:
        assert len(set(await asyncio.gather(*(borrowed() for _ in range(20))))) == 1
    finally:
        await pool.close()


async def test_idle_connections_beyond_the_bound_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert CONNECTIONS_MAX == 64
    monkeypatch.setattr("holdfast.mcp.pool.CONNECTIONS_MAX", 1)
    one, other = odd("media"), odd("media").model_copy(update={"name": "other"})
    pool = McpPool({"odd": one, "other": other}, os.environ)
    try:
        async with pool.connection(one) as first:
            assert first.open
        async with pool.connection(other) as second:
            assert second.open
        assert not first.open
        assert second.open
    finally:
        await pool.close()


async def test_a_name_that_is_no_server_is_told_with_the_nearest(tmp_path: Path) -> None:
    pool = McpPool({"till": trial(tmp_path / "ledger")}, os.environ)
    with pytest.raises(InvalidInput, match=r"agent 'clerk' names the MCP server 'tils', .*did you mean 'till'"):
        await pool.catalog(("tils",), "clerk")
