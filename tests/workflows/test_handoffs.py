"""Handoffs on a real server: across workers, Temporal runs and the executions of a session."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast import AgentDefinition, ExecutionBudget, tool
from holdfast.client import Settings
from holdfast.core.agent.definition import LLM
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.errors import UnknownAgent
from holdfast.core.tools.tools import AnyTool
from holdfast.events import AgentHandedOff
from holdfast.local import LocalDriver
from holdfast.models import OpenAIChat, ProviderSettings
from holdfast.testing.holds import Hold
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import Call, Reply, calls, say
from tests.serving import Serve, Served
from tests.serving import served as served_at
from tests.workflows.histories import replayed

pytestmark = pytest.mark.temporal

FRONT = AgentDefinition(name="front", system_prompt="You welcome people.", handoffs=("billing",))
BILLING = AgentDefinition(
    name="billing",
    description="Settles bills.",
    system_prompt="You settle bills.",
    tools=("look",),
    handoffs=("front",),
    llm=LLM(model="dear"),
)
TO_BILLING = calls(Call("handoff", {"agent": "billing", "reason": "a bill"}))


def looking(hold: Hold | None = None) -> AnyTool:
    @tool(name="look", idempotent=True)
    async def look() -> str:
        """Look somewhere."""
        if hold is not None:
            await hold.stand()
        return "seen"

    return look


def prompts(endpoint: FakeOpenAI) -> list[str]:
    return [each.body["messages"][0]["content"] for each in endpoint.requests]


def offered(served: Served, request: int) -> list[str]:
    return [each["function"]["name"] for each in served.endpoint.requests[request].body["tools"]]


async def test_a_run_goes_on_as_the_other_agent_on_another_worker(settings: Settings, tmp_path: Path) -> None:
    script, hold = [TO_BILLING, calls(Call("look")), say("settled")], Hold()
    async with served_at(settings, tmp_path / "one.jsonl", script, Toolset(tools=(looking(hold),))) as first:
        execution_id = await first.client.start(FRONT, "Go.", subagents=[BILLING])
        await hold.until_held()
        assert prompts(first.endpoint) == ["You welcome people.", "You settle bills."]
        assert [offered(first, request) for request in (0, 1)] == [["handoff"], ["look", "handoff"]]
    assert hold.cancelled, "the first worker has ended before the tool did"
    async with served_at(settings, tmp_path / "two.jsonl", script, Toolset(tools=(looking(),))) as second:
        state = await second.client.result(execution_id)
        await replayed(second.client, execution_id)
        assert prompts(second.endpoint) == ["You settle bills."]
        assert [each.body["model"] for each in second.endpoint.requests] == ["dear"]
        events = [each async for each in second.client.watch(execution_id)]
    assert (state.status, state.final_response, state.active_agent) == (ExecutionStatus.COMPLETED, "settled", "billing")
    (handed,) = [each for each in events if isinstance(each, AgentHandedOff)]
    assert (handed.from_agent, handed.to_agent, handed.reason, handed.step_number) == ("front", "billing", "a bill", 1)
    assert [(each.from_agent, each.to_agent) for each in state.running.handoffs] == [("front", "billing")]


@pytest.mark.slow
async def test_a_run_goes_on_as_the_other_agent_in_each_of_its_temporal_runs(
    settings: Settings, tmp_path: Path
) -> None:
    script = [TO_BILLING, calls(Call("look")), calls(Call("handoff", {"agent": "front"})), say("welcome back")]
    settings = replace(settings, continue_events=1)
    async with served_at(settings, tmp_path / "ledger.jsonl", script, Toolset(tools=(looking(),))) as served:
        execution_id = await served.client.start(FRONT, "Go.", subagents=[BILLING])
        state = await served.client.result(execution_id)
        await replayed(served.client, execution_id)
        asked = ["You welcome people.", "You settle bills.", "You settle bills.", "You welcome people."]
        assert prompts(served.endpoint) == asked
    assert (state.final_response, state.active_agent) == ("welcome back", "front")


async def test_a_handoff_that_the_worker_refuses_is_told_to_the_model(serve: Serve) -> None:
    lacking = BILLING.model_copy(update={"tools": ("settle",)})
    async with serve([TO_BILLING, say("I do it myself.")]) as served:
        state = (await served.client.run(FRONT, "Go.", subagents=[lacking])).state
        assert prompts(served.endpoint) == [FRONT.system_prompt] * 2
    why = "the conversation was not handed over to 'billing': agent 'billing' names the tool 'settle'"
    assert why in state.messages[-2].text
    assert [each for each in state.warnings if why in each]
    assert (state.final_response, state.active_agent) == ("I do it myself.", "front")


async def test_an_unknown_name_is_refused_at_the_start(serve: Serve) -> None:
    async with serve([say("never")]) as served:
        with pytest.raises(UnknownAgent, match=r"names the handoff 'billing', which is not there"):
            await served.client.start(FRONT, "Go.", subagents=[BILLING.model_copy(update={"name": "bills"})])


def desk(request: dict[str, Any]) -> Reply:
    """Hand over whoever asks for the bill, else say who answers."""
    prompt, last = request["messages"][0]["content"], request["messages"][-1]
    if prompt == FRONT.system_prompt and last["content"] == "my bill":
        return TO_BILLING
    return say(f"{prompt} {last['content']}")


@pytest.mark.slow
async def test_the_last_agent_answers_the_sessions_next_message(serve: Serve) -> None:
    async with serve(desk, [looking()]) as served:
        agent = served.client.agent(definition=FRONT, subagents=[BILLING])
        answers = [await agent.ask(text) for text in ("hello", "my bill", "thanks")]
        assert [each.state.final_response for each in answers] == [
            "You welcome people. hello",
            "You settle bills. handed over to billing",
            "You settle bills. thanks",
        ]
        last = answers[-1].state
        assert (last.active_agent, last.running.handoffs) == ("billing", ())
        assert [each.text for each in last.messages if each.role == "user"] == ["hello", "my bill", "thanks"]

        await agent.rewind(answers[1].execution_id, 0)
        assert (await agent.ask("hello again")).state.final_response == "You welcome people. hello again"
        await agent.rewind(answers[1].execution_id)
        assert (await agent.ask("and now?")).state.final_response == "You settle bills. and now?"

        branch = await agent.fork(answers[1].execution_id)
        assert (await branch.ask("forked")).state.final_response == "You settle bills. forked"

        await agent.change(budget=ExecutionBudget(max_steps=5))
        after = await agent.ask("changed")
        assert after.state.final_response == "You welcome people. changed"
        assert after.state.handover is None


async def test_a_state_goes_on_with_the_last_agent_here_and_there(serve: Serve) -> None:
    async with serve(desk, [looking()]) as served:
        first = (await served.client.run(FRONT, "my bill", subagents=[BILLING])).state
        there = (await served.client.run(FRONT, "thanks", state=first, subagents=[BILLING])).state
        model = OpenAIChat(ProviderSettings(base_url=served.endpoint.base_url, api_key="test-key", model="scripted"))
        driver = LocalDriver(FRONT, model=model, agents=[BILLING], tools=[looking()])
        here = await driver.execute("thanks", state=first)
        other = FRONT.model_copy(update={"description": "Another desk."})
        back = (await served.client.run(other, "thanks", state=first, subagents=[BILLING])).state
        begun_again = await driver.execute("hello")
        await model.close()
    for state in (there, here):
        assert (state.final_response, state.active_agent) == ("You settle bills. thanks", "billing")
        assert state.handover == first.handover
    assert (back.final_response, back.active_agent, back.handover) == ("You welcome people. thanks", "front", None)
    assert begun_again.final_response == "You welcome people. hello"
