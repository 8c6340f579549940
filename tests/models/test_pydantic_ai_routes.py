"""`api: pydantic_ai` in models.yaml, in `--model` and in PROVIDER/MODEL: prices, keys, refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.client import Settings
from holdfast.core.agent.definition import LLM
from holdfast.models import PydanticAIModel
from holdfast.models.endpoint import prices_of, provider_of
from holdfast.models.model_choice import model_from
from holdfast.models.route_file import read_routes
from holdfast.models.route_listing import listings
from holdfast.models.routed_model import RoutedModel
from holdfast.runtime.prices import table_prices
from holdfast.server.doctor import machine_findings
from holdfast.server.doctor.checks import examine
from holdfast.server.doctor.findings import Level
from holdfast.testing import ScriptedModel
from holdfast.testing.anthropic_server import FakeAnthropic
from holdfast.testing.script import Reply, say
from tests.activities.asking import KEY, REQUEST, request
from tests.models.pydantic_ai_asking import ANTHROPIC

FILE = """
models:
  far:
    api: pydantic_ai
    model: anthropic:claude-opus-4-8
    base_url: {address}
    key: {{variable: FAR_KEY}}
    headers: {{x-team: shop}}
  groq:
    api: pydantic_ai
    model: groq:llama-3.3-70b-versatile
  keyed:
    api: pydantic_ai
    model: bedrock:anthropic.claude-opus-4-8
    key: {{variable: FAR_KEY}}
  slow:
    api: pydantic_ai
    model: test
    timeouts: {{connect_seconds: 3}}
"""


def routed(tmp_path: Path, address: str) -> RoutedModel:
    (tmp_path / "models.yaml").write_text(FILE.format(address=address))
    return RoutedModel(ScriptedModel([say("own")]), read_routes(tmp_path / "models.yaml"), {"FAR_KEY": KEY})


async def test_a_route_is_asked_by_its_name_with_its_key_and_headers(tmp_path: Path) -> None:
    async with FakeAnthropic([Reply(text="x", reasoning="hm"), say("y")], api_key=KEY) as endpoint:
        model = routed(tmp_path, endpoint.base_url.removesuffix("/v1"))
        assert model.missing == model.problem(LLM(model="far")) == ""
        answer = await model(request(llm=LLM(model="far")))
        assert (answer.text, answer.route, answer.model) == ("x", "far", "claude-opus-4-8")
        assert {(item.route, item.api) for item in answer.items} == {("far", "pydantic_ai:anthropic")}
        assert endpoint.requests[0].headers["x-team"] == "shop"
        await model.close()
        other = await model(request(llm=LLM(model="far/anthropic:claude-haiku-4-5")))
        assert other.model == "claude-haiku-4-5"
        await model.close()


def test_what_a_route_cannot_be_asked_is_refused_and_it_is_listed_with_its_prices(tmp_path: Path) -> None:
    model = routed(tmp_path, "http://127.0.0.1:9")
    assert "boto3" in model.problem(LLM(model="keyed"))
    assert "groq" in model.problem(LLM(model="groq"))  # its client is not installed
    assert "`connect_seconds`" in model.problem(LLM(model="slow"))
    assert "does not know llm.seed" in model.problem(LLM(model="far", seed=1))
    assert "Unknown provider" in model.problem(LLM(model="far/nowhere:x"))
    prices = prices_of(model)
    assert prices.of("groq") == table_prices("llama-3.3-70b-versatile", None, "groq") is not None
    assert prices.of("far") == table_prices("claude-opus-4-8", None, "anthropic") is not None
    assert prices.of("keyed") == table_prices("anthropic.claude-opus-4-8", None, "aws") is not None
    assert [(each.name, each.problem) for each in listings(model, {})] == [
        *(("far", ""), ("groq", ""), ("keyed", ""), ("slow", ""))
    ]


async def test_the_environment_can_name_it_as_the_workers_own() -> None:
    model = model_from("pydantic_ai", {"HOLDFAST_MODEL": "test"})
    assert isinstance(model, PydanticAIModel)
    assert model.missing == ""
    assert "no model is named" in PydanticAIModel(None).missing
    assert (await RoutedModel(model, {}, {})(REQUEST)).text == "success (no tool calls)"
    given = PydanticAIModel(ANTHROPIC.model("http://127.0.0.1:9/v1"))
    settings = provider_of(given)
    assert settings is not None
    assert (settings.api.provider_name, settings.model) == ("anthropic", "claude-opus-4-8")
    assert prices_of(given).of(None) == table_prices("claude-opus-4-8", None, "anthropic")


async def test_doctor_asks_no_endpoint_for_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOLDFAST_MODEL_API", "pydantic_ai")
    monkeypatch.setenv("HOLDFAST_MODEL", "groq:llama")
    found = await examine(Settings(data_dir=tmp_path / "data", agents_dir=tmp_path / "agents"))
    told = next(each for each in found if each.check == machine_findings.MODEL)
    assert (told.level, told.result.startswith("your own model groq:llama")) == (Level.OK, True)
