"""Routes on a real server: a worker with a table of models, another one per subagent, and what it refuses."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast import AgentDefinition
from holdfast.client import Holdfast, Settings
from holdfast.core.agent.definition import LLM
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.bounds import OUTPUT_TOKENS_MAX
from holdfast.core.base.errors import ExecutionFailed
from holdfast.core.base.usage import Prices
from holdfast.models import OpenAIChat, ProviderSettings
from holdfast.models.route_file import routes_from
from holdfast.models.routed_model import RoutedModel
from holdfast.server.worker_process import WorkerProcess, worker_command, worker_environment
from holdfast.testing import assert_completed, call, say
from holdfast.testing.openai_server import FakeOpenAI
from tests.workflows.histories import history_of
from workers import make_worker

pytestmark = pytest.mark.temporal

READY_SECONDS_MAX = 90
KEY = "sk-canary-of-a-route"
LARGE = {"input_usd": 10, "output_usd": 20}


def agent(name: str, model: str | None, *subagents: str) -> AgentDefinition:
    return AgentDefinition(name=name, llm=LLM(model=model), subagents=subagents)


def route(endpoint: FakeOpenAI, **more: Any) -> dict[str, Any]:  # noqa: ANN401  # fields of any type
    return {"api": "openai_chat", "base_url": endpoint.base_url, "key": {"variable": "ROUTE_KEY"}, **more}


@pytest.mark.slow
async def test_a_worker_answers_by_the_routes_of_its_file(settings: Settings, tmp_path: Path) -> None:
    """The worker program with `--models`: two endpoints in one tree, the key in its environment alone."""
    script = [call("spawn", agent="helper", task="Look."), say("done")]
    async with FakeOpenAI(script, api_key=KEY) as large, FakeOpenAI([say("seen")], api_key=KEY) as small:
        file = tmp_path / "models.yaml"
        bounded = route(large, model="l", prices=LARGE, max_output_tokens=50)
        file.write_text(yaml.safe_dump({"models": {"large": bounded, "small": route(small, model="s")}}))
        at_work = replace(settings, agents_dir=tmp_path / "agents", models_file=file)
        known = {name: value for name, value in worker_environment().items() if not name.startswith("OPENAI_")}
        lines = list[str]()
        with WorkerProcess(worker_command(at_work, []), lines.append, {**known, "ROUTE_KEY": KEY}) as process:
            assert await asyncio.to_thread(process.wait_until_ready, READY_SECONDS_MAX), lines
            client = await Holdfast.connect(settings)
            boss, helper = agent("boss", "large", "helper"), agent("helper", "small")
            run = await client.run(boss, "Go.", subagents=[helper])
            history = await history_of(client, run.state.running.execution_id)
        bodies = [each.body for each in (*large.requests, *small.requests)]
        asked = [(each["model"], each["max_completion_tokens"]) for each in bodies]
    assert_completed(run.state)
    assert asked == [("l", 50), ("l", 50), ("s", OUTPUT_TOKENS_MAX)]
    answers = [step.inference_response for step in run.state.steps]
    assert [each and each.route for each in answers] == ["large", "large"]
    assert run.state.llm is not None
    assert run.state.llm.prices == Prices.model_validate(LARGE)
    assert run.state.llm.longest_answer == 50
    written = b"".join(event.SerializeToString() for event in history.events)
    assert b"Look." in written  # as it is, not compressed
    assert KEY.encode() not in written
    assert large.base_url.encode() not in written


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (
            "larg",
            "agent 'clerk': there is no route 'larg', and the worker has no model of its own; did you mean 'large'",
        ),
        ("locked", "agent 'clerk': the route 'locked' needs the variable ROUTE_KEY, which is not set"),
    ],
)
async def test_a_run_is_refused_before_its_model_is_asked(settings: Settings, model: str, problem: str) -> None:
    async with FakeOpenAI([say("never")]) as endpoint:
        locked, large = route(endpoint, model="m"), {**route(endpoint, model="m"), "key": None}
        own = OpenAIChat(ProviderSettings())
        routed = RoutedModel(own, routes_from({"locked": locked, "large": large}, {}), {})
        client = await Holdfast.connect(settings)
        async with make_worker(client.temporal, settings, Toolset(), routed):
            with pytest.raises(ExecutionFailed) as failed:
                await client.run(agent("clerk", model), "Go.")
            assert (await client.run(agent("clerk", "large"), "Go.")).output == "never"
        await routed.close()
        assert len(endpoint.requests) == 1
    assert problem in str(failed.value)
