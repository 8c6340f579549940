"""Capabilities whose prompt is a function: what the model is sent, in-process and on a real server."""

from __future__ import annotations

import pytest

from holdfast import Capability, Toolset, tool
from holdfast.core.agent.capability_prompts import PROMPT_CHARS_MAX, PromptContext
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.local import LocalDriver
from holdfast.testing import ScriptedModel, call, say
from tests.serving import Serve
from tests.workflows.histories import history_of


def customer(context: PromptContext) -> str:
    return f"{context.run.agent}, step {context.run.step_number}: the customer is {context.metadata['customer']}."


@tool
def look() -> str:
    """Look."""
    return "seen"


CRM = Capability(name="crm", tools=("look",), prompt=customer)
STYLE = Capability(name="style", prompt="Be brief.")
AGENT = AgentDefinition(name="clerk", system_prompt="You are a clerk.", capabilities=("crm", "style"))
SENT = [f"You are a clerk.\n\nBe brief.\n\nclerk, step {step}: the customer is Ann." for step in (1, 2)]


def without_metadata(context: PromptContext) -> object:
    return context.metadata["none"]


def a_number(_: PromptContext) -> object:
    return 3


def too_long(_: PromptContext) -> object:
    return "x" * (PROMPT_CHARS_MAX + 1)


async def test_a_prompt_is_made_for_each_model_call_and_is_not_in_the_state() -> None:
    model = ScriptedModel([call("look"), say("done")])
    driver = LocalDriver(AGENT, model=model, tools=[look], capabilities=[CRM, STYLE])
    state = await driver.execute("Go.", metadata={"customer": "Ann"})
    assert [each.system_prompt for each in model.requests] == SENT
    assert state.context.system_prompt == "You are a clerk.\n\nBe brief."


@pytest.mark.parametrize(
    ("prompt", "why"),
    [
        (without_metadata, "the prompt of the capability 'crm' raised KeyError"),
        (a_number, "gave a value of type 'int'; return a text"),
        (too_long, "has 16,001 characters, at most 16,000 are allowed"),
    ],
)
async def test_a_prompt_that_cannot_be_made_fails_the_run_with_the_cause(prompt: object, why: str) -> None:
    broken = Capability.model_validate({"name": "crm", "prompt": prompt})
    driver = LocalDriver(AGENT, model=ScriptedModel([say("done")]), capabilities=[broken, STYLE])
    state = await driver.execute("Go.")
    assert state.status is ExecutionStatus.FAILED
    assert why in state.errors[-1].message


@pytest.mark.temporal
async def test_on_temporal_the_worker_makes_it_and_no_history_has_it(serve: Serve) -> None:
    offer = Toolset(tools=(look,), capabilities=(CRM, STYLE))
    async with serve([call("look"), say("done")], offer=offer) as served:
        result = await served.client.run(AGENT, "Go.", metadata={"customer": "Ann"})
        history = await history_of(served.client, result.state.running.execution_id)
        sent = [each.body["messages"][0]["content"] for each in served.endpoint.requests]
    assert sent == SENT
    assert not any(b"the customer is" in event.SerializeToString() for event in history.events)
