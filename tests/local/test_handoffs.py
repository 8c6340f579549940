"""Handoffs in-process: who answers, by which rules, and who has the conversation afterwards."""

from __future__ import annotations

from holdfast import Agent
from holdfast.local import LocalDriver
from holdfast.testing import Call, ScriptedModel, calls, say


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
