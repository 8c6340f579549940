"""What a route's capabilities make of an agent's options: asked differently through each API, or refused at load."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast import LLM, AgentDefinition
from holdfast.core.base.errors import InvalidInput
from holdfast.local import LocalDriver
from holdfast.models.routed_model import RoutedModel
from holdfast.models.routes import Capability, Route
from holdfast.testing import ScriptedModel, say
from holdfast.testing.anthropic_server import FakeAnthropic
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.responses_server import FakeResponses
from tests.activities.asking import REQUEST, schema

APIS = {"openai_chat": FakeOpenAI, "anthropic": FakeAnthropic, "openai_responses": FakeResponses}
PARALLEL: dict[str, Any] = {"parallel_tool_calls": True}
THINKING: dict[str, Any] = {"reasoning_effort": "high"}


async def sent(api: str, can: tuple[Capability, ...], **options: Any) -> dict[str, Any]:  # noqa: ANN401  # of any type
    """Return the body of a call with tools."""
    async with APIS[api]([say("done")]) as endpoint:
        route = Route(api=api, model="m", base_url=endpoint.base_url, capabilities=can)
        model = RoutedModel(ScriptedModel([]), {"route": route}, {})
        asked = replace(REQUEST, llm=LLM(model="route", **options), tools=(schema("look"),))
        try:
            await model(asked)
        finally:
            await model.close()
        [request] = endpoint.requests
    return request.body


def one_at_a_time(body: dict[str, Any]) -> bool:
    choice: Any = body.get("tool_choice")  # a word or an object
    return body.get("parallel_tool_calls") is False or "'disable_parallel_tool_use': True" in str(choice)


@pytest.mark.parametrize("api", APIS)
async def test_a_model_that_cannot_call_in_parallel_is_asked_for_one_call_at_a_time(api: str) -> None:
    assert one_at_a_time(await sent(api, ("stream", "tools")))
    both = await sent(api, ("stream", "tools", "parallel_tools"))
    assert not one_at_a_time(both)
    assert "parallel_tool_calls" not in both
    assert one_at_a_time(await sent(api, ("stream", "tools", "parallel_tools"), parallel_tool_calls=False))


@pytest.mark.parametrize("api", APIS)
async def test_a_model_that_does_not_reason_is_not_told_so(api: str) -> None:
    assert "none" not in str(await sent(api, ("stream", "tools"), reasoning_effort="none"))


@pytest.mark.parametrize(
    ("can", "options", "problem"),
    [
        (
            ["tools"],
            PARALLEL,
            "calls one tool at a time: its capabilities lack 'parallel_tools'; leave out llm.para",
        ),
        (["stream", "reasoning"], PARALLEL, ""),
        (["tools", "parallel_tools"], PARALLEL, ""),
        (["tools"], THINKING, "does not reason: its capabilities lack 'reasoning'; leave out llm.reasoning_effort, or"),
        (["stream"], THINKING, "does not reason"),
        (["stream"], {"reasoning_effort": "none"}, ""),
        (["stream", "reasoning"], THINKING, ""),
        (None, {**PARALLEL, **THINKING}, ""),
    ],
)
@pytest.mark.parametrize("falls_back", [False, True])
def test_an_option_that_a_route_says_it_cannot_serve_is_refused_before_a_token_is_spent(
    can: list[str] | None, options: dict[str, Any], problem: str, *, falls_back: bool
) -> None:
    first: dict[str, Any] = {"api": "openai_chat", "model": "m", "base_url": "http://127.0.0.1:9"}
    routes = {"first": first, "limited": {**first, "capabilities": can}}
    chosen = {"model": "first", "fallback": ["limited"]} if falls_back else {"model": "limited"}
    agent = AgentDefinition(name="clerk", llm=LLM.model_validate({**chosen, **options}))
    if not problem:
        LocalDriver(agent, models=routes)
        return
    with pytest.raises(InvalidInput, match=f"the model 'limited' {problem}"):
        LocalDriver(agent, models=routes)
