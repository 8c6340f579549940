"""Models by what is written of them: an API's name, or one of somebody's own."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast import Agent, AgentDefinition, ExecutionBudget
from holdfast.client import Holdfast, Settings
from holdfast.core.base.errors import ExecutionFailed, InvalidInput, ModelFailure
from holdfast.local import LocalDriver
from holdfast.models import FunctionModel, Model, OpenAIChat
from holdfast.models.model_choice import model_from
from holdfast.runtime.imports import imported_object
from holdfast.server.worker_process import WorkerProcess, worker_command, worker_environment
from holdfast.testing import assert_completed, say
from holdfast.testing.openai_server import FakeOpenAI
from tests.activities.asking import REQUEST

READY_SECONDS_MAX = 90
OWN = """
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.models import Model, ModelRequest
from holdfast.testing import ScriptedModel, say

ENDS = []

async def echo(request: ModelRequest) -> InferenceResponse:
    return InferenceResponse(text=request.messages[-1].text[::-1])

class Mirror(Model):
    async def __call__(self, request: ModelRequest) -> InferenceResponse:
        return await echo(request)

class Closed(Mirror):
    @property
    def missing(self) -> str:
        return "the mirror is in pieces"

class Wanting(Mirror):
    def __init__(self, key: str) -> None:
        self.key = key

async def exits(request: ModelRequest) -> InferenceResponse:
    raise SystemExit("no key")

async def forgets(request: ModelRequest) -> InferenceResponse:
    return None

def hurries(request: ModelRequest) -> InferenceResponse:
    return InferenceResponse(text="at once")

class NotAsync(Model):
    async def __call__(self, request: ModelRequest) -> InferenceResponse:
        if request.messages[-1].text == "exit":
            return await exits(request)
        return await forgets(request) if request.messages[-1].text == "forget" else await echo(request)

    def close(self) -> None:
        return None

