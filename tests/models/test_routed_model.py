"""Routes: which model answers for a name, over real HTTP, and what is refused before anything is asked."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from activities import guardian_link
from holdfast import LLM, Agent, AgentDefinition
from holdfast.core.agent.definition import FallbackRoute
from holdfast.core.agent.model import AnswerPart
from holdfast.core.base.errors import InvalidInput, ModelFailure
from holdfast.core.base.usage import Prices
from holdfast.local import LocalDriver
from holdfast.models import Model, OpenAIChat, ProviderSettings
from holdfast.models.endpoint import prices_of, provider_of
from holdfast.models.route_file import routes_from
from holdfast.models.routed_model import RoutedModel
from holdfast.runtime.prices import PriceList
from holdfast.testing import ScriptedModel, assert_completed, call, say
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import Reply
from tests.activities.asking import KEY, REQUEST

NO_MODEL = OpenAIChat(ProviderSettings())
"""A worker's own model where the environment names none."""


def named(model: str | None) -> LLM:
    return LLM(model=model)


def routed(
    routes: Mapping[str, Mapping[str, Any]], own: Model = NO_MODEL, environment: Mapping[str, str] | None = None
) -> RoutedModel:
    return RoutedModel(own, routes_from(routes, {}), environment or {})


async def test_each_name_is_answered_by_its_route_with_the_providers_name_of_the_model() -> None:
    async with FakeOpenAI([say("fast")], api_key=KEY) as fast, FakeOpenAI([say("large")]) as large:
        model = routed(
            {
                "fast": {"api": "openai_chat", "model": "small-1", "base_url": fast.base_url, "key": {"variable": "K"}},
                "large": {"api": "openai", "model": "large-1", "base_url": large.base_url, "max_output_tokens": 50},
            },
            own=ScriptedModel([say("own")]),
            environment={"K": KEY},
        )
        answers = [
            await model(replace(REQUEST, llm=named(name), max_output_tokens=bound))
            for name, bound in (("fast", None), ("large", None), ("large", 20), ("fast/other", None), (None, None))
        ]
        await model.close()
    assert [(each.text, each.route) for each in answers] == [
        ("fast", "fast"),
        ("large", "large"),
        ("large", "large"),
        ("fast", "fast"),
        ("own", ""),
    ]
    assert [each.body["model"] for each in fast.requests] == ["small-1", "other"]
    assert [each.body["max_completion_tokens"] for each in large.requests] == [50, 20]


