"""Files that come with users' messages, on the real server and in-process: stored, named, sent, refused."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from holdfast import LLM, AgentDefinition, ToolContext, tool
from holdfast.client import Holdfast, Settings
from holdfast.core.agent.policies import ContextPolicy
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.errors import ExecutionFailed, InvalidInput, StorageFailed
from holdfast.local import LocalDriver
from holdfast.models import OpenAIChat, ProviderSettings
from holdfast.models.route_file import routes_from
from holdfast.models.routed_model import RoutedModel
from holdfast.storage.records import Records
from holdfast.testing.anthropic_server import FakeAnthropic
from holdfast.testing.script import call, say
from holdfast.testing.scripted_model import ScriptedModel
from holdfast.view.markdown import to_markdown
from holdfast.view.report import read_report
from tests.pictures import PNG
from tests.sent_files import MP3, WAV, pdf
from tests.serving import Serve
from tests.workflows.histories import history_of, replayed, written
from workers import make_worker

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(180)]

PAPER = pdf(2, "not for the history")
NOTES = b"not,for,the,history\n" * 1_000
AGENT = AgentDefinition(name="reader")
READING = AgentDefinition(name="reader", tools="all", context=ContextPolicy(files=True))


@tool
async def fetch(context: ToolContext) -> str:
    """Fetch the papers."""
    context.attach(PAPER, name="paper.pdf")
    context.attach(b"seven", name="notes.txt")
    context.attach(MP3, name="song.mp3")
    context.attach(b"\0", name="data.bin")
    return "fetched"


def parts_of(message: dict[str, Any]) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = message["content"]
    return content


async def test_a_run_reads_the_files_of_its_question_and_no_history_has_their_bytes(
    serve: Serve, tmp_path: Path
) -> None:
    (tmp_path / "paper.pdf").write_bytes(PAPER)
    async with serve([say("read")], []) as served:
        notes = await served.client.attach(NOTES, name="notes.csv")
        run = await served.client.run(
            AGENT, "Compare them.", attachments=[tmp_path / "paper.pdf", notes, PNG, WAV, notes]
        )
        id_ = run.state.running.execution_id
        history = written((await history_of(served.client, id_)).events)
        await replayed(served.client, id_)
        [request] = served.endpoint.requests
        report = to_markdown(await read_report(served.client, id_))
        assert await served.client.attachment(run.state.messages[0].files[0]) == PAPER
    [message] = (request.body or {})["messages"]
    question, *files = parts_of(message)
    assert question == {"type": "text", "text": "Compare them."}
    line, paper, text, png_line, picture, wav_line, sound, again = files
    assert line["text"] == f"[attached: paper.pdf, application/pdf, {len(PAPER)} bytes]"
    encoded = base64.b64encode(PAPER).decode()
    assert paper["file"] == {"filename": "paper.pdf", "file_data": f"data:application/pdf;base64,{encoded}"}
    assert text["text"].splitlines()[0] == (f'<file-{sha256(NOTES).hexdigest()[:16]} name="notes.csv" type="text/csv">')
    assert NOTES.decode() in text["text"]
    assert again == text
    assert png_line["text"] == f"[attached: file.png, image/png, {len(PNG)} bytes]"
    assert picture["image_url"]["url"].startswith("data:image/png;base64,")
    assert wav_line["text"].startswith("[attached: file.wav, audio/wav")
    assert sound["input_audio"] == {"data": base64.b64encode(WAV).decode(), "format": "wav"}
    for secret in (b"not for the history", b"not,for,the,history", base64.b64encode(PAPER)[:40]):
        assert secret not in history
    assert b"paper.pdf" in history
    assert sha256(PAPER).hexdigest().encode() in history
    [kept] = [each for each in run.state.messages[0].files if each.name == "paper.pdf"]
    assert (kept.media_type, kept.size, kept.pages) == ("application/pdf", len(PAPER), 2)
    assert run.state.messages[0].shown_text.splitlines()[:3] == [
        "Compare them.",
        f"[attached: paper.pdf, application/pdf, {len(PAPER)} bytes]",
        "[attached: notes.csv, text/csv, 20 KB]",
    ]
    assert "[attached: paper.pdf," in report

    model = ScriptedModel([say("read")])
    driver = LocalDriver(AGENT, model=model)
    here = await driver.execute("Compare them.", attachments=[tmp_path / "paper.pdf", notes, PNG, WAV, notes])
    assert [each.files for each in here.messages] == [each.files for each in run.state.messages]
    [sent] = model.requests[0].messages
    assert sent.text.endswith("[file notes.csv: the record store does not have it any more]"), "it was stored elsewhere"


@pytest.mark.slow
async def test_messages_of_a_session_bring_files_and_the_model_keeps_seeing_them(serve: Serve) -> None:
    async with serve([say("one"), say("two")], []) as served:
        agent = served.client.agent(definition=AGENT)
        first = await agent.ask("Read this.", attachments=[PAPER])
        second = await agent.ask("And this.", attachments=[PNG])
        bodies = [each.body or {} for each in served.endpoint.requests]
        await replayed(served.client, second.state.running.execution_id)
    assert (first.output, second.output) == ("one", "two")
    kinds = [[part["type"] for part in parts_of(bodies[1]["messages"][place])] for place in (0, 2)]
    assert kinds == [["text", "text", "file"], ["text", "text", "image_url"]]


@pytest.mark.slow
async def test_a_message_to_a_run_under_way_brings_files(serve: Serve) -> None:
    begun, told = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait for a message."""
        begun.set()
        await told.wait()
        return "waited"

    async with serve([call("wait"), say("both")], [wait]) as served:
        id_ = await served.client.start(AGENT.model_copy(update={"tools": "all"}), "Wait.")
        await begun.wait()
        assert await served.client.message(id_, "And this.", attachments=[PAPER])
        told.set()
        state = await served.client.result(id_)
        await replayed(served.client, id_)
        last = (served.endpoint.requests[-1].body or {})["messages"][-1]
    assert [part["type"] for part in parts_of(last)] == ["text", "text", "file"]
    assert state.final_response == "both"


