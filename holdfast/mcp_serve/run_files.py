"""The files that a run's tools have attached, as content of its answer."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

from mcp_types import BlobResourceContents, ContentBlock, EmbeddedResource, ImageContent, TextContent

from holdfast.client import Holdfast
from holdfast.core.base.errors import HoldfastError
from holdfast.core.conversation.attachments import Attachment

FILES_BYTES_MAX: Final = 2 * 1024 * 1024
"""The most bytes of files in one answer: a third more as base64, and clients show their models all of it."""

FILES_MAX: Final = 32
"""The most files that an answer has or names."""


async def file_contents(client: Holdfast, run_id: str, files: Sequence[Attachment]) -> list[ContentBlock]:
    """Return the files as pictures and embedded resources, in order; those left out are named with how to get them."""
    contents: list[ContentBlock] = []
    left = FILES_BYTES_MAX
    for number, file in enumerate(files[:FILES_MAX], start=1):
        command = f"holdfast show {run_id} --attachment {number} --out FILE"
        if file.size > left:
            contents.append(TextContent(text=f"{file.line} is too large for this answer; to get it: {command}"))
            continue
        try:
            data = await client.attachment(file)
        except HoldfastError as error:
            contents.append(TextContent(text=f"{file.line} could not be read ({error.message}); to get it: {command}"))
            continue
        left -= len(data)
        contents.append(_content(f"holdfast://runs/{run_id}/attachments/{number}/", file, data))
    if len(files) > FILES_MAX:
        contents.append(TextContent(text=f"{len(files) - FILES_MAX:,} more files: holdfast show {run_id}"))
    return contents


def _content(folder: str, file: Attachment, data: bytes) -> ContentBlock:
    encoded = b64encode(data).decode()
    if file.is_picture:
        return ImageContent(data=encoded, mime_type=file.media_type)
    uri = folder + quote(file.name, safe="")
    return EmbeddedResource(resource=BlobResourceContents(uri=uri, mime_type=file.media_type, blob=encoded))
