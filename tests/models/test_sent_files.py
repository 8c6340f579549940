"""Files in a message, as each API is sent them over real HTTP by its vendor's client, checked by the vendor's types."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from anthropic.types import MessageParam
from openai.types.chat import ChatCompletionMessageParam
from openai.types.responses import ResponseInputItemParam
from pydantic import TypeAdapter

from holdfast import LLM
from holdfast.core.agent.model import Model, ModelRequest, file_kinds_of, problem_with_files
from holdfast.core.base.errors import ModelFailure
from holdfast.core.conversation.messages import FilePart, Message, TextPart
from holdfast.models import Anthropic, OpenAIChat, OpenAIResponses, ProviderSettings
from holdfast.models.model_apis import ANTHROPIC, OPENAI, OPENAI_RESPONSES
from holdfast.models.model_choice import EnvironmentModel
from holdfast.models.route_file import routes_from
from holdfast.models.routed_model import RoutedModel
from holdfast.testing import say
from holdfast.testing.anthropic_server import FakeAnthropic
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.responses_server import FakeResponses
from tests.sent_files import MP3, WAV, pdf


def part(data: bytes, name: str, media_type: str) -> FilePart:
    return FilePart(name=name, media_type=media_type, data=base64.b64encode(data).decode())


PAPER = part(pdf(), "paper", "application/pdf")
NOTES = part(b"a,b\n", "notes.csv", "text/csv")
SOUND = part(WAV, "a.wav", "audio/x-wav")
SONG = part(MP3, "a.mp3", "audio/mpeg")
BLANK = part(b"\n", "blank.txt", "text/plain")
FRAMED = '<file-5be08c9684a1d25e name="notes.csv" type="text/csv">\na,b\n\n</file-5be08c9684a1d25e>'
LEFT_OUT = "[file a.wav: left out, because this model takes no sounds]"

Fake = type[FakeOpenAI] | type[FakeResponses] | type[FakeAnthropic]


def model_at(fake: Fake, url: str) -> Model:
    """Return the model that speaks the API of the fake at that address."""
    if fake is FakeOpenAI:
        return OpenAIChat(ProviderSettings(base_url=url, api_key="k", model="m"))
    if fake is FakeResponses:
        return OpenAIResponses(ProviderSettings(base_url=url, api_key="k", model="m", api=OPENAI_RESPONSES))
    return Anthropic(ProviderSettings(base_url=url, api_key="k", model="m", api=ANTHROPIC))


async def sent(fake: Fake, *parts: FilePart) -> dict[str, Any]:
    """Return the body that the API's fake, which is strict, was sent."""
    async with fake([say("seen")]) as endpoint:
        model = model_at(fake, endpoint.base_url)
        try:
            message = Message(role="user", content=(TextPart(text="Look."), *parts))
            answer = await model(ModelRequest(LLM(), "", (message,), (), 100))
        finally:
            await model.close()
        assert answer.text == "seen"
        return endpoint.requests[-1].body or {}


async def test_chat_completions_take_pdfs_as_files_sounds_as_audio_and_texts_in_tags() -> None:
    [message] = (await sent(FakeOpenAI, PAPER, NOTES, SOUND, SONG))["messages"]
    TypeAdapter[Any](ChatCompletionMessageParam).validate_python(message, strict=False)
    assert message["content"] == [
        {"type": "text", "text": "Look."},
        {
            "type": "file",
            "file": {"filename": "paper.pdf", "file_data": f"data:application/pdf;base64,{PAPER.data}"},
        },
        {"type": "text", "text": FRAMED},
        {"type": "input_audio", "input_audio": {"data": SOUND.data, "format": "wav"}},
        {"type": "input_audio", "input_audio": {"data": SONG.data, "format": "mp3"}},
    ]


