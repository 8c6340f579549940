"""What MCP tools give besides text, on the real server: files in the store, structure as the call's value."""

from __future__ import annotations

import base64
import json

import pytest

from holdfast import AgentDefinition
from holdfast.core.agent.policies import ContextPolicy
from holdfast.core.conversation.attachments import ATTACHMENTS_MAX
from holdfast.core.tools.mcp_servers import McpServer
from holdfast.testing.script import call, say
from tests.mcp.places import command
from tests.pictures import PNG
from tests.serving import Serve
from tests.workflows.histories import history_of, replayed, written

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(120)]

AGENT = AgentDefinition(name="clerk", mcp=("studio",))
SEEING = AgentDefinition(name="clerk", mcp=("studio",), context=ContextPolicy(images=True))


def studio() -> dict[str, McpServer]:
    return {"studio": McpServer(name="studio", command=tuple(command("media_server.py")))}


@pytest.mark.slow
async def test_pictures_sounds_and_files_of_an_mcp_tool_are_kept_and_the_model_sees_the_picture(serve: Serve) -> None:
    async with serve([call("studio_photo"), say("done")], mcp=studio()) as served:
        result = await served.client.run(SEEING, "smile")
        id_ = result.state.running.execution_id
        history = written((await history_of(served.client, id_)).events)
        data = [await served.client.attachment(each) for each in result.state.attachments]
        await replayed(served.client, id_)
        sent = json.dumps((served.endpoint.requests[-1].body or {})["messages"])
    assert [(each.name, each.media_type) for each in result.state.attachments] == [
        ("image-1.png", "image/png"),
        ("audio-2.wav", "audio/wav"),
        ("raw.bin", "application/x-raw"),
    ]
    assert data == [PNG, b"click", b"raw"]
    [photo] = result.state.steps[0].tool_executions
    lines = ["smile", f"[attached: image-1.png, image/png, {len(PNG)} bytes]"]
    lines += ["[attached: audio-2.wav, audio/wav, 5 bytes]", "[attached: raw.bin, application/x-raw, 3 bytes]"]
    assert (photo.result or "").splitlines() == lines
    assert photo.answer.text == photo.result, "a line that the text has already is not added"
    assert f"data:image/png;base64,{base64.b64encode(PNG).decode()}" in sent
    assert base64.b64encode(PNG)[:40] not in history


async def test_what_only_says_that_it_is_a_picture_never_reaches_the_model_as_one(serve: Serve) -> None:
    async with serve([call("studio_fake"), say("done")], mcp=studio()) as served:
        result = await served.client.run(SEEING, "look")
        parts = (served.endpoint.requests[-1].body or {})["messages"][-1]["content"]
    assert result.output == "done"
    assert parts[-1] == {"type": "text", "text": "[picture image-1.png: its data is no image/png]"}


async def test_more_files_than_one_call_may_keep_are_left_out_and_named(serve: Serve) -> None:
    async with serve([call("studio_album"), say("done")], mcp=studio()) as served:
        result = await served.client.run(AGENT, "all of them")
    [album] = result.state.steps[0].tool_executions
    assert len(album.attachments) == ATTACHMENTS_MAX
    assert (album.result or "").splitlines()[
        -1
    ] == "[not kept: 'image-20.png' is one file too many: one call attaches 16]"


@pytest.mark.slow
async def test_what_a_server_structures_is_the_value_of_the_call(serve: Serve) -> None:
    script = [call("studio_weather"), call("studio_count"), call("studio_point"), say("done")]
    async with serve(script, mcp=studio()) as served:
        result = await served.client.run(AGENT, "tell")
        await replayed(served.client, result.state.running.execution_id)
        last = (served.endpoint.requests[-1].body or {})["messages"]
    weather, count, point = (step.tool_executions[0] for step in result.state.steps[:3])
    assert (weather.result, weather.value) == ("It is sunny.", {"sky": "clear", "degrees": 21})
    assert count.value == {"result": [1, 2, 3]}, "the SDK puts what is no object under `result`"
    assert point.value == {"x": 1, "y": 2}
    assert (point.result_type, point.structured) == ("json", None), "nothing is kept twice"
    assert "sky" not in json.dumps(last), "the model sees the text"
