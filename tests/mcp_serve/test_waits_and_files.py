"""What a caller of `holdfast mcp-serve` gets beside text: forms that wait for a person, and the files of a run."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client
from mcp_types import BlobResourceContents, EmbeddedResource, ImageContent, TextContent

from holdfast import AgentDefinition, ToolContext, tool
from holdfast.client import Settings
from holdfast.mcp_serve.run_files import FILES_BYTES_MAX
from holdfast.testing.script import call as calls
from holdfast.testing.script import say
from tests.mcp.places import asking
from tests.mcp_serve.callers import Place, Reports, call, over_stdio, run_id, text
from tests.serving import Serve

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(120)]

PIXEL = b"\x89PNG\r\n\x1a\n" + b"0" * 40


@pytest.mark.slow
async def test_a_form_that_waits_is_reported_with_how_to_answer_it(
    serve: Serve, settings: Settings, tmp_path: Path
) -> None:
    agent = AgentDefinition(name="clerk", mcp=("theatre",))
    script = [calls("theatre_book", show="Hamlet"), say("booked")]
    place, mcp = Place.of(settings, tmp_path, [agent]), {"theatre": asking(tmp_path / "ledger")}
    async with serve(script, mcp=mcp) as served, over_stdio(place) as client:
        id_, reports = run_id(await call(client, "clerk", message="book", wait_seconds=0)), Reports()
        seats, told = await _until_asked(client, id_, reports, "How many seats for Hamlet?")
        await served.client.answer_question(id_, str(seats["call_id"]), {"seats": 2})
        sure, _ = await _until_asked(client, id_, reports, "Book 2?")
        await served.client.answer_question(id_, str(sure["call_id"]), {"sure": True})
        ended = await call(client, "get_run", run_id=id_, wait_seconds=60)
    command = f"holdfast answer {id_} {seats['call_id']}"
    assert (seats["run_id"], seats["tool"], seats["waits_for"]) == (id_, "theatre_book", "answer")
    assert seats["form"]["required"] == ["seats"]
    assert seats["expires_at"] is not None
    assert told.endswith(f"theatre_book waits for a person's answer: {command} (How many seats for Hamlet?)")
    assert any(command in line for line in reports.lines)
    assert text(ended) == "booked"


@pytest.mark.slow
async def test_a_run_that_was_asked_to_stop_waits_for_nobody(serve: Serve, settings: Settings, tmp_path: Path) -> None:
    agent = AgentDefinition(name="clerk", mcp=("theatre",))
    place, mcp = Place.of(settings, tmp_path, [agent]), {"theatre": asking(tmp_path / "ledger")}
    async with serve([calls("theatre_book", show="Hamlet")], mcp=mcp), over_stdio(place) as client:
        id_ = run_id(await call(client, "clerk", message="book", wait_seconds=0))
        await _until_asked(client, id_, Reports(), "How many seats for Hamlet?")
        stopping = await call(client, "stop_run", run_id=id_)
    assert text(stopping) == f"run {id_} is asked to stop; get_run tells how it ended"
    assert stopping.structured_content is not None
    assert (stopping.structured_content["status"], stopping.structured_content["waiting"]) == ("running", [])


async def test_the_files_of_a_run_come_with_its_answer(serve: Serve, settings: Settings, tmp_path: Path) -> None:
    @tool
    def draw(context: ToolContext) -> str:
        """Draw."""
        context.attach(PIXEL, name="dot.png", media_type="image/png")
        context.attach(b"a,b\n", name="sales of 7.csv", media_type="text/csv")
        context.attach(bytes(FILES_BYTES_MAX), name="large.bin")
        return "drawn"

    agent = AgentDefinition(name="clerk", tools=("draw",))
    place = Place.of(settings, tmp_path, [agent])
    async with serve([calls("draw"), say("see above")], [draw]), over_stdio(place) as client:
        result = await call(client, "clerk", message="draw")
        again = await call(client, "get_run", run_id=run_id(result))
    answer, picture, sheet, large = result.content
    assert answer == TextContent(text="see above")
    assert isinstance(picture, ImageContent)
    assert (picture.mime_type, b64decode(picture.data)) == ("image/png", PIXEL)
    assert isinstance(sheet, EmbeddedResource)
    assert isinstance(sheet.resource, BlobResourceContents)
    assert sheet.resource.uri == f"holdfast://runs/{run_id(result)}/attachments/2/sales%20of%207.csv"
    assert b64decode(sheet.resource.blob) == b"a,b\n"
    assert isinstance(large, TextContent)
    assert f"holdfast show {run_id(result)} --attachment 3 --out FILE" in large.text
    assert again.content == result.content


async def _until_asked(client: Client, id_: str, reports: Reports, message: str) -> tuple[dict[str, Any], str]:
    """Ask for a run until it waits for the answer to a question; return that, and the result's text."""
    while True:
        looked = await call(client, "get_run", run_id=id_, wait_seconds=1, reports=reports)
        handle: dict[str, Any] = looked.structured_content or {}
        for waiting in handle.get("waiting", []):
            if waiting["message"] == message:
                return waiting, text(looked)
