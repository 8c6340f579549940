"""What a compiler sees, in-process as on Temporal: tags, sections, metadata, the prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from holdfast import AgentDefinition, Message, tool
from holdfast.core.agent.context_view import CompilerContext, compiler
from holdfast.core.agent.hooks import Changes, HookContext, Trigger, hook
from holdfast.core.agent.toolset import Toolset
from holdfast.local import LocalDriver
from holdfast.testing.script import call, say
from holdfast.testing.scripted_model import ScriptedModel
from tests.serving import Serve

pytestmark = pytest.mark.temporal

AGENT = AgentDefinition.model_validate(
    {
        "name": "clerk",
        "system_prompt": "Be brief.",
        "tools": "all",
        "hooks": "all",
        "context": {"compiler": "noting", "tool_output_chars_max": 200},
    }
)


@tool
def read() -> str:
    """Read."""
    return "a line " * 100


@hook(Trigger.AFTER_STEP)
def count(context: HookContext) -> Changes:
    """Keep how many steps there were."""
    return Changes(metadata={"steps": context.step_number})


class Notes:
    """What a compiler has seen, each time."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []

    def offer(self) -> Toolset:
        @compiler
        def noting(context: CompilerContext) -> Sequence[Message]:
            self.seen.append(
                {
                    "metadata": dict(context.metadata),
                    "prompt": context.system_prompt,
                    "sections": [(each.name, [len(one.text) for one in each.messages]) for each in context.sections],
                    "shown": [(each.role, len(each.text), sorted(each.metadata)) for each in context.messages],
                    "run": {**context.run.model_dump(), "agent_id": len(context.run.agent_id)},
                    "own": {each.metadata.get("execution_id") == context.execution_id for each in context.messages},
                }
            )
            return context.messages

        return Toolset(tools=(read,), hooks=(count,), compilers=(noting,))


async def test_a_compiler_sees_tags_sections_metadata_and_the_prompt_alike_in_both_drivers(serve: Serve) -> None:
    script = [call("read"), say("done")]
    here, there = Notes(), Notes()
    offer, model = here.offer(), ScriptedModel(script)
    driver = LocalDriver(AGENT, model=model, tools=offer.tools, hooks=offer.hooks, compilers=offer.compilers)
    await driver.execute("read it", metadata={"customer": "c-17"})
    async with serve(script, offer=there.offer()) as served:
        await served.client.run(AGENT, "read it", metadata={"customer": "c-17"})
    assert here.seen == there.seen
    first, second = here.seen
    assert first["metadata"] == {"agent": "clerk", "customer": "c-17"}
    assert second["metadata"] == {"agent": "clerk", "customer": "c-17", "steps": 1}
    known = {"agent": "clerk", "agent_id": 36}  # the rest is as by default
    assert first["run"] == {**known, "step_number": 1}
    assert second["run"] == {**known, "step_number": 2}
    assert first["prompt"] == "Be brief."
    [(name, lengths)] = second["sections"]
    assert (name, lengths[-1]) == ("messages", len("a line " * 100)), "the sections are whole"
    role, length, tags = second["shown"][-1]
    assert (role, length < 300) == ("tool", True), "the messages are as the policy shows them"
    assert {"agent_id", "execution_id", "is_trace", "step_id"} <= set(tags)
    assert second["own"] == {True}
    for request in served.endpoint.requests:
        assert "holdfast.section" not in str(request.body)
