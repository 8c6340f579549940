"""Tools that the provider runs, in both drivers: named ones are asked for, counted, shown; a hook leaves them out."""

from __future__ import annotations

from itertools import chain, count
from uuid import UUID, uuid4, uuid5

import pytest

from activities.transcript_cache import TranscriptCache
from holdfast import LLM, AgentDefinition, Changes, HookContext, ModelCallChanges, hook
from holdfast.cli.screens import output
from holdfast.client import Holdfast, Settings
from holdfast.connection.worker_settings import WorkerSettings
from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.model import problem_with
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.frozen import replace
from holdfast.local import LocalDriver
from holdfast.models import OpenAIResponses, ProviderSettings
from holdfast.models.routed_model import RoutedModel
from holdfast.models.routes import Route
from holdfast.testing import Call, Reply, ScriptedModel, ServerCall, assert_same_run, say
from holdfast.testing.responses_server import FakeResponses
from holdfast.testing.scripted_tools import scripted_tool
from holdfast.view.cost_report import joined, own_lines
from holdfast.view.run_view import step_views
from tests.scenarios.driving import UNEQUAL
from workers import make_worker

SEARCH = {"type": "web_search", "options": {"search_context_size": "low"}, "usd_per_call": 0.01}
CLERK = AgentDefinition.model_validate(
    {
        "name": "clerk",
        "llm": {"prices": {"input_usd": 1, "output_usd": 1}, "server_tools": [SEARCH]},
        "tools": ["look"],
        "hooks": ["offer_less"],
    }
)
SCRIPT = (
    Reply(
        text="I look.",
        reasoning="first the web",
        server_calls=(ServerCall("web_search", "ships"), ServerCall("web_search", "boats")),
        calls=(Call("look", {"at": "1"}),),
    ),
    Reply(calls=(Call("look", {"at": "2"}),)),
    say("Both are there.", server_calls=(ServerCall("web_search", "more"),)),
)


@hook("before_inference")
def offer_less(context: HookContext) -> Changes | None:
    """Offer the agent's own tool alone in the second step."""
    return Changes(model_call=ModelCallChanges(tools=("look",))) if context.step_number == 2 else None


def offered(endpoint: FakeResponses) -> list[list[str]]:
    """Return which tools each request has asked for."""
    return [[each["type"] for each in request.body.get("tools", ())] for request in endpoint.requests]


@pytest.mark.temporal
@pytest.mark.timeout(180)
async def test_a_run_with_tools_of_the_provider_ends_alike_in_both_drivers(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    agent_id, execution_id = str(uuid4()), str(uuid4())
    async with FakeResponses(SCRIPT) as endpoint:
        chosen = ProviderSettings(base_url=endpoint.base_url, api_key="test-key", model="scripted")
        client = await Holdfast.connect(settings)
        model, look = OpenAIResponses(chosen), scripted_tool("look", "there")
        offer, cache = Toolset(tools=(look,), hooks=(offer_less,)), TranscriptCache(bytes_max=0)
        async with make_worker(client.temporal, settings, offer, model, cache, WorkerSettings.from_environment()):
            await client.start(CLERK, "go", agent_id=agent_id, execution_id=execution_id)
            durable = await client.result(execution_id)
        await model.close()
        sent_durably = [each.body for each in endpoint.requests]
        ids = chain((agent_id, execution_id), (str(uuid5(UUID(execution_id), f"child/{n}")) for n in count()))
        model = OpenAIResponses(chosen)
        driver = LocalDriver(CLERK, tools=(look,), hooks=(offer_less,), model=model, new_id=lambda: next(ids))
        local = await driver.execute("go")
        await model.close()
        assert [each.body for each in endpoint.requests][len(sent_durably) :] == sent_durably
        both, own = ["function", "web_search"], ["function"]
        assert offered(endpoint)[:3] == [both, own, both]
    assert isinstance(durable, AgentState)
    assert_same_run(durable, local, ignoring=UNEQUAL)
    assert [dict(each.server_tool_calls) for each in local.steps] == [{"web_search": 2}, {}, {"web_search": 1}]
    assert local.cost == pytest.approx(3 * 120 / 1_000_000 + 0.03)
    (line,) = joined(own_lines(local, "clerk"))
    assert line.server_tool_calls == {"web_search": 3}
    assert line.cost == pytest.approx(local.cost)
    assert [each.provider_ran for each in step_views(local)] == ["web_search (2 calls)", "", "web_search (1 call)"]
    output.whole(local, None)
    assert "the provider ran web_search (2 calls)" in capsys.readouterr().out


async def test_a_limit_that_they_could_pass_refuses_the_run_before_a_request() -> None:
    async with FakeResponses(SCRIPT) as endpoint:
        model = OpenAIResponses(ProviderSettings(base_url=endpoint.base_url, api_key="k", model="scripted"))
        tools = (scripted_tool("look", "there"),)
        driver = LocalDriver(CLERK, tools=tools, hooks=(offer_less,), model=model)
        refused = await driver.execute("go", budget=ExecutionBudget(max_cost=1.0))
        assert ([each.type for each in refused.errors], len(endpoint.requests)) == (["ServerToolsUnbounded"], 0)
        allowed = await driver.execute("go", budget=ExecutionBudget(max_cost=1.0, server_tools="allow"))
        await model.close()
    assert allowed.final_response == "Both are there."


async def test_a_route_to_fall_back_to_has_to_run_them_too() -> None:
    chat, other = (Route(api=api, model="m", base_url="http://127.0.0.1:9/v1") for api in ("openai_chat", "anthropic"))
    model = RoutedModel(ScriptedModel([say("x")]), {"chat": chat, "claude": other})
    llm = LLM.model_validate({"model": "claude", "server_tools": ["web_search"], "fallback": ["chat"]})
    assert "the OpenAI API does not know llm.server_tools" in problem_with(model, llm)
    assert problem_with(model, replace(llm, fallback=())) == ""
    with pytest.raises(InvalidInput, match=r"does not know llm\.server_tools"):
        LocalDriver(AgentDefinition(name="clerk", llm=llm), model=model)
    await model.close()


def test_a_tool_of_the_agents_with_such_a_name_is_refused() -> None:
    agent = AgentDefinition.model_validate({"name": "clerk", "tools": "all", "llm": {"server_tools": ["web_search"]}})
    with pytest.raises(InvalidInput, match="both have 'web_search'"):
        LocalDriver(agent, tools=(scripted_tool("web_search", "x"),), model=ScriptedModel([say("x")]))
