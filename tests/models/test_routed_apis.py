"""Routes of several APIs beside each other: each with its own request, options, headers and usage."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from holdfast.core.agent.definition import LLM
from holdfast.core.agent.model import ModelRequest
from holdfast.core.base.usage import Usage
from holdfast.core.tools.tool_traits import ToolSchema
from holdfast.models.model_choice import EnvironmentModel
from holdfast.models.routed_model import RoutedModel
from holdfast.models.routes import Route
from holdfast.testing import ScriptedModel, call, say
from holdfast.testing.anthropic_server import FakeAnthropic
from holdfast.testing.responses_server import FakeResponses
from tests.activities.asking import REQUEST

CLOSED: dict[str, Any] = {
    "type": "object",
    "properties": {"at": {"type": "string"}},
    "required": ["at"],
    "additionalProperties": False,
}
LOOK = ToolSchema(name="look", description="Looks.", parameters=CLOSED)
OPTIONS: dict[str, Any] = {
    "top_p": 0.5,
    "reasoning_effort": "low",
    "parallel_tool_calls": False,
    "strict": True,
    "service_tier": "auto",
    "extra": {"metadata": {"user_id": "u1"}},
}


def asking_of(model: str, **options: Any) -> ModelRequest:  # noqa: ANN401  # options are of many types
    llm = LLM.model_validate({"model": model, **options})
    return replace(REQUEST, llm=llm, tools=(LOOK,))


@asynccontextmanager
async def routed() -> AsyncGenerator[tuple[RoutedModel, FakeAnthropic, FakeResponses]]:
    """Give a model with a route to each of two fake endpoints."""
    script = [replace(call("look", at="1"), reasoning="a look first")]
    async with FakeAnthropic(script, api_key="sk-claude-key") as claude, FakeResponses(script) as gpt:
        routes = {
            "claude": {
                "api": "anthropic",
                "model": "claude-1",
                "base_url": claude.base_url,
                "key": {"variable": "CLAUDE_KEY"},
                "headers": {"anthropic-beta": "some-beta"},
                "timeouts": {"connect_seconds": 5, "first_byte_seconds": 30, "silence_seconds": 30},
            },
            "gpt": {"api": "openai_responses", "model": "gpt-1", "base_url": gpt.base_url},
        }
        known = {name: Route.model_validate(each) for name, each in routes.items()}
        model = RoutedModel(ScriptedModel([say("own")]), known, {"CLAUDE_KEY": "sk-claude-key"})
        try:
            yield model, claude, gpt
        finally:
            await model.close()


async def test_each_route_is_asked_in_its_api_and_named_in_the_answer() -> None:
    async with routed() as (model, claude, gpt):
        answers = [await model(asking_of(name)) for name in ("claude", "gpt")]
        assert [each.body["model"] for each in (*claude.requests, *gpt.requests)] == ["claude-1", "gpt-1"]
        assert claude.requests[0].headers["anthropic-beta"] == "some-beta"
    assert [each.route for each in answers] == ["claude", "gpt"]
    assert [{item.route for item in each.items} for each in answers] == [{"claude"}, {"gpt"}]
    assert [each.tool_calls[0].name for each in answers] == ["look", "look"]
    assert all(isinstance(each.usage, Usage) and each.usage.total_tokens == 120 for each in answers)


async def test_options_are_sent_in_the_words_of_each_api() -> None:
    async with routed() as (model, claude, gpt):
        await model(asking_of("claude", **OPTIONS, stop=["END"]))
        await model(asking_of("gpt", **OPTIONS, verbosity="low", tool_choice="look"))
        sent, other = claude.requests[0].body, gpt.requests[0].body
    assert (sent["top_p"], sent["stop_sequences"], sent["service_tier"]) == (0.5, ["END"], "auto")
    assert sent["output_config"] == {"effort": "low"}
    assert sent["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    assert (sent["tools"][0]["strict"], sent["metadata"]) == (True, {"user_id": "u1"})
    assert (other["top_p"], other["reasoning"], other["text"]) == (0.5, {"effort": "low"}, {"verbosity": "low"})
    assert other["tool_choice"] == {"type": "function", "name": "look"}
    assert (other["parallel_tool_calls"], other["tools"][0]["strict"]) == (False, True)
    assert (other["service_tier"], other["metadata"]) == ("auto", {"user_id": "u1"})


@pytest.mark.parametrize(
    ("route", "options", "named"),
    [("claude", {"seed": 1, "verbosity": "low"}, "llm.verbosity"), ("gpt", {"stop": ["END"], "seed": 1}, "llm.stop")],
)
async def test_what_an_api_does_not_know_is_refused_before_a_call(
    route: str, options: dict[str, Any], named: str
) -> None:
    async with routed() as (model, claude, gpt):
        problem = model.problem(asking_of(route, **options).llm)
        assert [*claude.requests, *gpt.requests] == []
    assert named in problem
    assert "llm.seed" in problem


def test_the_model_of_the_environment_judges_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_MODEL_API", "anthropic")
    llm = LLM(seed=1)
    assert "llm.seed" in EnvironmentModel().problem(llm)
    assert EnvironmentModel("openai").problem(llm) == ""