async def test_the_files_of_results_are_shown_where_the_agent_says_so(serve: Serve) -> None:
    script = [call("fetch"), say("seen")]
    async with serve(script, [fetch]) as served:
        run = await served.client.run(READING, "fetch")
        blind = await served.client.run(AGENT.model_copy(update={"tools": "all"}), "fetch")
        await replayed(served.client, run.state.running.execution_id)
        bodies = [each.body or {} for each in served.endpoint.requests]
    shown = bodies[1]["messages"]
    assert [each["role"] for each in shown] == ["user", "assistant", "tool", "user"]
    head, paper, notes, song = parts_of(shown[-1])
    assert head["text"] == "[the files of the results above, in this order: paper.pdf, notes.txt, song.mp3]"
    assert (paper["type"], song["type"]) == ("file", "input_audio")
    assert "seven" in notes["text"]
    assert [each["role"] for each in bodies[3]["messages"]] == ["user", "assistant", "tool"]
    assert blind.output == run.output == "seen"
    assert [each.name for each in run.state.steps[0].files] == ["paper.pdf", "notes.txt", "song.mp3"]
    assert run.state.messages[-2].shows_results
    here = await LocalDriver(READING, model=ScriptedModel(script), tools=[fetch]).execute("fetch")
    assert [each.content for each in here.messages] == [each.content for each in run.state.messages]


@asynccontextmanager
async def deaf(settings: Settings, endpoint: FakeAnthropic) -> AsyncGenerator[tuple[Holdfast, RoutedModel]]:
    """A worker whose route `claude` takes no sounds, and whose route `blind` takes texts alone."""
    route: dict[str, Any] = {"api": "anthropic", "model": "m", "base_url": endpoint.base_url}
    table = {"claude": route, "blind": {**route, "capabilities": ["stream", "tools"]}}
    model = RoutedModel(OpenAIChat(ProviderSettings()), routes_from(table, {}), {})
    client = await Holdfast.connect(settings)
    try:
        async with make_worker(client.temporal, settings, Toolset((fetch,)), model):
            yield client, model
    finally:
        await model.close()


