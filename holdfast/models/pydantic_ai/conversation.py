"""A conversation in Pydantic AI's terms: requests and responses, made of parts. Sends nothing.

Each provider's rules are Pydantic AI's business (`Model.prepare_messages`, and its clients). Two that differ between
providers are kept for all: a conversation begins and ends with a user or a tool, and no message is blank.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Final, assert_never

from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    SystemPromptPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)

from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.frozen import replace
from holdfast.core.conversation.attachments import AUDIO_TYPES, PDF_TYPE, kind_of
from holdfast.core.conversation.messages import (
    Content,
    FilePart,
    ImagePart,
    Message,
    Part,
    StoredFilePart,
    StoredImagePart,
    TextPart,
)
from holdfast.models.anthropic.conversation import legal_call_id
from holdfast.models.pydantic_ai.answer_parts import EMPTY, answer_of
from holdfast.runtime.files.file_types import framed_text, pdf_name

MEDIA_TYPES: Final = {"audio/mp3": "audio/mpeg"}
"""Pydantic AI's names of the types of sounds, where they are others."""

STRICT_CALL_IDS: Final = frozenset({"anthropic", "bedrock"})
"""Pydantic AI's names of the providers that refuse ids of calls with dots or colons, as other providers give them."""

CONTINUE: Final = "Continue."
"""The user's words where there are none: before an answer that comes first, and behind one that comes last."""


def history(
    messages: Sequence[Message], system_prompt: str, *, route: str, system: str, url: str | None
) -> list[ModelMessage]:
    """Return the conversation; an answer has its own items where this `route`'s provider `system` at `url` gave it.

    Raises InvalidInput for a picture that cannot be read.
    """
    result: list[ModelMessage] = []
    messages = [_with_legal_ids(each) for each in messages] if system in STRICT_CALL_IDS else messages
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    for message in messages:
        if message.role == "assistant":
            if not any(isinstance(part, UserPromptPart) for part in _last_parts(result)) and not _answered(result):
                _add(result, UserPromptPart(CONTINUE))
            result.append(answer_of(message, route=route, system=system, url=url))
        else:
            _add(result, _request_part(message, names))
    if not result or isinstance(result[-1], ModelResponse):
        _add(result, UserPromptPart(CONTINUE))
    last = result[-1]
    if isinstance(last, ModelRequest):
        last.instructions = system_prompt or None
    return result


def _with_legal_ids(message: Message) -> Message:
    """Return the message with ids of calls that all providers take, in calls and results alike."""
    if message.tool_call_id is not None:
        return replace(message, tool_call_id=legal_call_id(message.tool_call_id))
    calls = tuple(replace(call, id=legal_call_id(call.id)) for call in message.tool_calls)
    return message if calls == message.tool_calls else replace(message, tool_calls=calls)


def _answered(result: Sequence[ModelMessage]) -> bool:
    return any(isinstance(each, ModelResponse) for each in result)


def _last_parts(result: Sequence[ModelMessage]) -> Sequence[object]:
    return result[-1].parts if result else ()


def _add(result: list[ModelMessage], part: ModelRequestPart) -> None:
    """Add a part to the request that is being made, or to a new one behind an answer."""
    if result and isinstance(last := result[-1], ModelRequest):
        last.parts = [*last.parts, part]
    else:
        result.append(ModelRequest(parts=[part]))


def _request_part(message: Message, names: dict[str, str]) -> ModelRequestPart:
    match message.role:
        case "system":
            return SystemPromptPart(_words(message.text))
        case "user":
            return UserPromptPart(_content(message.content))
        case "tool":
            called = message.tool_call_id or ""
            name, words = names.get(called, ""), _words(message.text)
            return ToolReturnPart(tool_name=name, content=words, tool_call_id=called)
        case "assistant":
            raise AssertionError("an answer is no part of a request")
        case _:
            assert_never(message.role)


def _content(content: Content) -> str | list[UserContent]:
    if isinstance(content, str):
        return _words(content)
    return [_part(part) for part in content]


def _part(part: Part) -> UserContent:
    match part:
        case TextPart():
            return _words(part.text)
        case ImagePart():
            return _picture(part)
        case FilePart():
            return _file(part)
        case StoredImagePart() | StoredFilePart():  # whoever calls a model without a store
            return part.attachment.line
        case _:
            assert_never(part)


def _words(text: str) -> str:
    return text if text.strip() else EMPTY


def _file(part: FilePart) -> UserContent:
    """Return a PDF or a sound as Pydantic AI's file, a text within tags."""
    match kind_of(part.media_type):
        case "pdf":
            return BinaryContent(base64.b64decode(part.data), media_type=PDF_TYPE, identifier=pdf_name(part))
        case "audio":
            media_type = f"audio/{AUDIO_TYPES[part.media_type]}"
            return BinaryContent(base64.b64decode(part.data), media_type=MEDIA_TYPES.get(media_type, media_type))
        case _:
            return framed_text(part)


def _picture(part: ImagePart) -> UserContent:
    detail = {"detail": part.detail} if part.detail else None
    if not part.url.startswith("data:"):
        return ImageUrl(part.url, vendor_metadata=detail)
    try:
        picture = BinaryContent.from_data_uri(part.url)
    except ValueError as error:
        raise InvalidInput(f"a picture of the conversation is no `data:` address of base64: {error}") from None
    picture.vendor_metadata = detail
    return picture
