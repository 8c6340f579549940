"""Hooks that change one model call: equal on a real server and in-process, decided once, small in the history."""

from __future__ import annotations

from itertools import chain, count
from typing import Any
from uuid import UUID, uuid4, uuid5

import pytest

from holdfast import LLM, AgentDefinition, Changes, HookContext, ModelCallChanges, hook, tool
from holdfast.client import Holdfast, Settings
from holdfast.connection.worker_settings import WorkerSettings
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.toolset import Toolset
from holdfast.local import LocalDriver
from holdfast.models.routed_model import RoutedModel
from holdfast.models.routes import Route
from holdfast.testing import Reply, ScriptedModel, assert_same_run, call, say
from holdfast.testing.openai_server import FakeOpenAI
from tests.scenarios.driving import UNEQUAL
from tests.workflows.histories import replayed
from workers import make_worker

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(180)]

PADDING = "x" * 8_000
AGENT = AgentDefinition(
    name="clerk",
    llm=LLM.model_validate({"model": "small", "extra": {"metadata": {"padding": PADDING}}, "fallback": ["spare"]}),
    tools=("add", "multiply"),
    hooks=("ask_the_large_one",),
    model_patience_seconds=0,
)
SMALL = [call("add", a=1, b=1), say("nobody hears this"), say("4")]
LARGE = [say("nor this"), Reply(status=402, text="no credit is left")]
SPARE = [say("nor that"), call("add", a=2, b=2)]
EXTRA = "Multiply, do not add."


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool
async def multiply(a: int, b: int) -> int:
    """Multiply."""
    return a * b


async def test_a_changed_call_is_the_same_on_a_server_and_in_process_and_its_hook_runs_once(settings: Settings) -> None:
    asked: list[int] = []

    @hook("before_inference")
    def ask_the_large_one(context: HookContext) -> Changes | None:
        asked.append(context.step_number)
        if context.step_number != 2:
            return None
        assert context.llm is not None
        assert (context.llm.model, set(context.tools)) == ("small", {"add", "multiply"})
        return Changes(
            model_call=ModelCallChanges(model="large", options={"temperature": 0}, tools=("multiply",), prompt=EXTRA)
        )

    agent_id, execution_id = str(uuid4()), str(uuid4())
    async with FakeOpenAI(SMALL) as small, FakeOpenAI(LARGE) as large, FakeOpenAI(SPARE) as spare:
        table = {name: _route(server) for name, server in (("small", small), ("large", large), ("spare", spare))}
        known = {name: Route.model_validate(each) for name, each in table.items()}
        model, toolset = (
            RoutedModel(ScriptedModel([say("own")]), known, {}),
            Toolset((add, multiply), (ask_the_large_one,)),
        )
        client, forgetful = await Holdfast.connect(settings), WorkerSettings(cached_runs=0)
        async with make_worker(client.temporal, settings, toolset, model, serving=forgetful):
            await client.start(AGENT, "go", agent_id=agent_id, execution_id=execution_id)
            durable = await client.result(execution_id)
            await replayed(client, execution_id)
        await model.close()
        assert asked == [1, 2, 3], "a run that is replayed at each step asks its hooks once"
        assert isinstance(durable, AgentState)
        check(durable, large, spare)
        history = await client.temporal.get_workflow_handle(execution_id).fetch_history()
        whole = sum(PADDING in str(event) for event in history.events)

        ids = chain((agent_id, execution_id), (str(uuid5(UUID(execution_id), f"child/{n}")) for n in count()))
        driver = LocalDriver(
            AGENT, tools=(add, multiply), hooks=(ask_the_large_one,), models=table, new_id=lambda: next(ids)
        )
        local = await driver.execute("go")
    assert_same_run(durable, local, ignoring=UNEQUAL)
    assert whole <= 3, "calls that differ from the definition do not carry all of it"


def _route(server: FakeOpenAI) -> dict[str, Any]:
    prices = {"input_usd": 1.0, "output_usd": 2.0}
    return {"api": "openai_chat", "model": "m-1", "base_url": server.base_url, "prices": prices}


def check(state: AgentState, large: FakeOpenAI, spare: FakeOpenAI) -> None:
    """Check what the second step's endpoints were asked, and what its record says."""
    for server in (large, spare):  # a fallback starts from the changed call
        [request] = server.requests
        assert request.body["temperature"] == 0
        assert [each["function"]["name"] for each in request.body["tools"]] == ["multiply"]
        assert request.body["messages"][-1] == {"role": "user", "content": EXTRA}
        assert request.body["metadata"] == {"padding": PADDING}
    step = state.steps[1]
    assert step.model_call_changes is not None
    assert step.model_call_changes.hooks == ("ask_the_large_one",)
    assert [(each.route, each.to) for each in step.fallbacks] == [("large", "spare")]
    [refused] = step.tool_executions
    assert refused.error is not None
    assert refused.error.type == "UnknownTool", "the model called a tool that it was not offered"
    assert state.final_response == "4"
    assert all(EXTRA not in message.text for message in state.messages)