async def test_headers_go_with_each_request_and_their_secrets_stay_out_of_errors(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("canary-of-a-file\n")
    refusal = Reply(status=401, text=f"no {KEY} canary-of-a-file canary-of-a-variable canary-written")
    async with FakeOpenAI([refusal]) as endpoint:
        route = {
            "api": "openai",
            "model": "m",
            "base_url": endpoint.base_url,
            "key": {"file": str(tmp_path / "key")},
            "headers": {
                "X-Team": "support",
                "X-A": f"Token ${{file:{tmp_path}/token}}",
                "X-B": "${SECRET}",
                "X-Token": " Key canary-written ",
            },
        }
        (tmp_path / "key").write_text(f"{KEY}\n")
        model = routed({"gate": route}, environment={"SECRET": "canary-of-a-variable"})
        with pytest.raises(ModelFailure) as failure:
            await model(replace(REQUEST, llm=named("gate")))
        await model.close()
        [request] = endpoint.requests
    assert (request.headers["x-team"], request.headers["x-a"]) == ("support", "Token canary-of-a-file")
    assert request.headers["x-token"] == "Key canary-written"
    assert "canary" not in failure.value.message
    assert "check the key of the route 'gate'" in failure.value.message
    assert "canary" not in repr(provider_of(model, named("gate")))


async def test_a_routes_silences_are_its_own() -> None:
    async with FakeOpenAI([say("late", delay_seconds=30)]) as endpoint:
        route = {"api": "openai", "model": "m", "base_url": endpoint.base_url, "timeouts": {"first_byte_seconds": 0.2}}
        model = routed({"slow": route})
        with pytest.raises(ModelFailure, match="did not answer in time"):
            await model(replace(REQUEST, llm=named("slow")))
        await model.close()


async def test_a_route_without_streaming_is_not_asked_to_stream() -> None:
    async with FakeOpenAI([say("whole")]) as endpoint:
        route = {"api": "openai", "model": "m", "base_url": endpoint.base_url, "capabilities": ["tools"]}
        model = routed({"plain": route})
        parts: list[AnswerPart] = []
        answer = await model(replace(REQUEST, llm=named("plain"), listener=parts.append))
        await model.close()
        assert "stream" not in endpoint.requests[0].body
    assert answer.text == "whole"
    assert parts[0].route == "plain"


@pytest.mark.parametrize(
    ("llm", "problem"),
    [
        ("gpt", ""),
        ("free", ""),
        ("gpt/other", ""),
        ("locked", "the route 'locked' needs the variable NOT_SET, which is not set"),
        ("filed", "the route 'filed' needs the file '/no/such/key', which cannot be read"),
        ("default", "the route 'default' needs the variable OPENAI_API_KEY, which is not set"),
        ("bare", "the route 'bare' names no model; set llm.model to bare/MODEL"),
        ("mine", "cannot import 'no_such_module'"),
        ("gtp", "there is no route 'gtp', and the worker has no model of its own; did you mean 'gpt'?"),
        (
            None,
            "it has no llm.model, and the worker has no model of its own; set it to a route, there are: bare, default",
        ),
        ("openai/gpt-5", "the route 'openai' needs the variable OPENAI_API_KEY"),
    ],
)
def test_what_would_fail_is_known_before_anything_is_asked(llm: str | None, problem: str) -> None:
    model = routed(
        {
            "gpt": {"api": "openai", "model": "m", "key": {"variable": "K"}},
            "free": {"api": "openai", "model": "m", "base_url": "http://127.0.0.1:9/v1"},
            "locked": {"api": "openai", "model": "m", "key": {"variable": "NOT_SET"}},
            "filed": {"api": "openai", "model": "m", "key": {"file": "/no/such/key"}},
            "default": {"api": "openai", "model": "m"},
            "bare": {"api": "openai", "key": {"variable": "K"}},
            "mine": {"api": "python:no_such_module:model"},
        },
        environment={"K": KEY},
    )
    found = model.problem(named(llm))
    assert found.startswith(problem)
    assert bool(found) is bool(problem)


def test_the_guardian_gets_no_key_of_a_route(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROUTE_KEY", KEY)
    model = routed({"gate": {"api": "openai", "model": "m", "key": {"variable": "ROUTE_KEY"}}})
    assert "ROUTE_KEY" in guardian_link._environment()  # pyright: ignore[reportPrivateUsage]
    assert "ROUTE_KEY" not in guardian_link._environment(model.variables)  # pyright: ignore[reportPrivateUsage]


def test_a_worker_warns_of_routes_without_a_key_as_it_starts() -> None:
    routes = {"locked": {"api": "openai", "model": "m", "key": {"variable": "NOT_SET"}}}
    assert (
        "(agents that name a route are fine); the route 'locked' needs the variable NOT_SET" in routed(routes).missing
    )
    assert routed({}).missing == NO_MODEL.missing


def test_the_key_of_one_endpoint_is_never_sent_to_another() -> None:
    environment = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
    model = routed(
        {
            "there": {"api": "openai", "model": "m", "base_url": "http://127.0.0.1:8/v1"},
            "same": {"api": "openai", "model": "m"},
            "usual": {"api": "openai", "model": "m", "key": {"variable": "OTHER"}},
        },
        environment={**environment, "OTHER": "other-key"},
    )
    settings = {name: provider_of(model, named(name)) for name in model.routes}
    assert {name: each and (each.base_url, each.api_key) for name, each in settings.items()} == {
        "there": ("http://127.0.0.1:8/v1", None),
        "same": ("http://127.0.0.1:9/v1", KEY),
        "usual": (None, "other-key"),
    }


async def test_the_address_of_the_environment_is_not_that_of_a_route(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")  # which the client reads, too
    model = OpenAIChat(ProviderSettings(api_key=KEY))
    assert str(model._client and model._client.base_url) == "https://api.openai.com/v1/"  # pyright: ignore[reportPrivateUsage]
    await model.close()


@pytest.mark.parametrize(
    ("base_url", "name", "route"),
    [
        (None, "openai/gpt-5", "openai"),
        (None, "openai_chat/gpt-5", "openai_chat"),
        (None, "gpt-5", ""),
        (None, "nobody/gpt-5", ""),
        ("http://127.0.0.1:9/v1", "openai/gpt-5", ""),  # a gateway's name of a model
    ],
)
def test_a_providers_name_counts_where_the_workers_endpoint_is_no_gateway(
    base_url: str | None, name: str, route: str
) -> None:
    own = OpenAIChat(ProviderSettings(base_url=base_url, api_key=KEY))
    choice = routed({}, own, {"OPENAI_API_KEY": KEY}).choice(name)
    assert (choice.name if choice else "") == route
    assert choice is None or choice.model == "gpt-5"


async def test_a_name_that_the_workers_endpoint_does_not_have_is_answered_with_the_nearest_route() -> None:
    async with FakeOpenAI({"other": [say("x")]}) as endpoint:
        own = OpenAIChat(ProviderSettings(base_url=endpoint.base_url, api_key=KEY))
        model = routed({"claude": {"api": "openai", "model": "m", "key": {"variable": "K"}}}, own, {"K": KEY})
        assert model.problem(named("claud")) == ""
        with pytest.raises(ModelFailure, match=r"'claud' is no route, did you mean 'claude'\?") as failure:
            await model(replace(REQUEST, llm=named("claud")))
        await model.close()
    assert failure.value.kind == "ModelNotFound"


def test_a_routes_own_prices_and_window_come_first_and_its_provider_finds_the_others() -> None:
    model = routed(
        {
            "own": {
                "api": "openai",
                "model": "gpt-4o",
                "prices": {"input_usd": 7, "output_usd": 8},
                "context_window": 99,
                "max_output_tokens": 9,
            },
            "listed": {"api": "openai", "model": "gpt-4o"},
            "filed": {"api": "openai", "model": "no-such"},
        }
    )
    prices = model.routed_prices(PriceList({"filed": Prices(input_usd=1, output_usd=2)}, model="gpt-4o-mini"))
    assert prices.of("own") == Prices(input_usd=7, output_usd=8)
    assert prices.of("own/gpt-4o-mini") == prices.of(None) == PriceList().of("gpt-4o-mini") is not None
    assert prices.of("listed") == prices.of("openai/gpt-4o") == PriceList().of("gpt-4o")
    assert prices.of("filed") == Prices(input_usd=1, output_usd=2)
    assert (prices.window_of("own"), prices.window_of("listed")) == (99, PriceList().window_of("gpt-4o"))
    assert [prices.longest_answer_of(each) for each in ("own", "own/gpt-4o-mini", "listed", None)] == [9, *[None] * 3]
    known = prices.priced(LLM(model="own", fallback=(FallbackRoute(model="own"),)))
    assert (known.longest_answer, known.fallback[0].longest_answer) == (9, 9)
    assert prices.priced(LLM(model="own", longest_answer=5)).longest_answer == 5
    assert isinstance(prices_of(model), type(prices))


async def test_agents_of_one_driver_are_answered_by_several_routes() -> None:
    """Another route per subagent, each with its price; the record of each answer names it."""
    script = [call("spawn", agent="helper", task="Look."), say("done")]
    async with FakeOpenAI(script) as one, FakeOpenAI([say("seen")]) as two:
        routes = {
            "large": {"api": "openai", "model": "l", "base_url": one.base_url, "prices": _prices(10)},
            "small": {"api": "openai", "model": "s", "base_url": two.base_url, "prices": _prices(1)},
        }
        helper = AgentDefinition(name="helper", llm=named("small"))
        parent = Agent("clerk", llm=named("large"), subagents=["helper"])
        state = await LocalDriver(parent, agents=[helper], models=routes).execute("Go.")
        assert_completed(state)
        assert ([each.body["model"] for each in one.requests], len(two.requests)) == (["l", "l"], 1)
    answers = [step.inference_response for step in state.steps]
    assert [each and each.route for each in answers] == ["large", "large"]
    assert state.llm is not None
    assert state.llm.prices == Prices(**_prices(10))
    tokens = (2 * 100 + 2 * 20) * 10 + (100 + 20) * 1
    assert state.cost == pytest.approx(tokens / 1_000_000)


def _prices(usd: float) -> dict[str, float]:
    return {"input_usd": usd, "output_usd": usd}


def test_a_driver_refuses_what_no_route_can_answer() -> None:
    routes = {"gpt": {"api": "openai", "model": "m", "key": {"variable": "NOT_SET_ANYWHERE"}}}
    with pytest.raises(InvalidInput, match="agent 'clerk': the route 'gpt' needs the variable NOT_SET_ANYWHERE"):
        LocalDriver(AgentDefinition(name="clerk", llm=named("gpt")), models=routes)
    driver = LocalDriver(AgentDefinition(name="clerk"), model=ScriptedModel([say("own")]), models=routes)
    with pytest.raises(InvalidInput, match="NOT_SET_ANYWHERE"):
        driver.change(AgentDefinition(name="clerk", llm=named("gpt")))


async def test_routes_stand_beside_a_model_that_is_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    text = "models: {gpt: {api: openai, model: m, key: {variable: NOT_SET_ANYWHERE}}}"
    (tmp_path / "models.yaml").write_text(text)
    own = ScriptedModel([say("own"), say("own again")])
    agent = AgentDefinition(name="clerk", llm=named("gpt"))
    assert (await LocalDriver(agent, model=own).execute("x")).final_response == "own"  # it looks for no file
    with pytest.raises(InvalidInput, match="NOT_SET_ANYWHERE"):
        LocalDriver(agent)
    beside = LocalDriver(AgentDefinition(name="clerk"), model=own, models="models.yaml")
    assert (await beside.execute("x")).final_response == "own"


async def test_a_model_of_ones_own_is_a_route(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "routed_mirror.py").write_text(
        "from holdfast.models import InferenceResponse\n"
        "async def mirror(request):\n"
        "    return InferenceResponse(text=f'{request.llm.model}: {request.messages[-1].text[::-1]}')\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    routes = {
        "mirror": {"api": "python:routed_mirror:mirror"},
        "named": {"api": "python:routed_mirror:mirror", "model": "m"},
    }
    for name, answer in (("mirror", "None: cba"), ("named", "m: cba"), ("named/n", "n: cba")):
        agent = AgentDefinition(name="clerk", llm=named(name))
        state = await LocalDriver(agent, models=routes, model=NO_MODEL).execute("abc")
        assert state.final_response == answer
