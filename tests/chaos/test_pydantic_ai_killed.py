"""A worker dies in an answer that streams through Pydantic AI: it is asked again and counts, and nothing runs twice."""

from __future__ import annotations

import json
from itertools import chain, count
from pathlib import Path
from uuid import UUID, uuid4, uuid5

import pytest

from holdfast.client import Holdfast, Settings
from holdfast.core.agent.definition import LLM, AgentDefinition
from holdfast.core.agent.state import AgentState
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.local import LocalDriver
from holdfast.testing.comparison import differences
from holdfast.testing.ledger import Ledger
from holdfast.testing.script import Reply, call, say
from tests.chaos.processes import worker
from tests.chaos.test_worker_killed import text_has_come
from tests.chaos.tools import note
from tests.models.pydantic_ai_asking import ANTHROPIC, CHAT, Kind
from tests.scenarios.driving import UNEQUAL
from tests.workflows.histories import replayed

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(240)]

AGENT = AgentDefinition(name="noter", llm=LLM(model="far"), tools=("note",))
WORDS = " ".join(f"word{number}" for number in range(40))
LOST = Reply(text=WORDS, calls=call("note", text="never").calls, pieces_max=20, hang=True)
SCRIPT = [call("note", text="one", seconds=0.01), say(WORDS, failures=(LOST,))]
"""The answer that is lost would have called a tool."""

COUNTED = {"usage", "cost", "overhead"}
"""Where the lost attempt counts, which the run in-process does not have."""


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "before"), [(CHAT, 0), (ANTHROPIC, 101)], ids=["OpenAI", "Anthropic"])
async def test_a_worker_killed_in_an_answer_of_pydantic_ai_loses_and_repeats_nothing(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind, before: int
) -> None:
    """`before`: how many tokens the API reports when an answer begins."""
    ledger, models = tmp_path / "ledger.jsonl", tmp_path / "models.yaml"
    monkeypatch.setenv("HOLDFAST_LEDGER", str(tmp_path / "in-process.jsonl"))
    agent_id, execution_id = str(uuid4()), str(uuid4())
    async with kind.endpoint(SCRIPT) as endpoint:
        table = {"far": {"api": "pydantic_ai", "model": kind.name, "base_url": kind.address(endpoint.base_url)}}
        models.write_text(json.dumps({"models": table}))  # JSON is YAML, too
        told = {"HOLDFAST_MODELS": str(models)}
        client = await Holdfast.connect(settings)
        async with worker(settings, endpoint, ledger, told) as first:
            await client.start(AGENT, "note it", agent_id=agent_id, execution_id=execution_id)
            await text_has_come(client, execution_id)
            first.kill()
        async with worker(settings, endpoint, ledger, told):
            durable = await client.result(execution_id)
        await replayed(client, execution_id)
        assert isinstance(durable, AgentState)
        assert [each.outcome for each in endpoint.requests] == ["answered", "disconnected-by-client", "answered"]
        _, lost, again = (each.body for each in endpoint.requests)
        assert again == lost
        assert Ledger(ledger).count(kind="tool", phase="started") == 1, "the call of the lost answer does not run"

        ids = chain((agent_id, execution_id), (str(uuid5(UUID(execution_id), f"child/{n}")) for n in count()))
        driver = LocalDriver(AGENT, tools=(note,), models=table, new_id=lambda: next(ids))
        local = await driver.execute("note it")
    assert durable.final_response == WORDS
    places = [line.partition(":")[0] for line in differences(durable, local, ignoring=UNEQUAL | COUNTED)]
    assert places == ["state.execution.step_executions[1].step.overhead_cost"], "it is 0 in-process"
    reported = sum((each.usage for each in answers_of(durable)), Usage())
    assert local.usage == reported
    assert durable.usage.total_tokens - durable.usage.estimated_tokens == reported.total_tokens + before
    assert durable.usage.estimated_tokens > len(WORDS) // 4, "the attempt that was lost counts as well"


def answers_of(state: AgentState) -> list[InferenceResponse]:
    return [each.inference_response for each in state.steps if each.inference_response is not None]