scripted = ScriptedModel([say("It left this morning.")])
word = "mirror"
"""


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own_models.py").write_text(OWN)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "own_models", raising=False)
    return tmp_path


def test_without_a_word_it_is_openais_api_and_the_environment_says_where() -> None:
    model = model_from(None, {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "HOLDFAST_MODEL": "m"})
    assert isinstance(model, OpenAIChat)
    assert (model.settings.base_url, model.settings.model, model.missing) == ("http://127.0.0.1:9/v1", "m", "")


def test_an_option_wins_over_the_variable() -> None:
    environment = {"HOLDFAST_MODEL_API": "python:own_models:Mirror", "OPENAI_API_KEY": "k"}
    assert isinstance(model_from("openai", environment), OpenAIChat)
    assert not isinstance(model_from(None, environment), OpenAIChat)


@pytest.mark.parametrize("name", ["echo", "Mirror"])
async def test_a_model_of_ones_own_is_a_function_or_a_class(name: str) -> None:
    model: Model = model_from(f"python:own_models:{name}", {})
    assert isinstance(model, FunctionModel) == (name == "echo")
    assert (await model(REQUEST)).text == REQUEST.messages[-1].text[::-1]
    assert model.missing == ""
    await model.close()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("opneai", "there is no model API 'opneai'; did you mean 'openai'?"),
        ("openai:gpt", "there is no model API 'openai:gpt'"),
        ("python", "'python:' names no model; write python:MODULE:NAME"),
        ("python:own_models", "'python:own_models' names no model; write python:MODULE:NAME"),
        ("python:own_models:nobody", "the model python:own_models:nobody is not there"),
        ("python:no_such_module:model", "cannot import 'no_such_module', which is not found from"),
        ("python:own_models:word", "python:own_models:word is not a model: it lacks __call__, close, missing"),
        ("python:own_models:ENDS", "python:own_models:ENDS is not a model: it lacks __call__, close, missing"),
        ("python:own_models:Wanting", "python:own_models:Wanting cannot be made without arguments: TypeError"),
    ],
)
def test_what_is_no_model_is_refused(text: str, problem: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        model_from(text, {})
    assert str(refused.value).startswith(problem)


async def test_a_driver_without_a_model_asks_the_endpoint_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeOpenAI([say("It left this morning.")]) as endpoint:
        monkeypatch.setenv("OPENAI_BASE_URL", endpoint.base_url)
        monkeypatch.setenv("HOLDFAST_MODEL", "scripted")
        state = await LocalDriver(AgentDefinition(name="clerk")).execute("Where is order 17?")
    assert_completed(state)
    assert (state.final_response, len(endpoint.requests)) == ("It left this morning.", 1)


async def served_by(model: str, settings: Settings, folder: Path, environment: Mapping[str, str] | None = None) -> str:
    """Return the answer of an agent whose worker process has that model."""
    known = {name: value for name, value in worker_environment().items() if not name.startswith("OPENAI_")}
    paths = {"PYTHONPATH": f"{known['PYTHONPATH']}:{folder}"}
    command = worker_command(replace(settings, agents_dir=folder / "agents"), [], model=model)
    heard = list[str]()
    with WorkerProcess(command, heard.append, {**known, **paths, **(environment or {})}) as process:
        assert await asyncio.to_thread(process.wait_until_ready, READY_SECONDS_MAX), heard
        client = await Holdfast.connect(settings)
        state = await client.run(AgentDefinition(name="clerk"), "abc")
    assert_completed(state.state)
    return state.state.final_response


@pytest.mark.slow
@pytest.mark.temporal
@pytest.mark.parametrize(
    ("name", "answer"), [("echo", "cba"), ("Mirror", "cba"), ("scripted", "It left this morning.")]
)
async def test_a_worker_serves_agents_with_any_model(
    settings: Settings, tmp_path: Path, name: str, answer: str
) -> None:
    assert await served_by(f"python:own_models:{name}", settings, tmp_path) == answer


@pytest.mark.slow
@pytest.mark.temporal
async def test_a_model_that_is_wrong_fails_its_run_at_once_and_its_worker_lives(
    settings: Settings, tmp_path: Path
) -> None:
    known = worker_environment()
    environment = {**known, "PYTHONPATH": f"{known['PYTHONPATH']}:{tmp_path}"}
    command = worker_command(replace(settings, agents_dir=tmp_path / "agents"), [], model="python:own_models:NotAsync")
    heard = list[str]()
    with WorkerProcess(command, heard.append, environment) as process:
        assert await asyncio.to_thread(process.wait_until_ready, READY_SECONDS_MAX), heard
        client, clerk = await Holdfast.connect(settings), AgentDefinition(name="clerk")
        for question, problem in (("exit", "SystemExit: no key"), ("forget", "returned a NoneType")):
            with pytest.raises(ExecutionFailed, match=problem):
                await asyncio.wait_for(client.run(clerk, question), READY_SECONDS_MAX)
        assert (await client.run(clerk, "abc")).output == "cba"
        await asyncio.to_thread(process.stop)
        assert process.exit_code == 0, heard
    assert any("could not be closed" in line for line in heard)


async def test_a_model_that_is_wrong_fails_in_process_too() -> None:
    for name, problem in (("forgets", "returned a NoneType"), ("exits", "no key")):
        state = await LocalDriver(Agent("clerk"), model=model_from(f"python:own_models:{name}", {})).execute("x")
        assert state.status == "failed"
        assert problem in state.errors[-1].message
    with pytest.raises(ModelFailure, match="is not async"):
        await FunctionModel(cast("Any", imported_object("own_models:hurries", "model")))(REQUEST)


async def test_a_driver_without_a_model_prices_what_the_environment_names(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeOpenAI([say("It left this morning.")]) as endpoint:
        monkeypatch.setenv("OPENAI_BASE_URL", endpoint.base_url)
        monkeypatch.setenv("HOLDFAST_MODEL", "gpt-4o-mini")
        state = await LocalDriver(Agent("clerk", budget=ExecutionBudget(max_cost=1e-7))).execute("Where is order 17?")
    assert (state.status, state.stop_reason, len(endpoint.requests)) == ("stopped", "cost_limit", 0)
