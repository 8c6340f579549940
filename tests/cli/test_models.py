"""`holdfast models`: the routes, whether their keys are here, and a try of each; the doctor's look at them."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.connection.settings import Settings
from holdfast.core.base.errors import InvalidInput, ModelFailure
from holdfast.server.doctor.checks import examine
from holdfast.server.doctor.findings import Level
from holdfast.server.doctor.routes import ROUTES
from holdfast.testing import say
from holdfast.testing.openai_server import FakeOpenAI
from tests.cli.program import Project

KEY = "sk-canary-of-a-route"


@pytest.fixture
def here(tmp_path: Path) -> Project:
    env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "COLUMNS": "200", "ROUTE_KEY": KEY}
    return Project(tmp_path, env, warm=True)


def write(here: Project, base_url: str, gone: str = "http://127.0.0.1:9/v1") -> None:
    (here.folder / "models.yaml").write_text(f"""
models:
  fast:
    api: openai_chat
    model: gpt-4o-mini
    base_url: {base_url}
    key: {{variable: ROUTE_KEY}}
    prices: {{input_usd: 1.5, output_usd: 6}}
    context_window: 64000
  gone: {{api: openai, model: no-such, base_url: {gone}}}
  locked: {{api: openai, model: gpt-4o, key: {{variable: NOT_SET_HERE}}}}
""")


def test_the_routes_are_listed_without_their_secrets(here: Project) -> None:
    write(here, "http://127.0.0.1:8/v1")
    shown = here.run("models")
    assert (shown.code, shown.err) == (0, "")
    assert [line.split()[0] for line in shown.out.splitlines()] == ["route", "fast", "gone", "locked", "locked:"]
    for part in ("http://127.0.0.1:8/v1", "present", "1.5 in, 6 out", "64,000", "NOT_SET_HERE, which is not set"):
        assert part in shown.out
    assert "canary" not in shown.out
    listed = {each["name"]: each for each in here.run("models", "--json").document}
    assert {name: each["key"] for name, each in listed.items()} == {
        "fast": "present",
        "gone": "none",
        "locked": "missing",
    }
    assert listed["gone"]["prices"] is None
    assert listed["locked"]["prices"]["input_usd"] > 0


def test_a_narrow_table_keeps_one_line_per_route_and_its_port(here: Project) -> None:
    write(here, "http://127.0.0.1:8/v1")
    shown = replace(here, env={**here.env, "COLUMNS": "80"}).run("models")
    assert [line.split()[0] for line in shown.out.splitlines()] == ["route", "fast", "gone", "locked", "locked:"]


def test_check_asks_each_and_its_exit_code_tells(here: Project) -> None:
    with FakeOpenAI.in_thread([say("ok")], api_key=KEY) as endpoint:
        write(here, endpoint.base_url)
        tried = here.run("models", "fast", "--check", "--json")
        assert tried.code == 0
        [line] = tried.document
        assert (line["name"], line["check"]["error"], line["check"]["tokens"]) == ("fast", "", 120)
        everything = here.run("models", "--check")
    assert everything.code == ModelFailure.exit_code
    assert "120 tokens" in everything.out
    assert "gone: the model endpoint http://127.0.0.1:9/v1 cannot be reached" in everything.out
    assert [each.body["max_completion_tokens"] for each in endpoint.requests] == [16, 16]


def test_without_a_table_the_workers_own_model_is_listed(here: Project) -> None:
    nothing = here.run("models")
    assert nothing.code == 0
    assert "no models: no endpoint is set in this environment, and there is no models.yaml" in nothing.out
    keyed = replace(here, env={**here.env, "OPENAI_API_KEY": KEY})
    [own] = keyed.run("models", "--json").document
    assert (own["name"], own["key"], own["endpoint"]) == ("", "present", "the OpenAI API")


def test_what_is_wrong_is_bad_input(here: Project) -> None:
    write(here, "http://127.0.0.1:8/v1")
    unknown = here.run("models", "fats")
    assert (unknown.code, unknown.out) == (InvalidInput.exit_code, "")
    assert "'fats' is none of the routes of models.yaml; did you mean 'fast'?" in unknown.err
    wrong = here.run("models", "--model", "anthropi")
    assert (wrong.code, wrong.out) == (InvalidInput.exit_code, "")
    assert "there is no model API 'anthropi'; did you mean 'anthropic'?" in wrong.err
    (here.folder / "other.yaml").write_text("models: {a: {api: opneai}}")
    assert "did you mean 'openai'?" in here.run("models", "--models", "other.yaml").err


async def test_doctor_looks_at_the_routes(here: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROUTE_KEY", KEY)
    settings = Settings(data_dir=here.folder / "data", agents_dir=here.folder / "agents")
    async with FakeOpenAI([say("ok")], api_key=KEY) as endpoint:
        write(here, endpoint.base_url)
        findings = await examine(replace(settings, models_file=here.folder / "models.yaml"))
        asked = [each.method for each in endpoint.requests]
    [found] = [each for each in findings if each.check == ROUTES]
    assert found.level is Level.WARNING
    for part in ("fast: ok", "gone: unreachable (the connection is refused)", "locked: the route 'locked' needs"):
        assert part in found.result
    assert found.remedy.startswith("set what is missing, or correct ")
    assert found.remedy.endswith("then try it with `holdfast models gone --check`")
    assert asked == ["GET"]  # a list of its models, and no token
    [without] = [each for each in await examine(settings) if each.check == ROUTES]
    assert (without.level, without.result[:9]) == (Level.OK, "no routes")
