"""MCP servers that misbehave in runs on the real server: the model is told, the run goes on, nothing grows or leaks."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.base.frozen import replace
from holdfast.core.tools.mcp_catalog import McpTool, legal_names
from holdfast.core.tools.mcp_servers import McpOAuth
from holdfast.testing.script import call, say
from tests.mcp.places import catalog, noted, odd, over_http
from tests.mcp.token_endpoint import token_endpoint
from tests.serving import Serve
from tests.workflows.histories import history_of, written

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(180)]

HISTORY_BYTES_MAX = 200_000
"""More than a run of three steps needs, and far less than what these servers write."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "error", "told"),
    [
        ("silent", "OutcomeUnknown", "its outcome is unknown (it took too long)"),
        ("huge", "OutcomeUnknown", "a line of more than 16,777,216 bytes"),
        ("shapeless", "OutcomeUnknown", "no answer of the protocol"),
        ("refusal", "McpCallFailed", "not today (code -32099)"),
        ("flood", None, "after"),
        ("junk", None, "after"),
        ("misfit", None, "[warning: the answer does not fit the schema that its server declares"),
    ],
)
async def test_the_model_is_told_what_a_server_did_and_the_run_goes_on(
    serve: Serve, mode: str, error: str | None, told: str
) -> None:
    fields = {"timeout_seconds": 1} if mode == "silent" else {}
    async with serve([call("odd_go"), say("done")], mcp={"odd": odd(mode, **fields)}) as served:
        result = await served.client.run(AgentDefinition(name="clerk", mcp=("odd",)), "go")
        history = written((await history_of(served.client, result.state.running.execution_id)).events)
        model = str(served.endpoint.requests[1].body)
    assert result.state.status is ExecutionStatus.COMPLETED
    [execution] = result.state.steps[0].tool_executions
    assert (execution.error.type if execution.error else None) == error
    assert told in (execution.error.message if execution.error else str(execution.result))
    assert told in model
    assert len(history) < HISTORY_BYTES_MAX


@pytest.mark.slow
async def test_a_token_that_ends_in_the_middle_of_a_run_is_renewed_and_each_call_has_one_effect(
    serve: Serve, tmp_path: Path
) -> None:
    accepted, ledger = tmp_path / "accepted", tmp_path / "ledger"
    script = [call("till_pay", amount=5), call("till_revoke"), call("till_pay", amount=6), say("done")]
    async with (
        token_endpoint(accepted) as endpoint,
        over_http(ledger, "guarded_server.py", str(accepted)) as (place, _),
    ):
        oauth = {"token_url": endpoint.url, "client_id": "holdfast", "client_secret": "keep-me-secret"}
        server = replace(place, oauth=McpOAuth.model_validate(oauth))
        async with serve(script, mcp={"till": server}) as served:
            result = await served.client.run(AgentDefinition(name="clerk", mcp=("till",)), "pay twice")
            history = written((await history_of(served.client, result.state.running.execution_id)).events)
    texts = [each.result for step in result.state.steps for each in step.tool_executions]
    assert texts == ["paid 5", "revoked", "paid 6"]
    lines = [" ".join(line.split()[:2]) for line in noted(ledger)]
    assert [line for line in lines if not line.startswith("refused")] == ["pay 5", "revoke", "pay 6"]
    assert "refused access-1" in lines, "the token ended within the run"
    assert len(endpoint.asked) == 2
    for secret in (b"access-", b"keep-me-secret"):
        assert secret not in history
    assert "access-" not in result.state.model_dump_json()


async def test_two_servers_whose_tools_have_one_name_are_told_apart_and_each_gets_its_own_calls(
    serve: Serve, tmp_path: Path
) -> None:
    servers = {name: tmp_path / name for name in ("mall", "shop")}
    for folder in servers.values():
        folder.mkdir()
    entries = {name: catalog(folder, [{"name": "buy"}], name=name, prefix="") for name, folder in servers.items()}
    tools = [McpTool(name="buy", server=name, tool="buy", parameters={}) for name in servers]
    first, second = (tool.name for tool in legal_names(tools, dict.fromkeys(servers, "")))
    assert first == "buy" != second
    script = [call(second, item="tea"), call(first, item="pen"), say("done")]
    async with serve(script, mcp=entries) as served:
        result = await served.client.run(AgentDefinition(name="clerk", mcp=("mall", "shop")), "buy")
    assert result.output == "done"
    assert noted(servers["mall"] / "ledger") == ['buy {"item": "pen"}']
    assert noted(servers["shop"] / "ledger") == ['buy {"item": "tea"}']
