"""A conversation in the form of the Messages API: turns of users and assistants, made of blocks. Sends nothing.

The rules are those of https://docs.claude.com/en/api/messages: the first turn is a user's, all results of a step come
together in the one user turn behind it and before anything else in it, no text is blank, and signed thinking goes back
unchanged in its place.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, assert_never, cast
from urllib.parse import unquote_to_bytes

from holdfast.core.conversation.attachments import PDF_TYPE, framed_name, kind_of, not_shown, why_left_out
from holdfast.core.conversation.messages import (
    Content,
    FilePart,
    ImagePart,
    Message,
    Part,
    StoredFilePart,
    StoredImagePart,
    TextPart,
    ToolCall,
)
from holdfast.models.anthropic.answer_items import ANSWER_CALL, ANSWER_TEXT, blocks_of
from holdfast.runtime.files.file_types import framed_text, sent_text

CALL_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""The ids of calls that the API takes; other providers give ids with dots and colons."""

CALL_ID_DIGITS: Final = 32
"""How many hexadecimal digits of its digest replace another id."""

EMPTY: Final = "(empty)"
"""What stands for a message without words: the API refuses blank texts, and turns without blocks."""

CONTINUE: Final = "Continue."
"""The user's turn where the conversation has none: before an answer that comes first, and behind one that comes last.

The API refuses a conversation that begins with an answer, and newer models one that ends with an answer.
"""

DATA_URL: Final = re.compile(r"data:(image/[a-z0-9.+-]+)((?:;[^;,]*)*),(.*)", re.IGNORECASE | re.DOTALL)

Block = dict[str, Any]
Turn = dict[str, Any]


def system_texts(system_prompt: str, messages: Sequence[Message]) -> tuple[str, ...]:
    """Return the texts of the system prompt: the agent's, and those of the messages that precede the conversation."""
    leading = (each.text for each in messages[: _leading(messages)])
    return tuple(text for text in (system_prompt, *leading) if text.strip())


def turns(messages: Sequence[Message], route: str) -> list[Turn]:
    """Return the conversation behind the leading system messages as turns; items of other routes are left out."""
    result: list[Turn] = []
    for message in messages[_leading(messages) :]:
        role = "assistant" if message.role == "assistant" else "user"
        if not result and role == "assistant":
            result.append(_user_turn())
        blocks = _blocks(message, route)
        if result and result[-1]["role"] == role:
            result[-1]["content"] += blocks
        else:
            result.append({"role": role, "content": blocks})
    if not result or result[-1]["role"] == "assistant":
        result.append(_user_turn())
    return result


def begins_with_thinking(turn: Turn) -> bool:
    """Return whether a turn begins with thinking, as the API demands of one whose tool calls are being answered."""
    return turn["content"][0]["type"] in ("thinking", "redacted_thinking")


def _user_turn() -> Turn:
    return {"role": "user", "content": [_text(CONTINUE)]}


def _leading(messages: Sequence[Message]) -> int:
    return next((place for place, each in enumerate(messages) if each.role != "system"), len(messages))


def _blocks(message: Message, route: str) -> list[Block]:
    match message.role:
        case "assistant":
            return _answer_blocks(message, route) or [_text(EMPTY)]
        case "tool":
            return [_result_block(message)]
        case "user":
            return _content_blocks(message.content) or [_text(EMPTY)]
        case "system":  # only newer models take this role within a conversation
            return [_text(f"<system>\n{message.text}\n</system>")]
        case _:
            assert_never(message.role)


def _result_block(message: Message) -> Block:
    block: Block = {"type": "tool_result", "tool_use_id": legal_call_id(message.tool_call_id or "")}
    content = _content_blocks(message.content)
    return {**block, "content": content} if content else block


def _answer_blocks(message: Message, route: str) -> list[Block]:
    """Return the blocks of an answer: as they came, or, where a hook has changed it, the signed ones first."""
    came = blocks_of(message.items, route)
    text, calls = message.text, [_call_block(call) for call in message.tool_calls]
    if not _describes(came, text, len(calls)):
        signed = [block for block in came if "type" in block and block["type"] != "text"]
        return [*signed, *_texts(text), *calls]
    blocks: list[Block] = []
    for block in came:
        kind: object = block.get("type")
        if kind is not None:
            blocks.append(block)
            text = text[len(block["text"]) :] if kind == "text" else text
        elif ANSWER_CALL in block:
            blocks.append(calls[cast("int", block[ANSWER_CALL])])
        else:
            length = cast("int", block[ANSWER_TEXT])
            blocks += _texts(text[:length])
            text = text[length:]
    return blocks


def _describes(came: Iterable[Block], text: str, calls_count: int) -> bool:
    """Return whether the blocks that came have places for exactly this text and these calls."""
    chars, calls = 0, list[int]()
    for block in came:
        if block.get("type") == "text":
            chars += len(block["text"])
        elif "type" not in block and ANSWER_CALL in block:
            calls.append(cast("int", block[ANSWER_CALL]))
        elif "type" not in block:
            chars += block[ANSWER_TEXT]
    return chars == len(text) and calls == list(range(calls_count))


def _call_block(call: ToolCall) -> Block:
    return {"type": "tool_use", "id": legal_call_id(call.id), "name": call.name, "input": dict(call.arguments)}


def legal_call_id(given: str) -> str:
    """Return an id that the API takes: the call's own, else one that follows from it."""
    if CALL_ID.fullmatch(given):
        return given
    return "call_" + hashlib.sha256(given.encode()).hexdigest()[:CALL_ID_DIGITS]


def _content_blocks(content: Content) -> list[Block]:
    if isinstance(content, str):
        return _texts(content)
    return [block for part in content for block in _part_blocks(part)]


def _part_blocks(part: Part) -> list[Block]:
    match part:
        case TextPart():
            return _texts(part.text)
        case ImagePart():
            return [{"type": "image", "source": _source(part.url)}]
        case FilePart():
            return _file_blocks(part)
        case StoredImagePart() | StoredFilePart():  # whoever calls a model without a store
            return _texts(part.attachment.line)
        case _:
            assert_never(part)


def _file_blocks(part: FilePart) -> list[Block]:
    """Return a PDF or a text as a document; words in place of a sound, which the API does not take."""
    kind, name = kind_of(part.media_type), framed_name(part.name)
    if kind == "pdf":
        source = {"type": "base64", "media_type": PDF_TYPE, "data": part.data}
        return [{"type": "document", "source": source, "title": name}]
    if kind == "text":
        text = sent_text(base64.b64decode(part.data))
        if not text.strip():
            return _texts(framed_text(part))
        words = {"type": "text", "media_type": "text/plain", "data": text}
        return [{"type": "document", "source": words, "title": name}]
    return _texts(not_shown(part.name, why_left_out("audio")))


def _source(url: str) -> dict[str, str]:
    """Return where a picture is: at a web address, or here."""
    inline = DATA_URL.fullmatch(url)
    if inline is None:
        return {"type": "url", "url": url}
    kind, parameters, data = inline.groups()
    if ";base64" not in parameters.lower():
        data = base64.b64encode(unquote_to_bytes(data)).decode()
    return {"type": "base64", "media_type": kind.lower(), "data": data}


def _text(text: str) -> Block:
    return {"type": "text", "text": text}


def _texts(text: str) -> list[Block]:
    return [_text(text)] if text.strip() else []
