"""What a file is, by its content: its media type, the pages of a PDF, the words of a text. Reads no files itself."""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Iterator, Mapping
from hashlib import sha256
from types import MappingProxyType
from typing import Final

from holdfast.core.conversation.attachments import (
    AUDIO_TYPES,
    PDF_PAGES_MAX,
    PDF_TYPE,
    PICTURE_TYPES,
    FileKind,
    framed_name,
    kind_of,
)
from holdfast.core.conversation.messages import FilePart

TEXT_ENDINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys((".txt", ".log", ".ini", ".cfg", ".conf", ".rst", ".adoc", ".diff", ".patch"), "text/plain"),
        **dict.fromkeys((".py", ".rb", ".go", ".rs", ".java", ".kt", ".swift", ".scala", ".pl", ".lua"), "text/plain"),
        **dict.fromkeys((".c", ".h", ".cc", ".cpp", ".hpp", ".cs", ".php", ".r", ".jl", ".ts", ".tsx"), "text/plain"),
        **dict.fromkeys((".jsx", ".sh", ".bash", ".ps1", ".sql", ".tex", ".proto", ".graphql", ".tf"), "text/plain"),
        ".md": "text/markdown",
        ".markdown": "text/markdown",
        ".csv": "text/csv",
        ".tsv": "text/tab-separated-values",
        ".htm": "text/html",
        ".html": "text/html",
        ".css": "text/css",
        ".js": "text/javascript",
        ".json": "application/json",
        ".jsonl": "application/jsonl",
        ".ndjson": "application/jsonl",
        ".xml": "application/xml",
        ".yaml": "application/yaml",
        ".yml": "application/yaml",
        ".toml": "application/toml",
    }
)
"""The media types of texts, which have no mark of their own, by how their names end."""

MARK_BYTES: Final = 16
"""How much of a file's beginning says what it is."""

TAG_DIGITS: Final = 16
"""How many hexadecimal digits of its digest the tags around a text have."""

MP3_SYNC: Final = 0xFF
MP3_LAYER_MASK: Final = 0xE6
MP3_LAYER_3: Final = 0xE2
"""An MP3 without an ID3 tag begins with a frame: eleven set bits, two bits for the version, `01` for layer III."""

UNPACKED_BYTES_MAX: Final = 8_000_000
"""How much of a PDF's packed objects is unpacked to count its pages; beyond it they count as unknown."""

DICTIONARY_BYTES: Final = 1_000
"""How far behind its type the data of a PDF's packed objects may begin."""

ID3_VERSIONS: Final = (2, 3, 4)
"""The versions of the tag before a sound; a text may begin with `ID3` as well."""

_PAGE: Final = re.compile(rb"/Type\s{0,16}/Page(?![A-Za-z])")
"""A page's object; `/Pages` is a node of the tree above them."""

_OBJECTS: Final = re.compile(rb"/Type\s{0,16}/ObjStm")
"""The type of an object stream: since PDF 1.5 objects, pages among them, may be packed together."""

_STREAM: Final = b"stream"
_STREAM_END: Final = b"endstream"
_LINE_END: Final = re.compile(rb"\r?\n")

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""Control characters that are neither a line end nor a tab."""


def marked_type(data: bytes) -> str | None:
    """Return the media type that the beginning of a file says: a picture's, a PDF's, a sound's; none for others."""
    head = data[:MARK_BYTES]
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if head.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if head.startswith(b"RIFF"):  # a container, of films as well
        return {b"WEBP": "image/webp", b"WAVE": "audio/wav"}.get(head[8:12])
    if head.startswith(b"%PDF-"):
        return PDF_TYPE
    is_frame = len(head) > 1 and head[0] == MP3_SYNC and head[1] & MP3_LAYER_MASK == MP3_LAYER_3
    is_tagged = head.startswith(b"ID3") and head[3:4] != b"" and head[3] in ID3_VERSIONS
    return "audio/mpeg" if is_frame or is_tagged else None


def is_what_it_says(data: bytes, media_type: str) -> bool:
    """Return whether a file's content is of its media type, as far as APIs look at it.

    They refuse the whole request for a picture, a PDF or a sound that is none.
    """
    kind, marked = kind_of(media_type), marked_type(data)
    if kind == "text":
        return text_of(data) is not None
    if kind == "audio":
        return marked is not None and AUDIO_TYPES.get(marked) == AUDIO_TYPES[media_type]
    return kind is not None and marked == media_type


def type_by_name(name: str) -> str | None:
    """Return the media type of a text by its name's ending; none for another ending."""
    return TEXT_ENDINGS.get("." + name.rpartition(".")[2].lower()) if "." in name else None


def kind_by_name(name: str) -> FileKind | None:
    """Return which kind of file a name claims by its ending; none for an ending that models do not take."""
    ending = name.rpartition(".")[2].lower()
    if ending == "jpg" or f"image/{ending}" in PICTURE_TYPES:
        return "images"
    if ending == "pdf":
        return "pdf"
    if ending in AUDIO_TYPES.values():
        return "audio"
    return "text" if type_by_name(name) else None


def text_of(data: bytes) -> str | None:
    """Return the words of a text file without a byte order mark; none for what is no UTF-8 text."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def sent_text(data: bytes) -> str:
    """Return the words of a text file as a model is sent them: `?` in place of control characters and broken bytes."""
    return _CONTROL.sub("?", data.decode("utf-8-sig", "replace").replace("\ufffd", "?"))


def framed_text(part: FilePart) -> str:
    """Return a text file as a model reads it: between tags that nothing in it can end, for they hold its digest."""
    data = base64.b64decode(part.data)
    tag = f"file-{sha256(data).hexdigest()[:TAG_DIGITS]}"
    opening = f'<{tag} name="{framed_name(part.name)}" type="{part.media_type}">'
    return f"{opening}\n{sent_text(data)}\n</{tag}>"


def pdf_name(part: FilePart) -> str:
    """Return a PDF's name as APIs want it: with its ending."""
    return part.name if part.name.lower().endswith(".pdf") else f"{part.name}.pdf"


def pages_of(data: bytes) -> int | None:
    """Return how many pages a PDF has, by the page objects in it; none where they cannot be counted.

    The time grows with the size alone, whatever is in it: a tool may have the file from anywhere.
    """
    count = sum(1 for _ in _PAGE.finditer(data))
    left = UNPACKED_BYTES_MAX
    for packed in _packed_objects(data):
        unpacked = _unpacked(packed, left)
        if unpacked is None:
            return None
        left -= len(unpacked)
        if left <= 0:
            return None
        count += sum(1 for _ in _PAGE.finditer(unpacked))
    return min(count, PDF_PAGES_MAX) or None


def _packed_objects(data: bytes) -> Iterator[bytes]:
    """Yield the packed streams of objects; none of them begins within the one before it."""
    place = 0
    while (match := _OBJECTS.search(data, place)) is not None:
        place = match.end()
        stream = data.find(_STREAM, place, place + DICTIONARY_BYTES)
        if stream < 0:
            continue
        place = stream + len(_STREAM)
        if (line_end := _LINE_END.match(data, place)) is not None:
            place = line_end.end()
        start, end = place, data.find(_STREAM_END, place)
        place = end if end >= 0 else len(data)
        yield data[start:place]


def _unpacked(packed: bytes, bytes_max: int) -> bytes | None:
    """Return the beginning of a packed stream; none for one that is packed or encrypted in another way."""
    try:
        return zlib.decompressobj().decompress(packed, bytes_max)
    except zlib.error:
        return None
