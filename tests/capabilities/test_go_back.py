"""Going back on a real server: the same state as in-process, also in another Temporal run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast import AgentDefinition, tool
from holdfast.client import Settings
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.toolset import Toolset
from holdfast.testing.script import Call, Reply, calls, say
from tests.capabilities.twin import assert_same_in_process
from tests.serving import served as served_at
from tests.workflows.chains import chain_of
from tests.workflows.histories import replayed

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(180)]

AGENT = AgentDefinition(name="clerk", capabilities=("go_back",), tools=("pay",))


@tool(at_most_once=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def first_turns(request: dict[str, Any]) -> Reply:
    """Pay twice, go back behind the second one, and answer once the note is there."""
    text = str(request["messages"])
    if "Your note" in text:
        return say("done")
    if "paid 2" in text:
        return calls(Call("go_back", {"step": 2, "note": "One is enough."}, "back"))
    return calls(Call("pay", {"amount": 2 if "paid 1" in text else 1}, "two" if "paid 1" in text else "one"))


@pytest.mark.parametrize("continue_events", [2_000, 1])
async def test_an_agent_goes_back_on_the_server_as_in_process(
    settings: Settings, tmp_path: Path, continue_events: int
) -> None:
    settings = replace(settings, continue_events=continue_events)
    async with served_at(settings, tmp_path / "ledger.jsonl", first_turns, Toolset(tools=(pay,))) as served:
        execution_id = await served.client.start(AGENT, "Go.")
        state = await served.client.result(execution_id)
        shown = served.endpoint.requests[-1].body["messages"]
        chain = await chain_of(served.client, execution_id)
        await replayed(served.client, execution_id)
    assert (len(chain) > 1) is (continue_events == 1)
    assert (state.status, state.final_response) == (ExecutionStatus.COMPLETED, "done")
    assert [each["role"] for each in shown] == ["system", "user", "assistant", "tool", "user"]
    assert "One is enough." in shown[-1]["content"]
    assert '- pay({"amount":2}) succeeded' in shown[-1]["content"]
    assert [each.number for each in state.steps] == [1, 2, 3, 4]
    await assert_same_in_process(AGENT, first_turns, state, tools=[pay])
