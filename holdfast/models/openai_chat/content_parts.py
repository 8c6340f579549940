"""A message's content in the form of chat completions. Sends nothing, and imports no client."""

from __future__ import annotations

from typing import Any, assert_never

from holdfast.core.conversation.attachments import AUDIO_TYPES, PDF_TYPE
from holdfast.core.conversation.messages import (
    Content,
    FilePart,
    ImagePart,
    Part,
    StoredFilePart,
    StoredImagePart,
    TextPart,
)
from holdfast.runtime.files.file_types import framed_text, pdf_name


def wire_content(content: Content) -> str | list[dict[str, Any]]:
    """Return a content as the API has it."""
    return content if isinstance(content, str) else [_wire_part(part) for part in content]


def _wire_part(part: Part) -> dict[str, Any]:
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case ImagePart():
            image = {"url": part.url} if part.detail is None else {"url": part.url, "detail": part.detail}
            return {"type": "image_url", "image_url": image}
        case FilePart():
            return _wire_file(part)
        case StoredImagePart() | StoredFilePart():  # whoever calls a model without a store
            return {"type": "text", "text": part.attachment.line}
        case _:
            assert_never(part)


def _wire_file(part: FilePart) -> dict[str, Any]:
    if part.media_type == PDF_TYPE:
        data = f"data:{PDF_TYPE};base64,{part.data}"
        return {"type": "file", "file": {"filename": pdf_name(part), "file_data": data}}
    if part.media_type in AUDIO_TYPES:
        return {"type": "input_audio", "input_audio": {"data": part.data, "format": AUDIO_TYPES[part.media_type]}}
    return {"type": "text", "text": framed_text(part)}
