"""What tools, hooks and clients add to a stop comes through a real server as it does in-process."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import AgentDefinition, Changes, HookContext, StopReason, StopRun, hook, tool
from holdfast.client import Settings
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.errors import InvalidInput
from holdfast.core.conversation.stop_reasons import StopSignal
from holdfast.core.wire.execution_events import StopSignalReceived
from holdfast.local import LocalDriver
from holdfast.testing import Hold, ScriptedModel
from holdfast.testing.script import call, say
from tests.serving import Serve, served

pytestmark = pytest.mark.temporal

AGENT = AgentDefinition(name="seeker", tools="all", hooks="all")


@tool
def seek() -> StopRun:
    """Seek."""
    return StopRun("found", "it is found", {"place": {"shelf": 3}})


@hook("after_step")
def guard(context: HookContext) -> Changes:
    """Stop after a step."""
    return Changes(stop="enough of it", stop_context={"step": context.step_number})


def signals(state: AgentState) -> list[tuple[str, dict[str, object]]]:
    return [(each.source, dict(each.context)) for each in state.running.continuation.stop_signals]


async def test_what_tools_and_hooks_add_is_the_same_in_process_and_on_temporal(
    settings: Settings, tmp_path: Path
) -> None:
    offer, heard = Toolset(tools=(seek,), hooks=(guard,)), list[StopSignal]()
    async with served(settings, tmp_path / "ledger.jsonl", [call("seek")], offer) as at_work:
        execution_id = await at_work.client.start(AGENT, "Seek.")
        async for each in at_work.client.watch(execution_id):
            if isinstance(each, StopSignalReceived):
                heard.append(each.signal)
        durable = await at_work.client.result(execution_id)
    local = await LocalDriver(AGENT, model=ScriptedModel([call("seek")]), tools=[seek], hooks=[guard]).execute("Seek.")
    (found,) = [each.id for each in durable.steps[0].requested_tool_calls]
    (mine,) = [each.id for each in local.steps[0].requested_tool_calls]
    assert signals(durable) == [
        ("seek", {"place": {"shelf": 3}, "tool": "seek", "call_id": found}),
        ("guard", {"step": 1, "hook": "guard"}),
    ]
    assert [source for source, _ in signals(local)] == ["seek", "guard"]
    assert signals(local)[0][1] == {**signals(durable)[0][1], "call_id": mine}
    assert tuple(heard) == durable.running.continuation.stop_signals, "its events say the same"


async def test_what_a_client_adds_stands_in_the_signal(serve: Serve) -> None:
    hold = Hold()
    async with serve([say("too late", hold=hold)]) as at_work:
        execution_id = await at_work.client.start(AGENT, "Wait.")
        await hold.until_held()
        with pytest.raises(InvalidInput, match="2,000 go with a stop"):
            await at_work.client.stop(execution_id, context={"notes": "x" * 3_000})
        await at_work.client.stop(execution_id, "shop is closed", source="desk", context={"ticket": 12})
        state = await at_work.client.result(execution_id)
    assert state.stop_reason is StopReason.USER_REQUESTED
    assert signals(state) == [("desk", {"ticket": 12, "caller": "desk"})]
