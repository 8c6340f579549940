"""An agent on the Responses API in both drivers: reasoning goes back in its place, and the states are equal."""

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
from holdfast.models import OpenAIResponses, ProviderSettings
from holdfast.testing import assert_same_run
from holdfast.testing.responses_server import FakeResponses
from holdfast.testing.script import Call, Reply, calls, say
from holdfast.testing.scripted_tools import scripted_tool
from tests.scenarios.driving import UNEQUAL
from workers import make_worker

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(180)]

SCRIPT = (
    Reply(text="Let me see.", calls=(Call("look", {"at": "1"}),), reasoning="first a look"),
    calls(Call("look", {"at": "2"}), Call("look", {"at": "3"}), reasoning="then two more"),
    say("All three are there.", reasoning="done"),
)
CLERK = AgentDefinition(name="clerk", tools=("look",))


def kinds(endpoint: FakeResponses) -> list[str]:
    """Return what the last request sent of the model's own turns and their results, in order."""
    sent = endpoint.requests[-1].body["input"]
    return [item.get("type", item.get("role")) for item in sent]


async def test_a_run_with_reasoning_and_tools_ends_alike_in_both_drivers(settings: Settings, tmp_path: Path) -> None:
    agent_id, execution_id = str(uuid4()), str(uuid4())
    async with FakeResponses(SCRIPT, ledger=tmp_path / "ledger.jsonl") as endpoint:
        chosen = ProviderSettings(base_url=endpoint.base_url, api_key="test-key", model="scripted")
        client = await Holdfast.connect(settings)
        model, look = OpenAIResponses(chosen), scripted_tool("look", "there")
        offer, cache = Toolset(tools=(look,)), TranscriptCache(bytes_max=0)  # what is sent comes from the history
        async with make_worker(client.temporal, settings, offer, model, cache, WorkerSettings.from_environment()):
            await client.start(CLERK, "go", agent_id=agent_id, execution_id=execution_id)
            durable = await client.result(execution_id)
        await model.close()
        sent_durably = [each.body["input"] for each in endpoint.requests]
        ids = chain((agent_id, execution_id), (str(uuid5(UUID(execution_id), f"child/{n}")) for n in count()))
        model = OpenAIResponses(chosen)
        driver = LocalDriver(CLERK, tools=(look,), model=model, new_id=lambda: next(ids))
        local = await driver.execute("go")
        await model.close()
        assert [each.body["input"] for each in endpoint.requests][len(sent_durably) :] == sent_durably
        assert kinds(endpoint) == [
            *("user", "reasoning", "assistant", "function_call", "function_call_output"),
            *("reasoning", "function_call", "function_call", "function_call_output", "function_call_output"),
        ]
    assert isinstance(durable, AgentState)
    assert_same_run(durable, local, ignoring=UNEQUAL)
    assert local.final_response == "All three are there."
    assert [len(each.inference_response.items) for each in local.steps if each.inference_response] == [3, 3, 2]
