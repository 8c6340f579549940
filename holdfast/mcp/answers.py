"""`McpAnswer`: what a tool of an MCP server answered, as the text that a model reads and the files it mentions."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)
from pydantic import JsonValue
from pydantic_core import to_json

from holdfast.core.base.bounds import TOOL_RESULT_BYTES_MAX
from holdfast.core.base.json_parsing import read_json
from holdfast.core.base.safe_text import encodable
from holdfast.core.conversation.attachments import (
    UNKNOWN_MEDIA_TYPE,
    attached_line,
    legal_file_name,
    legal_media_type,
)
from holdfast.mcp.elicitation import ServerQuestions
from holdfast.runtime.files.attachments import ending_of

CHECKED_BYTES_MAX: Final = TOOL_RESULT_BYTES_MAX
"""The largest structured answer that is checked, as JSON: no larger one is kept. 3 MB took 17 s on a busy worker."""

URI_CHARS_MAX: Final = 500
"""How much of an address is shown."""


@dataclass(frozen=True, slots=True)
class Media:
    """A part that is no text: a picture, a sound, a file. Its `name` is ours, or the end of its address."""

    name: str
    media_type: str
    data: bytes

    @property
    def line(self) -> str:
        """The line that stands in its place in the text."""
        return attached_line(self.name, self.media_type, len(self.data))


@dataclass(frozen=True, slots=True)
class McpAnswer:
    """A tool's answer: `text` for the model, `value` as the server structured it, and `media` that `text` mentions.

    `is_error` is what the tool itself says. `structured` tells a `value` of null from none. With `questions` the call
    has not ended: the server asks a person for something first. `process` is the id of the server's process, where that
    can remember something.
    """

    text: str
    value: JsonValue = None
    structured: bool = False
    is_error: bool = False
    media: tuple[Media, ...] = ()
    questions: ServerQuestions | None = None
    process: str = ""

    def with_warning(self, output: Mapping[str, Any] | None) -> McpAnswer:
        """Return the answer, with a warning in its text where it does not fit the schema `output`.

        It is never asked again for that: the tool has had its effect. One over CHECKED_BYTES_MAX is not checked, and
        the warning says so. Takes seconds for large answers: run it in a thread.
        """
        if output is None or self.is_error or self.questions is not None:
            return self
        if self.structured and (size := len(to_json(self.value, inf_nan_mode="strings"))) > CHECKED_BYTES_MAX:
            unchecked = f"the structured answer has {size:,} bytes, and only one of at most {CHECKED_BYTES_MAX:,}"
            return self.with_note(f"[warning: {unchecked} is checked against the schema that its server declares]")
        from holdfast.runtime.json_schema import schema_problems  # noqa: PLC0415  # 0.1 s that only its users pay

        problems = ["there is no structured answer"]
        if self.structured:
            problems = schema_problems(self.value, output, foreign=True)
        if not problems:
            return self
        return self.with_note(
            f"[warning: the answer does not fit the schema that its server declares: {'; '.join(problems)}]"
        )

    def with_note(self, note: str) -> McpAnswer:
        """Return the answer with a line of ours in its text."""
        return replace(self, text=f"{self.text}\n{note}".lstrip())

    @property
    def is_value(self) -> bool:
        """Whether the text spells the structured value in JSON; the SDKs put what is no object under `result`."""
        try:
            return self.structured and self._says(read_json(self.text))
        except ValueError:
            return False

    @property
    def beyond_text(self) -> str | None:
        """The JSON of the structured value, where the text says something else."""
        if not self.structured or self.is_value or self._says(self.text):
            return None
        return encodable(to_json(self.value, inf_nan_mode="strings").decode())

    def _says(self, value: JsonValue) -> bool:
        return value in (self.value, *([self.value.get("result")] if isinstance(self.value, dict) else []))


def answer_of(result: CallToolResult) -> McpAnswer:
    """Return what `result` says; a structured answer without any text is shown as JSON."""
    media: list[Media] = []
    parts = [_part(each, media) for each in result.content]
    structured = "structured_content" in result.model_fields_set
    value: JsonValue = result.structured_content
    if structured and not parts:
        parts = [to_json(value, inf_nan_mode="strings").decode()]
    text = encodable("\n".join(part for part in parts if part))
    return McpAnswer(text, value, structured, result.is_error, tuple(media))


def _part(part: ContentBlock, media: list[Media]) -> str:
    match part:
        case TextContent():
            return part.text
        case ImageContent():
            return _medium("image", part.mime_type, part.data, media, "")
        case AudioContent():
            return _medium("audio", part.mime_type, part.data, media, "")
        case ResourceLink():
            about = f": {part.description}" if part.description else ""
            return f"[resource {part.name!r} at {part.uri[:URI_CHARS_MAX]}{about}]"
        case EmbeddedResource():
            inner = part.resource
            if isinstance(inner, BlobResourceContents):
                return _medium("file", inner.mime_type or UNKNOWN_MEDIA_TYPE, inner.blob, media, str(inner.uri))
            return inner.text


def _medium(kind: str, media_type: str, data: str, media: list[Media], address: str) -> str:
    media_type = legal_media_type(media_type)
    try:
        decoded = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return f"[{kind}, {media_type}: its data is damaged]"
    name = legal_file_name(address) or f"{kind}-{len(media) + 1}{ending_of(media_type)}"
    part = Media(name, media_type, decoded)
    media.append(part)
    return part.line
