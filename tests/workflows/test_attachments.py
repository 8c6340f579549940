"""Files of tools on the real server: bytes in the store, names in the history, pictures at the model."""

from __future__ import annotations

import base64
from hashlib import sha256
from typing import Any

import pytest

from holdfast import AgentDefinition, ToolContext, tool
from holdfast.core.agent.policies import ContextPolicy
from holdfast.core.agent.state import AgentState
from holdfast.core.base.errors import ObjectMissing
from holdfast.local import LocalDriver
from holdfast.testing.script import call, say
from holdfast.testing.scripted_model import ScriptedModel
from tests.pictures import PNG
from tests.serving import Serve
from tests.workflows.histories import history_of, replayed, written

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(120)]

NOTES = b"not for the history " * 1_000


@tool
async def draw(context: ToolContext) -> dict[str, int]:
    """Draw a chart."""
    context.attach(PNG, name="chart.png")
    context.attach(NOTES, name="notes.txt")
    return {"bars": 3}


@tool(local=True, idempotent=True)
def sketch(context: ToolContext) -> str:
    """Sketch within the workflow task."""
    context.attach(PNG, name="sketch.png")
    return "sketched"


SCRIPT = [call("draw"), call("sketch"), say("seen")]
PLAIN = AgentDefinition(name="artist", tools="all")
SEEING = AgentDefinition(name="artist", tools="all", context=ContextPolicy(images=True))


def texts(messages: list[dict[str, Any]]) -> list[str]:
    return [str(each["content"]) for each in messages if each["role"] == "tool"]


def pictures(messages: list[dict[str, Any]]) -> list[str]:
    contents: list[Any] = [each["content"] for each in messages if not isinstance(each["content"], str)]
    parts: list[dict[str, Any]] = [part for content in contents for part in content or ()]
    return [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]


async def test_a_tools_files_are_stored_named_and_read_back_and_no_history_has_their_bytes(serve: Serve) -> None:
    async with serve(SCRIPT, [draw, sketch]) as served:
        result = await served.client.run(PLAIN, "draw")
        id_ = result.state.running.execution_id
        chart, notes, sketched = result.state.attachments
        assert await served.client.attachment(chart) == PNG
        assert await served.client.attachment(notes.digest) == NOTES
        with pytest.raises(ObjectMissing):
            await served.client.attachment("0" * 64)
        history = written((await history_of(served.client, id_)).events)
        await replayed(served.client, id_)
        last = served.endpoint.requests[-1].body or {}
    assert (chart.name, chart.media_type, chart.size) == ("chart.png", "image/png", len(PNG))
    assert chart.digest == sha256(PNG).hexdigest() == sketched.digest
    drawn = result.state.steps[0].tool_executions[0]
    assert drawn.value == {"bars": 3}, "the result keeps its value beside the files"
    first, second = texts(last["messages"])
    assert first == (
        f'{{"bars":3}}\n[attached: chart.png, image/png, {len(PNG)} bytes]\n[attached: notes.txt, text/plain, 20 KB]'
    )
    assert second == f"sketched\n[attached: sketch.png, image/png, {len(PNG)} bytes]"
    assert pictures(last["messages"]) == [], "a model that is to see no pictures is sent none"
    assert b"not for the history" not in history
    assert base64.b64encode(PNG)[:40] not in history


async def test_the_model_sees_the_pictures_of_results_where_its_agent_says_so(serve: Serve) -> None:
    async with serve(SCRIPT, [draw, sketch]) as served:
        result = await served.client.run(SEEING, "draw")
        await replayed(served.client, result.state.running.execution_id)
        history = written((await history_of(served.client, result.state.running.execution_id)).events)
        bodies = [each.body or {} for each in served.endpoint.requests]
    url = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    assert [pictures(body["messages"]) for body in bodies] == [[], [url], [url, url]]
    roles = [each["role"] for each in bodies[1]["messages"]]
    assert roles[-3:] == ["assistant", "tool", "user"], "pictures come behind the results, from a user"
    assert base64.b64encode(PNG)[:40] not in history
    assert result.output == "seen"


async def test_in_process_the_model_is_sent_the_same_and_the_state_is_the_same(serve: Serve) -> None:
    async with serve(SCRIPT, [draw, sketch]) as served:
        there = await served.client.run(SEEING, "draw")
        sent = (served.endpoint.requests[-1].body or {})["messages"]
    model = ScriptedModel(SCRIPT)
    driver = LocalDriver(SEEING, model=model, tools=(draw, sketch))
    here = await driver.execute("draw")
    assert [each.attachments for each in calls(here)] == [each.attachments for each in calls(there.state)]
    assert [each.text for each in here.messages] == [each.text for each in there.state.messages]
    assert pictures(sent) == [part.url for each in model.requests[-1].messages for part in images(each.content)]
    assert await driver.attachments.read_attachment(here.attachments[0].digest) == PNG


def calls(state: AgentState) -> list[Any]:
    return [each for step in state.steps for each in step.tool_executions]


def images(content: Any) -> list[Any]:  # noqa: ANN401  # parts
    return [] if isinstance(content, str) else [part for part in content if part.type == "image_url"]
