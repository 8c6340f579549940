"""That a run waits for a person is told at the same place of its history, however its hooks came to their ends."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import AgentDefinition, tool
from holdfast.core.hooks import Changes, HookContext, Trigger, hook
from holdfast.core.offer import Offer
from holdfast.core.state import ExecutionStatus
from holdfast.core.verdicts import Verdict
from holdfast.testing.script import Call, calls, say
from tests.serving import Serve
from tests.workflows.histories import history_of, markers, replayed
from tests.workflows.waiting import waiting_calls

pytestmark = pytest.mark.temporal

HALF_A_TASK = 4.0
"""Seconds: a workflow task in which hooks run is renewed at four fifths of its 10 s."""

TRIGGERS = (Trigger.AFTER_INFERENCE, Trigger.BEFORE_TOOL)


async def test_hooks_that_outlast_a_workflow_task_replay_as_they_ran(serve: Serve) -> None:
    async def look(context: HookContext) -> Changes:
        place = int(context.call.arguments["n"]) + 1 if context.call else 0
        await asyncio.sleep(HALF_A_TASK + 0.25 * place)
        return Changes()

    @tool
    def pay(n: int) -> str:
        """Pay."""
        return f"paid {n}"

    slow = [hook(each, name=f"look_{each}", timeout_seconds=5)(look) for each in TRIGGERS]
    script = [calls(*(Call("pay", {"n": n}) for n in range(3))), say("done")]
    careful = AgentDefinition.model_validate({"name": "careful", "approvals": [{"tools": ["pay"]}]})
    async with serve(script, offer=Offer(tools=(pay,), hooks=tuple(slow))) as served:
        execution_id = await served.client.start(careful, "pay three times")
        for call_id in await waiting_calls(served.client, execution_id, 3):
            await served.client.decide(execution_id, call_id, Verdict(decision="approve"))
        state = await served.client.result(execution_id)
        events = (await history_of(served.client, execution_id)).events
        await replayed(served.client, execution_id)
    assert state.status is ExecutionStatus.COMPLETED
    assert len(markers(events)) >= 4, "the hooks came to their ends one after another"
