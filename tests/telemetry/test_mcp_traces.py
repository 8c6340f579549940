"""Traces of calls to MCP servers, which have telemetry of their own: a real server, a real run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast import AgentDefinition
from holdfast.client import Settings
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.frozen import replace
from holdfast.testing.script import call, say
from tests.mcp.places import over_http
from tests.serving import served
from tests.telemetry.spans import Told, everything
from tests.telemetry.test_traces import traced

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(120)]

AGENT = AgentDefinition(name="clerk", mcp=("till",))


@pytest.mark.slow
async def test_a_server_gets_the_place_of_its_call_in_the_trace_and_the_sdk_adds_no_spans(
    settings: Settings, tmp_path: Path, told: Told
) -> None:
    accepted = tmp_path / "accepted"
    accepted.write_text("open")
    script = [call("till_seen"), call("till_fail"), say("done")]
    async with over_http(tmp_path / "mcp", "guarded_server.py", str(accepted)) as (place, _):
        mcp = {"till": replace(place, headers={"Authorization": "Bearer open"})}
        async with served(traced(settings), tmp_path / "ledger", script, Toolset(), mcp=mcp) as at_work:
            result = await at_work.client.run(AGENT, "look")
    seen, failed = (step.tool_executions[0] for step in result.state.steps[:2])
    meta = json.loads(seen.result or "")["meta"]
    span = told.one("execute_tool till_seen")
    assert span.context is not None
    assert meta["traceparent"] == f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-01"
    assert meta["tracestate"].startswith("holdfast=")
    assert failed.error is not None
    assert set(told.names) == {
        *("start clerk", "invoke_agent clerk", "chat scripted"),
        *("execute_tool till_seen", "execute_tool till_fail"),
    }
    assert failed.error.message not in everything(told), "what a server says of an error can quote anything"


async def test_without_traces_a_server_gets_none(settings: Settings, tmp_path: Path) -> None:
    accepted = tmp_path / "accepted"
    accepted.write_text("open")
    async with over_http(tmp_path / "mcp", "guarded_server.py", str(accepted)) as (place, _):
        mcp = {"till": replace(place, headers={"Authorization": "Bearer open"})}
        script = [call("till_seen"), say("done")]
        async with served(settings, tmp_path / "ledger", script, Toolset(), mcp=mcp) as at_work:
            result = await at_work.client.run(AGENT, "look")
    meta = json.loads(result.state.steps[0].tool_executions[0].result or "")["meta"]
    assert "traceparent" not in meta
    assert "holdfast.dev/idempotency-key" in meta