async def test_a_model_that_does_not_take_a_kind_refuses_the_run_before_it_is_asked(settings: Settings) -> None:
    hearing, seeing = "agent 'reader': the model 'claude' takes no sounds", "agent 'reader': the model 'blind' takes no"
    claude = AgentDefinition(name="reader", llm=LLM(model="claude"))
    looking = AgentDefinition(name="reader", llm=LLM(model="blind"), context=ContextPolicy(images=True))
    async with FakeAnthropic([say("never")]) as endpoint, deaf(settings, endpoint) as (client, model):
        with pytest.raises(ExecutionFailed, match=hearing):
            await client.run(claude, "Listen.", attachments=[WAV])
        with pytest.raises(ExecutionFailed, match=f"{seeing} pictures"):
            await client.run(looking, "Look.")
        with pytest.raises(InvalidInput, match=hearing):
            await LocalDriver(claude, model=model).execute("Listen.", attachments=[WAV])
        with pytest.raises(InvalidInput, match=f"{seeing} pictures"):
            LocalDriver(looking, model=model)
        assert not endpoint.requests


async def test_a_session_goes_on_after_a_file_that_its_model_does_not_take(settings: Settings) -> None:
    claude = AgentDefinition(name="reader", llm=LLM(model="claude"), tools="all", context=ContextPolicy(files=True))
    script = [call("fetch"), say("I read the rest.")]
    async with FakeAnthropic(script) as endpoint, deaf(settings, endpoint) as (client, _):
        agent = client.agent(definition=claude)
        with pytest.raises(ExecutionFailed, match="takes no sounds"):
            await agent.ask("Listen.", attachments=[WAV, PAPER])
        answer = await agent.ask("Then read.")
        sent = [json.dumps((each.body or {})["messages"]) for each in endpoint.requests]
    assert answer.output == "I read the rest."
    left_out = "left out, because this model takes no sounds]"
    assert f"[file file.wav: {left_out}" in sent[0], "nothing of the message is lost"
    assert '"title": "file.pdf"' in sent[0]
    assert f"[file song.mp3: {left_out}" in sent[1]


async def test_what_cannot_come_with_a_message_is_refused_before_anything_is_sent(serve: Serve, tmp_path: Path) -> None:
    async with serve([say("never")], []) as served:
        for bad, problem in ((tmp_path, "Is a directory"), (b"", "is empty"), (tmp_path / "x.pdf", "No such file")):
            with pytest.raises(InvalidInput, match=problem):
                await served.client.start(AGENT, "Read.", attachments=[PAPER, bad])
        with pytest.raises(InvalidInput, match="the question is empty"):
            await served.client.start(AGENT, "", attachments=[PAPER])
        done = await LocalDriver(AGENT, model=ScriptedModel([say("hello")])).execute("Hello.")
        with pytest.raises(InvalidInput, match="a state is no question"):
            await LocalDriver(AGENT, model=ScriptedModel([])).execute(done, attachments=[PAPER])
        assert not served.endpoint.requests


async def test_a_store_that_is_away_for_a_moment_is_asked_again_in_both_drivers(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, failed = Records.read_attachment, list[str]()

    async def read_at_the_second_time(self: Records, digest: str) -> bytes:
        if len(failed) % 2 == 0:
            failed.append(digest)
            raise StorageFailed("the bucket is away")
        failed.append("")
        return await read(self, digest)

    monkeypatch.setattr(Records, "read_attachment", read_at_the_second_time)
    async with serve([say("read")], []) as served:
        run = await served.client.run(AGENT, "Read it.", attachments=[PAPER])
    model = ScriptedModel([say("read")])
    here = await LocalDriver(AGENT, model=model, records=Records.in_folder(tmp_path)).execute(
        "Read it.", attachments=[PAPER]
    )
    assert (run.output, here.final_response, len(model.requests)) == ("read", "read", 1)
    assert failed == [sha256(PAPER).hexdigest(), ""] * 2, "it was away once for each"
    assert here.usage == run.state.usage, "it cost nothing"
    hasty = AGENT.model_copy(update={"model_patience_seconds": 0})
    given_up = await LocalDriver(hasty, model=model, records=Records.in_folder(tmp_path)).execute(
        "Read it.", attachments=[PAPER]
    )
    assert [each.type for each in given_up.errors] == ["StorageFailed"]
    assert len(model.requests) == 1
