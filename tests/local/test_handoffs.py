"""Handoffs in-process: who answers, by which rules, and who has the conversation afterwards."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Agent, AgentState, ExecutionBudget
from holdfast.core.agent.handoffs import HANDOFFS_MADE_MAX
from holdfast.core.base.errors import UnknownAgent
from holdfast.events import AgentHandedOff
from holdfast.local import LocalDriver
from holdfast.testing import Call, Reply, ScriptedModel, calls, say


def to(agent: str, reason: str | None = None) -> Call:
    return Call("handoff", {"agent": agent} if reason is None else {"agent": agent, "reason": reason})


def lookup(order: str) -> str:
    """Look an order up.

    Args:
        order: its number.
    """
    return f"order {order} is paid"


BILLING = Agent(name="billing", prompt="You settle bills.", model="billing", tools=[lookup], handoffs=["front"])
FRONT = Agent(name="front", prompt="You welcome people.", model="front", handoffs=[BILLING])


async def test_the_other_agent_answers_by_its_own_prompt_model_and_tools() -> None:
    model = ScriptedModel(
        {
            "front": [calls(to("billing", "a bill"))],
            "billing": [say("unused"), calls(Call("lookup", {"order": "17"})), say("It is paid.")],
        }
    )
    state = await LocalDriver(FRONT, model=model).execute("Is order 17 paid?")
    assert (state.status, state.final_response, state.active_agent) == ("completed", "It is paid.", "billing")
    assert [each.llm.model for each in model.requests] == ["front", "billing", "billing"]
    assert [each.name for each in model.requests[1].tools] == ["lookup", "handoff"]
    assert state.context.system_prompt == "You settle bills."
    (handoff,) = state.running.handoffs
    assert (handoff.step_number, handoff.from_agent, handoff.to_agent, handoff.reason) == (
        1,
        "front",
        "billing",
        "a bill",
    )


async def test_a_driver_yields_the_step_that_hands_over_and_rests_before_the_next_agents() -> None:
    model = ScriptedModel({"front": [calls(to("billing"))], "billing": [say("unused"), say("done")]})
    states = LocalDriver(FRONT, model=model).iterate("Go.")
    seen = [(state.step_count, state.active_agent, len(model.requests)) async for state in states]
    assert seen == [(1, "billing", 1), (2, "billing", 2)]


async def test_a_refused_handoff_is_told_to_the_model() -> None:
    lacking = Agent(name="billing", tools=["settle"])
    model = ScriptedModel([calls(to("billing")), say("I do it myself.")])
    state = await LocalDriver(Agent(name="front", handoffs=[lacking]), model=model).execute("Go.")
    assert "was not handed over to 'billing': agent 'billing' names the tool 'settle'" in state.messages[-2].text
    assert (state.status, state.final_response, state.active_agent) == ("completed", "I do it myself.", "front")


def test_an_unknown_name_is_refused_when_the_driver_is_made() -> None:
    with pytest.raises(UnknownAgent, match=r"agent 'clerk' names the handoff 'biling', .* did you mean 'billing'\?"):
        LocalDriver(Agent(name="front", handoffs=[Agent(name="clerk", handoffs=["biling"]), BILLING]))


async def test_a_conversation_saved_in_the_middle_of_a_handoff_goes_on_with_it() -> None:
    model = ScriptedModel({"front": [calls(to("billing"))], "billing": [say("unused"), say("done")]})
    states = LocalDriver(FRONT, model=model).iterate("Go.")
    saved = (await anext(states)).to_json()
    await states.aclose()
    final = await LocalDriver(FRONT, model=model).execute(AgentState.from_json(saved))
    assert (final.status, final.final_response, final.active_agent) == ("completed", "done", "billing")
    assert [each.llm.model for each in model.requests] == ["front", "billing"]


async def test_two_agents_that_hand_on_for_ever_are_bounded() -> None:
    def endless(request: dict[str, Any]) -> Reply:
        other = "billing" if "welcome" in request["messages"][0]["content"] else "front"
        return calls(to(other))

    events: list[AgentHandedOff] = []
    driver = LocalDriver(FRONT, model=ScriptedModel({"front": endless, "billing": endless}))
    driver.on(AgentHandedOff, events.append)
    state = await driver.execute("Go.", budget=ExecutionBudget(max_steps=HANDOFFS_MADE_MAX + 3))
    assert len(events) == len(state.running.handoffs) == HANDOFFS_MADE_MAX
    assert state.errors[-1].type == "TooManyHandoffs"
    assert [each.ran for step in state.steps for each in step.tool_executions] == [True] * HANDOFFS_MADE_MAX + [
        False
    ] * 3
