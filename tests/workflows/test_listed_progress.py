"""How far a run under way has come, in its search attributes: at a bounded rate, and the same in a replay."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from temporalio.api.history.v1 import History

from holdfast import AgentDefinition, tool
from holdfast.client import Holdfast
from holdfast.core.agent.hooks import Changes, HookContext, Trigger, hook
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.usage import Prices
from holdfast.core.wire import search_attributes
from holdfast.core.wire.contracts import InferenceAnswer
from holdfast.testing.holds import Hold
from holdfast.testing.script import Reply, call, say, turn_number
from tests.serving import Serve
from tests.workflows.histories import replayed
from workflows.search_attributes import LISTED_MODEL_SECONDS, LISTED_STEPS, Rate

STEPS = 2 * LISTED_STEPS + 3
HELD_AT = LISTED_STEPS + 2


def script(request: dict[str, Any]) -> Reply:
    number = turn_number(request)
    return call("work", n=number) if number < STEPS - 1 else say("done")


def listed_in(history: History) -> list[int]:
    """Return the steps that a run was listed by, each time."""
    upserts = (
        event.upsert_workflow_search_attributes_event_attributes.search_attributes.indexed_fields
        for event in history.events
        if event.HasField("upsert_workflow_search_attributes_event_attributes")
    )
    return [json.loads(each[search_attributes.STEPS].data) for each in upserts if search_attributes.STEPS in each]


async def answers_of(client: Holdfast, history: History) -> list[InferenceAnswer]:
    """Return the answers of the model as the history has them."""
    found: list[InferenceAnswer] = []
    calls = {
        event.event_id
        for event in history.events
        if event.activity_task_scheduled_event_attributes.activity_type.name == "inference"
    }
    for event in history.events:
        ended = event.activity_task_completed_event_attributes
        if ended.scheduled_event_id in calls:
            found += await client.temporal.data_converter.decode(ended.result.payloads, [InferenceAnswer])
    return found


@pytest.mark.slow
@pytest.mark.temporal
async def test_a_run_under_way_is_listed_by_its_steps_tokens_and_cost(serve: Serve) -> None:
    """It replays, although it was asked all the time while its hooks ran: how tasks fall together decides nothing."""
    hold = Hold()

    @tool
    async def work(n: int) -> str:
        """Work."""
        if n == HELD_AT:
            await hold.stand()
        return "worked"

    async def look(_: HookContext) -> Changes:
        await asyncio.sleep(0)
        return Changes()

    prices = Prices(input_usd=1.0, output_usd=2.0)
    agent = AgentDefinition.model_validate(
        {"name": "worker", "tools": "all", "hooks": "all", "llm": {"prices": prices}}
    )
    hooks = tuple(hook(each, name=f"at_{each}")(look) for each in (Trigger.AFTER_INFERENCE, Trigger.BEFORE_STEP))
    async with serve(script, offer=Toolset(tools=(work,), hooks=hooks)) as served:
        client = served.client
        execution_id = await client.start(agent, "work")
        asking = asyncio.create_task(_ask(client, execution_id))
        await hold.until_held(seconds_max=90)
        [line] = [each for each in await client.runs(100) if each.execution_id == execution_id]
        assert line.status == "in_progress"
        assert 0 < (line.steps or 0) <= HELD_AT
        assert line.tokens
        assert line.cost
        hold.release()
        await client.result(execution_id)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        history = await client.temporal.get_workflow_handle(execution_id).fetch_history()
        answers = await answers_of(client, History(events=history.events))
        await replayed(client, execution_id)
    assert all(each.seconds > 0 for each in answers)
    rate = Rate(0)
    expected: list[int] = []
    for number, each in enumerate(answers[:-1], 1):
        rate.add(each.seconds)
        expected += [number] if rate.is_due(number) else []
    assert listed_in(History(events=history.events)) == [*expected, STEPS]


async def _ask(client: Holdfast, execution_id: str) -> None:
    while True:
        await client.debug(execution_id)


def test_slow_steps_are_listed_one_by_one_and_quick_ones_every_so_often() -> None:
    slow, quick = Rate(3), Rate(3)
    told: dict[str, list[int]] = {"slow": [], "quick": []}
    for steps in range(4, 4 + 2 * LISTED_STEPS):
        slow.add(LISTED_MODEL_SECONDS)
        quick.add(0.001)
        for name, rate in (("slow", slow), ("quick", quick)):
            told[name] += [steps] if rate.is_due(steps) else []
            assert not rate.is_due(steps), "each place once"
    assert told["slow"] == list(range(4, 4 + 2 * LISTED_STEPS))
    assert told["quick"] == [3 + LISTED_STEPS, 3 + 2 * LISTED_STEPS]
