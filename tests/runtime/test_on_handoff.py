"""Hooks at a handoff: they run where it is accepted, as the agent that hands over."""

from __future__ import annotations

import pytest

from holdfast import Agent, Changes, HookContext, hook
from holdfast.core.agent.hooks import Hook, Trigger
from holdfast.core.base.errors import InvalidInput
from holdfast.local import LocalDriver
from holdfast.testing import ScriptedModel, call, say


@hook("on_handoff")
def plain(context: HookContext) -> Changes:
    """Keep to whom, and why."""
    assert context.call is not None
    return Changes(metadata={"handed": [context.agent, *map(str, context.call.arguments.values())]})


@hook("on_handoff", name="plain", priority=3)
async def waiting(context: HookContext) -> Changes | None:
    """Do the same, async."""
    result = plain(context)
    return result if isinstance(result, Changes) else None


@pytest.mark.parametrize("noting", [plain, waiting])
async def test_a_hook_runs_where_a_handoff_is_accepted_and_the_other_agent_has_its_metadata(noting: Hook) -> None:
    seen: list[object] = []

    @hook("before_step")
    def see(context: HookContext) -> None:
        seen.append(context.metadata.get("handed"))

    billing = Agent(name="billing", hooks=[see])
    front = Agent(name="front", hooks=[noting], handoffs=[billing])
    script = [call("handoff", agent="nobody"), call("handoff", agent="billing", reason="a bill"), say("paid")]
    state = await LocalDriver(front, model=ScriptedModel(script)).execute("Is it paid?")
    refused, accepted = (step.tool_executions[0] for step in state.steps[:2])
    assert (refused.outcome, accepted.outcome) == ("failed", "succeeded")
    assert seen == [["front", "billing", "a bill"]]
    assert state.active_agent == "billing"


def test_its_traits_are_those_of_a_hook_after_the_tool() -> None:
    assert (waiting.traits.trigger, waiting.traits.tools) == (Trigger.AFTER_TOOL, ("handoff",))
    assert (waiting.name, waiting.traits.priority) == ("plain", 3)
    with pytest.raises(InvalidInput, match="`tools` has no meaning for on_handoff"):
        hook("on_handoff", name="a", tools=["handoff"])(lambda _: None)
