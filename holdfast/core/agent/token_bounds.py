"""Upper bounds on the input tokens of a model call, before the provider counts them. Holds no limits.

No tokenizer is known here, so the bound stands on two things that hold for all of them. A token is at least one byte of
what is sent. And a conversation is read message by message: what was read in the call before is read again in as many
tokens, and only what was added since is new. So the next input is bounded by the last one, as the provider counted it,
and the bytes of what was added; a first one by the bytes of everything. Both cost what is new.

The bound leaves out what a compiler adds to its input: that is unknown before it has run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from holdfast.core.agent.model import ModelRequest
from holdfast.core.agent.policies import ResponseFormat, TextFormat
from holdfast.core.base.frozen import canonical
from holdfast.core.base.safe_text import clamped, json_size
from holdfast.core.conversation.attachments import AUDIO_TYPES, FileKind, kind_of
from holdfast.core.conversation.messages import FilePart, ImagePart, Message, Part, StoredFilePart, TextPart
from holdfast.core.tools.tool_traits import ToolSchema, ToolTraits

MESSAGE_OVERHEAD: Final = 48
"""Tokens that stand around a message's own words: its role, its end, and the tags of a tool's result.

ChatML takes 5, Llama 3 `<|start_header_id|>...<|eot_id|>` 5, Qwen's `<tool_response>` within ChatML 12, the keys of a
message that a template writes out as JSON at most 45.
"""

CALL_OVERHEAD: Final = 80
"""The same around one call: Hermes' and Qwen's `<tool_call>` take 15, the keys of a call written out as JSON 66."""

TOOL_OVERHEAD: Final = 80
"""The same around one tool's description, whose JSON is counted by itself."""

IMAGE_TOKENS_MAX: Final = 50_000
"""The most that one picture can count: 8 tiles of 5,667 tokens and 2,833 more (gpt-4o-mini, the dearest there is)."""

IMAGE_TOKENS_LOW_MAX: Final = 3_000
"""The same of a picture that is to be looked at with low detail."""

PDF_PAGE_TOKENS_MAX: Final = 30_000
"""The same of one page of a PDF, which models get as text and as a picture.

Anthropic counts up to 3,000 tokens of text in a page, and a picture beside it; the dearest picture of a page is 4 tiles
of gpt-4o-mini, 25,501 tokens.
"""

PDF_PAGES_UNKNOWN: Final = 100
"""How many pages a PDF counts as having whose pages could not be counted: what several APIs take at most."""

AUDIO_TOKENS_SECOND: Final = 32
"""The same of one second of sound: Gemini's; OpenAI's models count 10."""

AUDIO_BYTES_SECOND_MIN: Final[Mapping[str, int]] = MappingProxyType({"wav": 4_000, "mp3": 1_000})
"""How few bytes a second of sound takes: 8,000 samples of 4 bits, and 8 kbit/s."""


def message_tokens(message: Message, tool_output_chars_max: int | None = None) -> int:
    """Return the most tokens that `message` can have in a model's input; tool results are cut to so many characters.

    Its words count as JSON, because templates exist that write them so.
    """
    content = message.content
    if isinstance(content, str):
        if tool_output_chars_max is not None and message.role == "tool":
            content = clamped(content, tool_output_chars_max)
        tokens = MESSAGE_OVERHEAD + json_size(content)
    else:
        tokens = MESSAGE_OVERHEAD + sum(_part_tokens(part) for part in content)
    if message.tool_call_id is not None:
        tokens += len(message.tool_call_id.encode())
    tokens += sum(item.sent_bytes for item in message.items)
    for call in message.tool_calls:
        tokens += CALL_OVERHEAD + len((call.id + call.name).encode()) + json_size(call.sent_arguments)
    return tokens


def messages_tokens(messages: Iterable[Message], tool_output_chars_max: int | None = None) -> int:
    """Return the same for all of `messages`."""
    return sum(message_tokens(message, tool_output_chars_max) for message in messages)


def opening_tokens(
    system_prompt: str,
    tools: Mapping[str, ToolTraits],
    own_tools: Iterable[ToolSchema],
    response_format: ResponseFormat,
) -> int:
    """Return the most tokens of what precedes the conversation: the prompt, the tools, the response format.

    `own_tools` are those of the loop itself.
    """
    tokens = MESSAGE_OVERHEAD + json_size(system_prompt)
    tokens += tools_tokens(tools, own_tools)
    if not isinstance(response_format, TextFormat):
        tokens += TOOL_OVERHEAD + len(canonical(response_format))
    return tokens


def tools_tokens(
    tools: Mapping[str, ToolTraits], own_tools: Iterable[ToolSchema], without: Collection[str] = ()
) -> int:
    """Return the most tokens of the descriptions of an agent's tools, but for those named in `without`."""
    shown = (each for name, each in tools.items() if not each.deferred and name not in without)
    own = (schema for schema in own_tools if schema.name not in without)
    tokens = sum(TOOL_OVERHEAD + traits.described_bytes for traits in shown)
    return tokens + sum(TOOL_OVERHEAD + len(canonical(schema)) for schema in own)


def request_tokens(request: ModelRequest) -> int:
    """Return the most tokens that the input of one request can have, counted from what is sent."""
    tokens = MESSAGE_OVERHEAD + json_size(request.system_prompt) + messages_tokens(request.messages)
    tokens += sum(TOOL_OVERHEAD + len(canonical(tool)) for tool in request.tools)
    if not isinstance(request.response_format, TextFormat):
        tokens += TOOL_OVERHEAD + len(canonical(request.response_format))
    return tokens


def _part_tokens(part: Part) -> int:
    if isinstance(part, TextPart):
        return MESSAGE_OVERHEAD + json_size(part.text)
    if isinstance(part, FilePart):
        return _file_tokens(part.name, part.media_type, len(part.data) * 3 // 4, part.pages)
    if isinstance(part, StoredFilePart):
        file = part.attachment
        return _file_tokens(file.name, file.media_type, file.size, file.pages)
    return IMAGE_TOKENS_LOW_MAX if isinstance(part, ImagePart) and part.detail == "low" else IMAGE_TOKENS_MAX


def _file_tokens(name: str, media_type: str, size: int, pages: int | None) -> int:
    """Return the most tokens of a file of `size` bytes, with the line or the tags around it."""
    around = 2 * MESSAGE_OVERHEAD + 2 * json_size(name) + len(media_type)
    kind: FileKind | None = kind_of(media_type)
    if kind == "images":
        return around + IMAGE_TOKENS_MAX
    if kind == "pdf":
        return around + PDF_PAGE_TOKENS_MAX * (PDF_PAGES_UNKNOWN if pages is None else pages)
    if kind == "audio":
        return around + AUDIO_TOKENS_SECOND * (1 + size // AUDIO_BYTES_SECOND_MIN[AUDIO_TYPES[media_type]])
    return around + 2 * size  # as JSON a byte of text is two at most: control characters are not sent
