"""An agent whose model is one of Pydantic AI, in both drivers: cut answers, thinking that goes back, equal states."""

from __future__ import annotations

from itertools import chain, count
from pathlib import Path
from uuid import UUID, uuid4, uuid5

import pytest

from activities.transcript_cache import TranscriptCache
from holdfast import AgentDefinition
from holdfast.client import Holdfast, Settings
from holdfast.connection.worker_settings import WorkerSettings
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.toolset import Toolset
from holdfast.local import LocalDriver
from holdfast.models import PydanticAIModel
from holdfast.testing import assert_same_run
from holdfast.testing.anthropic_server import FakeAnthropic
from holdfast.testing.script import Call, Reply, calls, say
from holdfast.testing.scripted_tools import scripted_tool
from tests.models.pydantic_ai_asking import ANTHROPIC
from tests.scenarios.driving import UNEQUAL
from workers import make_worker

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(180)]

CUT = Reply(text="Let me see.", calls=(Call("look", {"at": "1"}),), pieces_max=6, disconnect=True)
SCRIPT = (
    Reply(text="Let me see.", calls=(Call("look", {"at": "1"}),), reasoning="first a look"),
    calls(Call("look", {"at": "2"}), Call("look", {"at": "3"}), reasoning="then two more"),
    say("All three are there.", reasoning="done"),
)
CLERK = AgentDefinition(name="clerk", tools=("look",))


async def test_a_run_ends_alike_in_both_drivers(settings: Settings, tmp_path: Path) -> None:
    agent_id, execution_id = str(uuid4()), str(uuid4())
    async with FakeAnthropic(SCRIPT, ledger=tmp_path / "ledger.jsonl") as endpoint:
        client = await Holdfast.connect(settings)
        model, look = PydanticAIModel(ANTHROPIC.model(endpoint.base_url)), scripted_tool("look", "there")
        offer, cache = Toolset(tools=(look,)), TranscriptCache(bytes_max=0)  # what is sent comes from the history
        async with make_worker(client.temporal, settings, offer, model, cache, WorkerSettings.from_environment()):
            await client.start(CLERK, "go", agent_id=agent_id, execution_id=execution_id)
            durable = await client.result(execution_id)
        await model.close()
        sent_durably = [each.body["messages"] for each in endpoint.requests]
        ids = chain((agent_id, execution_id), (str(uuid5(UUID(execution_id), f"child/{n}")) for n in count()))
        model = PydanticAIModel(ANTHROPIC.model(endpoint.base_url))
        driver = LocalDriver(CLERK, tools=(look,), model=model, new_id=lambda: next(ids))
        local = await driver.execute("go")
        await model.close()
        assert [each.body["messages"] for each in endpoint.requests][len(sent_durably) :] == sent_durably
        answers = [each["content"] for each in sent_durably[-1] if each["role"] == "assistant"]
        assert [[block["type"] for block in each] for each in answers] == [
            ["thinking", "text", "tool_use"],
            ["thinking", "tool_use", "tool_use"],
        ]
    assert isinstance(durable, AgentState)
    assert_same_run(durable, local, ignoring=UNEQUAL)
    assert local.final_response == "All three are there."


async def test_an_answer_that_is_cut_runs_no_tool_and_is_asked_for_again() -> None:
    looked = list[str]()
    script = (Reply(text="Let me see.", calls=(Call("look", {"at": "1"}),), failures=(CUT,)), say("There."))
    async with FakeAnthropic(script) as endpoint:
        model = PydanticAIModel(ANTHROPIC.model(endpoint.base_url))
        look = scripted_tool("look", "there")
        state = await LocalDriver(CLERK, tools=(look,), model=model).execute("go")
        await model.close()
        looked += [each.name for step in state.steps for each in step.tool_executions]
        assert len(endpoint.requests) == 3
    assert (state.final_response, looked) == ("There.", ["look"])
    assert state.usage.estimated_tokens > 0