async def test_responses_take_pdfs_as_input_files_texts_in_tags_and_words_for_sounds() -> None:
    [message] = (await sent(FakeResponses, PAPER, NOTES, SOUND))["input"]
    TypeAdapter[Any](ResponseInputItemParam).validate_python(message)
    assert message["content"] == [
        {"type": "input_text", "text": "Look."},
        {
            "type": "input_file",
            "filename": "paper.pdf",
            "file_data": f"data:application/pdf;base64,{PAPER.data}",
        },
        {"type": "input_text", "text": FRAMED},
        {"type": "input_text", "text": LEFT_OUT},
    ]


async def test_anthropic_takes_pdfs_and_texts_as_documents_and_words_for_sounds() -> None:
    [message] = (await sent(FakeAnthropic, PAPER, NOTES, BLANK, SOUND))["messages"]
    TypeAdapter[Any](MessageParam).validate_python(message)
    first, paper, notes, blank, sound = message["content"]
    assert first["text"] == "Look."
    assert paper["source"] == {"type": "base64", "media_type": "application/pdf", "data": PAPER.data}
    assert notes["source"] == {"type": "text", "media_type": "text/plain", "data": "a,b\n"}
    assert (paper["title"], notes["title"]) == ("paper", "notes.csv")
    assert blank["text"].startswith("<file-"), "the API refuses blank documents"
    assert sound["text"] == LEFT_OUT


@pytest.mark.parametrize("fake", [FakeOpenAI, FakeResponses, FakeAnthropic])
async def test_the_fakes_refuse_what_is_no_pdf_as_their_vendors_do(fake: Fake) -> None:
    with pytest.raises(ModelFailure) as refused:
        await sent(fake, part(b"no pdf", "a.pdf", "application/pdf"))
    assert "The PDF specified was not valid" in str(refused.value)
    broken = PAPER.model_copy(update={"data": "=broken="})
    with pytest.raises(ModelFailure, match="Invalid base64 data"):
        await sent(fake, broken)


async def test_the_fake_of_chat_completions_refuses_what_is_no_sound() -> None:
    with pytest.raises(ModelFailure, match="could not be decoded"):
        await sent(FakeOpenAI, part(MP3, "a.wav", "audio/wav"))


def test_a_route_says_what_its_model_takes_and_its_api_what_none_does() -> None:
    table: dict[str, dict[str, Any]] = {
        "gpt": {"api": "openai_chat", "model": "m", "base_url": "http://localhost:1/v1"},
        "blind": {
            "api": "openai_chat",
            "model": "m",
            "base_url": "http://localhost:1/v1",
            "capabilities": ["stream", "tools", "pdf"],
        },
        "claude": {"api": "anthropic", "model": "m", "base_url": "http://localhost:1"},
    }
    model = RoutedModel(OpenAIChat(ProviderSettings()), routes_from(table, {}), {})
    kinds = {name: {*file_kinds_of(model, LLM(model=name))} for name in table}
    assert kinds["gpt"] == {"images", "pdf", "audio", "text"} == {*OPENAI.files}
    assert kinds["blind"] == {"pdf", "text"}
    assert kinds["claude"] == {"images", "pdf", "text"} == {*OPENAI_RESPONSES.files}
    assert file_kinds_of(model, LLM()) == OPENAI.files
    assert problem_with_files(model, LLM(model="gpt"), ("images", "audio")) == ""
    assert problem_with_files(model, LLM(model="blind"), ("audio", "text", "images")) == (
        "the model 'blind' takes no sounds and no pictures; leave out such files, or use another model "
        "(it takes: PDFs, texts)"
    )
    falling = LLM.model_validate({"model": "gpt", "fallback": ["claude"]})
    assert problem_with_files(model, falling, ("audio",)).startswith("the model 'claude' takes no sounds")


def test_a_model_of_your_own_is_sent_all_files_whatever_it_says() -> None:
    class Broken:
        def file_kinds(self, llm: LLM) -> list[str]:
            raise RuntimeError(llm)

    assert {*file_kinds_of(Broken(), LLM())} == {"images", "pdf", "audio", "text"}
    assert {*file_kinds_of(object(), LLM())} == {"images", "pdf", "audio", "text"}
    assert {*EnvironmentModel("anthropic").file_kinds(LLM())} == {"images", "pdf", "text"}
