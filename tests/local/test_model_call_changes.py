"""What hooks change of one model call, as the endpoints see it, in-process (docs/concepts.md)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast import LLM, AgentDefinition, Changes, HookContext, ModelCallChanges, hook, tool
from holdfast.core.agent.hooks import Hook
from holdfast.core.agent.state import AgentState
from holdfast.core.base.usage import Prices
from holdfast.local import LocalDriver
from holdfast.models import FunctionModel, InferenceResponse, ModelRequest
from holdfast.testing import call, say
from holdfast.testing.openai_server import FakeOpenAI
from tests.pictures import PNG

AGENT = AgentDefinition(name="clerk", llm=LLM(model="small", temperature=0.5), tools="all", hooks="all")
PRICE = {"input_usd": 1.0, "output_usd": 2.0}
DEAR = {"input_usd": 50.0, "output_usd": 50.0}
FIRST = [call("add", a=1, b=1), say("nobody hears this"), say("2")]
SECOND = [say("nor this"), call("multiply", a=1, b=2)]


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool
def multiply(a: int, b: int) -> int:
    """Multiply."""
    return a * b


def in_step(number: int, changes: ModelCallChanges) -> Hook:
    @hook("before_inference")
    def change(context: HookContext) -> Changes | None:
        return Changes(model_call=changes) if context.step_number == number else None

    return change


def routes(small: FakeOpenAI, large: FakeOpenAI) -> dict[str, dict[str, Any]]:
    return {
        "small": {"api": "openai_chat", "model": "s-1", "base_url": small.base_url, "prices": PRICE},
        "large": {"api": "openai_chat", "model": "l-1", "base_url": large.base_url, "prices": PRICE},
        "keyless": {"api": "openai_chat", "model": "k-1", "key": {"variable": "NO_SUCH_KEY"}},
        "other_api": {"api": "openai_responses", "model": "r-1", "base_url": large.base_url, "prices": PRICE},
    }


async def run(small: FakeOpenAI, large: FakeOpenAI, *hooks: Hook) -> AgentState:
    driver = LocalDriver(AGENT, tools=[add, multiply], hooks=hooks, models=routes(small, large))
    return await driver.execute("What is 1 + 1?")


async def test_one_call_goes_to_another_route_with_other_options_fewer_tools_and_a_text_behind() -> None:
    changes = ModelCallChanges(
        model="large", options={"temperature": 0, "seed": 7}, tools=("multiply",), prompt="Answer in a word."
    )
    async with (
        FakeOpenAI(FIRST) as small,
        FakeOpenAI(SECOND) as large,
    ):
        state = await run(small, large, in_step(2, changes))
    assert not state.errors
    before, after = (each.body for each in small.requests)
    [changed] = (each.body for each in large.requests)
    assert (changed["model"], changed["temperature"], changed["seed"]) == ("l-1", 0, 7)
    assert [each["function"]["name"] for each in changed["tools"]] == ["multiply"]
    assert changed["messages"][-1] == {"role": "user", "content": "Answer in a word."}
    assert changed["messages"][: len(before["messages"])] == before["messages"], "what a provider has cached stays"
    assert "Answer in a word." not in str(after)
    assert (after["temperature"], len(after["tools"])) == (0.5, 2)
    assert [each.inference_response and each.inference_response.route for each in state.steps] == [
        "small",
        "large",
        "small",
    ]
    step = state.steps[1]
    assert step.model_call_changes is not None
    assert step.model_call_changes.hooks == ("change",)
    assert step.model_call_changes.prices is not None, "what the worker knew of the route is recorded"
    assert state.final_response == "2"


async def test_a_call_that_hooks_send_away_and_back_costs_what_the_definition_says() -> None:
    own = AGENT.model_copy(
        update={"llm": LLM.model_validate({"model": "small", "prices": DEAR, "context_window": 900})}
    )
    away, back = in_step(1, ModelCallChanges(model="large")), in_step(1, ModelCallChanges(model="small"))
    back = replace(back, traits=back.traits.model_copy(update={"name": "back", "priority": -1}))
    async with FakeOpenAI([say("2")]) as small, FakeOpenAI([]) as large:
        driver = LocalDriver(own, tools=[add, multiply], hooks=[away, back], models=routes(small, large))
        state = await driver.execute("What is 1 + 1?")
    [step] = state.steps
    assert step.model_call_changes is not None
    assert step.model_call_changes.hooks == ("change", "back")
    assert step.model_call_changes.context_window == 900
    assert state.cost == pytest.approx(Prices.model_validate(DEAR).cost(state.usage))


async def test_a_model_that_takes_no_pictures_reads_that_one_was_left_out() -> None:
    words = {"capabilities": ["stream"]}
    async with FakeOpenAI([say("nothing")]) as small, FakeOpenAI([say("a dot")]) as large:
        models = routes(small, large)
        driver = LocalDriver(
            AGENT,
            hooks=[in_step(1, ModelCallChanges(model="large"))],
            models={**models, "large": {**models["large"], **words}},
        )
        assert (await driver.execute("What is it?", attachments=[PNG])).status == "completed"
        [asked] = large.requests
    assert "left out, because this model takes no pictures" in str(asked.body["messages"])


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (ModelCallChanges(model="keyless"), "the route 'keyless' needs the variable NO_SUCH_KEY, which is not set"),
        (ModelCallChanges(model="nowhere"), "there is no route 'nowhere', and the worker has no model of its own"),
        (ModelCallChanges(model="other_api", options={"seed": 1}), "does not know llm.seed"),
        (
            ModelCallChanges(tools=("ad",)),
            "the model cannot be offered the tool 'ad', which is not there; did you mean",
        ),
    ],
)
async def test_a_change_that_could_not_be_asked_fails_the_run_with_the_hooks_name(
    changes: ModelCallChanges, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    async with FakeOpenAI([say("2")]) as small, FakeOpenAI([]) as large:
        state = await run(small, large, in_step(1, changes))
        assert not small.requests
        assert not large.requests
    assert state.status == "failed"
    [error] = state.errors
    assert (error.type, error.source) == ("HookFailed", "change")
    assert "the hook 'change' (before_inference) cannot change the model call so: " in error.message
    assert problem in error.message


async def test_a_wrong_option_fails_the_run_with_the_nearest_name() -> None:
    @hook("before_inference")
    def change(_: HookContext) -> Changes:
        return Changes(model_call=ModelCallChanges(options={"temprature": 1}))

    async with FakeOpenAI([say("2")]) as small, FakeOpenAI([]) as large:
        state = await run(small, large, change)
    [error] = state.errors
    assert "'temprature'; did you mean 'temperature'?" in error.message


async def test_a_later_hook_sees_what_an_earlier_one_left() -> None:
    seen: list[tuple[str | None, float | None, tuple[str, ...]]] = []

    @hook("before_inference", priority=1)
    def first(_: HookContext) -> Changes:
        return Changes(model_call=ModelCallChanges(model="large", options={"temperature": 0}, tools=("add",)))

    @hook("before_inference")
    def second(context: HookContext) -> None:
        assert context.llm is not None
        seen.append((context.llm.model, context.llm.temperature, context.tools))

    async def answer(_: ModelRequest) -> InferenceResponse:
        return InferenceResponse(text="2")

    driver = LocalDriver(AGENT, tools=[add, multiply], hooks=[first, second], model=FunctionModel(answer))
    assert (await driver.execute("go")).status == "completed"
    assert seen == [("large", 0, ("add",))]
