"""Agents with MCP servers in-process and on Temporal: the same servers, the same script, the same state."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import chain, count
from pathlib import Path
from uuid import UUID, uuid4, uuid5

import pytest

from holdfast import AgentDefinition
from holdfast.core.agent.definition import LLM
from holdfast.core.agent.policies import ApprovalRule
from holdfast.core.agent.state import AgentState
from holdfast.core.base.errors import ExecutionFailed
from holdfast.core.base.frozen import replace
from holdfast.core.conversation.verdicts import Verdict
from holdfast.core.tools.mcp_servers import McpServer
from holdfast.core.wire.contracts import CHANGE_SIGNAL, DefinitionChange
from holdfast.core.wire.execution_events import ApprovalRequested
from holdfast.local import LocalDriver
from holdfast.models import OpenAIChat, ProviderSettings
from holdfast.testing import assert_same_run
from holdfast.testing.script import Scripts, call, say
from tests.mcp.places import noted, odd, over_http, trial
from tests.scenarios.driving import UNEQUAL
from tests.serving import Serve, Served
from tests.workflows.waiting import waiting_calls

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(180)]

CLERK = AgentDefinition(name="clerk", mcp=("till",))
WAITS = replace(CLERK, approvals=(ApprovalRule(tools=("till_pay",)),))

Servers = Mapping[str, McpServer]


@asynccontextmanager
async def till(transport: str, ledger: Path) -> AsyncGenerator[Servers]:
    if transport == "stdio":
        yield {"till": trial(ledger)}
        return
    async with over_http(ledger) as (server, _):
        yield {"till": server}


async def in_both(
    serve: Serve,
    servers: Servers,
    script: Scripts,
    agent: AgentDefinition,
    agents: Sequence[AgentDefinition] = (),
    *,
    verdict: Verdict | None = None,
    change: AgentDefinition | None = None,
) -> AgentState:
    """Run the agent in both drivers, compare the ends, and return the one in-process.

    The first call that waits for a person gets the `verdict`, after the agent is changed as in `change`.
    """
    agent_id, execution_id = str(uuid4()), str(uuid4())
    async with serve(script, mcp=servers) as served:
        await served.client.start(agent, "go", agent_id=agent_id, execution_id=execution_id, subagents=agents)
        if verdict is not None:
            [call_id] = await waiting_calls(served.client, execution_id)
            if change is not None:
                signal = DefinitionChange(definition=change)
                await served.client.temporal.get_workflow_handle(execution_id).signal(CHANGE_SIGNAL, signal)
            await served.client.decide(execution_id, call_id, verdict)
        durable = await ended(served, execution_id)
        asked = [each.body for each in served.endpoint.requests]
        served.endpoint.begin_again()
        ids = chain((agent_id, execution_id), (str(uuid5(UUID(execution_id), f"child/{n}")) for n in count()))
        settings = ProviderSettings(base_url=served.endpoint.base_url, api_key="test-key", model="scripted")
        model = OpenAIChat(settings)
        driver = LocalDriver(agent, model=model, agents=agents, mcp=servers, new_id=lambda: next(ids))

        def decide(event: ApprovalRequested) -> None:
            assert verdict is not None
            if change is not None:
                driver.change(change)
            driver.decide(event.call.id, verdict)

        try:
            local = await driver.on(ApprovalRequested, decide).execute("go")
        finally:
            await model.close()
        assert [each.body for each in served.endpoint.requests[len(asked) :]] == asked, "the model is sent the same"
    assert_same_run(durable, local, ignoring=UNEQUAL | {"mcp_processes"})
    return local


async def ended(served: Served, execution_id: str) -> AgentState:
    try:
        return await served.client.result(execution_id)
    except ExecutionFailed as failed:
        return AgentState.from_dict(failed.state or {})


def outcomes(state: AgentState) -> list[str]:
    """What became of each call: its result, or the type of its error."""
    every = (each for step in state.steps for each in step.tool_executions)
    return [each.error.type if each.error else str(each.result) for each in every]


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_the_tools_of_a_server_end_in_both_drivers_alike(serve: Serve, tmp_path: Path, transport: str) -> None:
    ledger = tmp_path / "mcp"
    script = [
        call("till_add", a=1, b=2),
        call("till_pay", amount=5),
        call("till_pay", amount="a lot"),
        call("till_fail"),
        call("till_steal"),
        say("done"),
    ]
    async with till(transport, ledger) as servers:
        state = await in_both(serve, servers, script, CLERK)
    assert outcomes(state) == ["3", "paid 5", "InvalidArguments", "McpCallFailed", "UnknownTool"]
    lines = noted(ledger)
    assert len(lines) == 6
    assert lines[:3] == lines[3:], "the server saw the same calls, with the same idempotency keys"


@pytest.mark.slow
async def test_a_server_that_dies_leaves_the_same_unknown_outcome(serve: Serve, tmp_path: Path) -> None:
    ledger = tmp_path / "mcp"
    script = [call("till_die"), call("till_add", a=1, b=1), say("ok")]
    state = await in_both(serve, {"till": trial(ledger)}, script, CLERK)
    assert outcomes(state) == ["OutcomeUnknown", "2"]
    assert noted(ledger) == ["die", "add 1 1"] * 2, "the call that died was not repeated"


@pytest.mark.parametrize("mode", ["misfit", "shapeless", "declined", "media", "junk"])
async def test_odd_answers_are_told_the_model_alike(serve: Serve, mode: str) -> None:
    agent = AgentDefinition(name="clerk", mcp=("odd",))
    state = await in_both(serve, {"odd": odd(mode)}, [call("odd_go"), say("ok")], agent)
    assert len(outcomes(state)) == 1


@pytest.mark.slow
async def test_named_and_denied_tools_are_the_same(serve: Serve, tmp_path: Path) -> None:
    agent = AgentDefinition(name="clerk", tools=("till_add", "till_pay"), tools_deny=("till_die",), mcp=("till",))
    script = [call("till_die"), call("till_add", a=1, b=2), say("done")]
    state = await in_both(serve, {"till": trial(tmp_path / "mcp")}, script, agent)
    assert outcomes(state)[1] == "3"


@pytest.mark.slow
async def test_an_edited_approval_ends_alike(serve: Serve, tmp_path: Path) -> None:
    ledger = tmp_path / "mcp"
    edit = Verdict(decision="edit", by="somebody", arguments={"amount": 6})
    script = [call("till_pay", amount=5), say("done")]
    state = await in_both(serve, {"till": trial(ledger)}, script, WAITS, verdict=edit)
    assert outcomes(state) == ["paid 6"]


@pytest.mark.slow
async def test_the_agent_that_is_handed_the_conversation_has_the_tools_of_its_servers(
    serve: Serve, tmp_path: Path
) -> None:
    front = AgentDefinition(name="front", handoffs=("clerk",))
    script = [call("handoff", agent="clerk"), call("till_add", a=1, b=2), say("done")]
    state = await in_both(serve, {"till": trial(tmp_path / "mcp")}, script, front, [CLERK])
    assert outcomes(state)[-1] == "3"
    assert state.active_agent == "clerk"


async def test_a_handoff_to_an_agent_whose_servers_cannot_be_listed_is_refused_alike(serve: Serve) -> None:
    front = AgentDefinition(name="front", handoffs=("clerk",))
    script = [call("handoff", agent="clerk"), say("I go on myself")]
    servers = {"till": McpServer(name="till", url="http://127.0.0.1:9/mcp", headers={"X": "${NOT_SET_ANYWHERE}"})}
    state = await in_both(serve, servers, script, front, [CLERK])
    assert state.active_agent == "front"
    assert any("NOT_SET_ANYWHERE" in each for each in state.running.warnings)


@pytest.mark.slow
async def test_a_subagent_has_the_tools_of_its_servers(serve: Serve, tmp_path: Path) -> None:
    ledger = tmp_path / "mcp"
    boss = AgentDefinition(name="boss", subagents=("clerk",), llm=LLM(model="boss"))
    clerk = replace(CLERK, llm=LLM(model="clerk"))
    script = {
        "boss": [call("spawn", agent="clerk", task="add"), say("told")],
        "clerk": [call("till_add", a=1, b=2), say("it is 3")],
    }
    state = await in_both(serve, {"till": trial(ledger)}, script, boss, [clerk])
    assert state.final_response == "told"
    assert noted(ledger) == ["add 1 2"] * 2


@pytest.mark.slow
async def test_a_changed_definition_brings_the_tools_of_its_servers(serve: Serve, tmp_path: Path) -> None:
    ledger = tmp_path / "mcp"
    script = [call("till_pay", amount=5), call("other_add", a=1, b=2), say("done")]
    servers = {"till": trial(ledger), "other": trial(ledger, name="other")}
    change = AgentDefinition(name="clerk", mcp=("other",))
    yes = Verdict(decision="approve", by="somebody")
    state = await in_both(serve, servers, script, WAITS, verdict=yes, change=change)
    assert outcomes(state) == ["paid 5", "3"]


@pytest.mark.slow
async def test_a_change_whose_servers_cannot_be_listed_is_refused_alike(serve: Serve, tmp_path: Path) -> None:
    script = [call("till_pay", amount=5), call("till_add", a=1, b=2), say("done")]
    unset = McpServer(name="other", url="http://127.0.0.1:9/mcp", headers={"X": "${NOT_SET_ANYWHERE}"})
    servers = {"till": trial(tmp_path / "mcp"), "other": unset}
    change = AgentDefinition(name="clerk", mcp=("other",))
    yes = Verdict(decision="approve", by="somebody")
    state = await in_both(serve, servers, script, WAITS, verdict=yes, change=change)
    assert outcomes(state) == ["paid 5", "3"]
    assert any("NOT_SET_ANYWHERE" in each for each in state.running.warnings)


async def test_a_variable_that_is_not_set_ends_the_run_alike(serve: Serve) -> None:
    servers = {"till": McpServer(name="till", url="http://127.0.0.1:9/mcp", headers={"X": "${NOT_SET_ANYWHERE}"})}
    state = await in_both(serve, servers, [say("never")], CLERK)
    assert state.stop_signal is not None
    assert "needs the variable NOT_SET_ANYWHERE" in state.stop_signal.message
