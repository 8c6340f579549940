"""Large and changing catalogs of MCP tools on the real server: searched, called, compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast import AgentDefinition, tool
from holdfast.core.agent.policies import ApprovalRule
from holdfast.core.base.frozen import replace
from holdfast.core.conversation.steps import Outcome
from holdfast.core.conversation.verdicts import Verdict
from holdfast.events import ToolCallStarted
from holdfast.testing.script import call, say
from tests.mcp.places import catalog, noted
from tests.serving import Serve
from tests.workflows.histories import replayed
from tests.workflows.waiting import waiting_calls

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(180)]

AGENT = AgentDefinition(name="clerk", mcp=("shop",), tools=("ping",))

MANY = [{"name": f"tool_{number}"} for number in range(298)]
PAY = {"name": "pay_invoice", "description": "Settle a bill of a supplier."}
REFUND = {"name": "refund", "description": "Give money back to a customer."}


@tool
def ping() -> str:
    """Answer at once."""
    return "pong"


def names_offered(body: dict[str, Any] | None) -> list[str]:
    return [each["function"]["name"] for each in (body or {})["tools"]]


async def test_an_agent_searches_three_hundred_tools_and_calls_one_by_its_own_name(
    serve: Serve, tmp_path: Path
) -> None:
    script = [
        call("search_tools", query="settle a supplier's bill"),
        call("call_tool", name="shop_pay_invoice", arguments={"item": "7"}),
        call("ping"),
        say("done"),
    ]
    server = catalog(tmp_path, [*MANY, PAY, REFUND])
    async with serve(script, [ping], mcp={"shop": server}) as served:
        result = await served.client.run(AGENT, "pay")
        execution_id = result.state.running.execution_id
        requests = served.endpoint.requests
        events = [each async for each in served.client.watch(execution_id)]
        await replayed(served.client, execution_id)
    assert names_offered(requests[0].body) == ["ping", "search_tools", "call_tool"]
    searched, paid, pinged = (step.tool_executions[0] for step in result.state.steps[:3])
    assert searched.result is not None
    first = json.loads(searched.result)["tools"][0]
    assert (first["name"], first["parameters"]["required"]) == ("shop_pay_invoice", ["item"])
    assert (paid.call.name, paid.call.arguments, paid.result) == (
        *("shop_pay_invoice", {"item": "7"}),
        "pay_invoice has run",
    )
    assert pinged.result == "pong"
    assert noted(tmp_path / "ledger") == ['pay_invoice {"item": "7"}']
    assert [each.call.name for each in events if isinstance(each, ToolCallStarted)] == [
        *("search_tools", "shop_pay_invoice", "ping")
    ]
    sent = (requests[2].body or {})["messages"][3]["tool_calls"][0]["function"]
    assert (sent["name"], json.loads(sent["arguments"])) == (
        "call_tool",
        {"name": "shop_pay_invoice", "arguments": {"item": "7"}},
    ), "the model sees what it wrote"


async def test_rules_about_a_tool_hold_when_it_is_called_through_another(serve: Serve, tmp_path: Path) -> None:
    script = [
        call("call_tool", name="shop_refund", arguments={"item": "7"}),
        call("call_tool", name="shop_pay_invoice", arguments={"item": 7}),
        call("call_tool", name="shop_pay_invoice", arguments={"item": "7"}),
        call("call_tool", name="shop_pay_invoise", arguments={"item": "7"}),
        say("done"),
    ]
    rule = ApprovalRule(tools=("shop_pay_*",))
    agent = replace(AGENT, tools=(), tools_deny=("shop_refund",), approvals=(rule,))
    async with serve(script, mcp={"shop": catalog(tmp_path, [*MANY, PAY, REFUND])}) as served:
        execution_id = await served.client.start(agent, "pay")
        [call_id] = await waiting_calls(served.client, execution_id)
        [waiting] = (await served.client.state(execution_id)).waiting_calls
        assert (waiting.call.name, waiting.call.arguments) == ("shop_pay_invoice", {"item": "7"})
        await served.client.decide(execution_id, call_id, Verdict(decision="deny", reason="too much"))
        state = await served.client.result(execution_id)
        await replayed(served.client, execution_id)
    refunded, misfit, paid, misspelled = (step.tool_executions[0] for step in state.steps[:4])
    assert refunded.error is not None
    assert "names the tool 'shop_refund'" in refunded.error.message, "a denied tool is not there"
    assert misfit.error is not None
    assert (misfit.call.name, misfit.error.type) == ("shop_pay_invoice", "InvalidArguments")
    assert "7 is not of type 'string'" in misfit.error.message
    assert (paid.call.name, paid.outcome) == ("shop_pay_invoice", Outcome.DENIED)
    assert misspelled.error is not None
    assert "did you mean 'shop_pay_invoice'" in misspelled.error.message
    assert noted(tmp_path / "ledger") == []
