"""`Attachment`: a file of a message or of a tool's result. It names the file; the bytes lie in the record store."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints

from holdfast.core.base.call_digest import Digest
from holdfast.core.base.frozen import Frozen, is_none
from holdfast.core.base.safe_text import encodable

ATTACHMENTS_MAX: Final = 16
"""The most files of one call or message: each is named in the history, in events, and in what the model sees."""

ATTACHMENTS_STEP_MAX: Final = 64
"""The most files of one step, shared by its calls; each call may have one at least."""

ATTACHMENT_BYTES_MAX: Final = 16 * 1024 * 1024
"""The largest file; it is read and written whole."""

ATTACHED_BYTES_MAX: Final = 32 * 1024 * 1024
"""The most that the files of one call take together: its worker holds them in memory until the call has ended."""

ATTACHMENT_NAME_CHARS_MAX: Final = 120
"""The longest name of a file."""

MEDIA_TYPE_CHARS_MAX: Final = 100
"""The longest media type."""

UNKNOWN_MEDIA_TYPE: Final = "application/octet-stream"
"""The media type of a file of which nothing is known."""

PICTURE_TYPES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""The media types that models take as pictures."""

PICTURE_BYTES_MAX: Final = 3_750_000
"""The largest file that is shown as a picture: 5 MB as base64, the most that the strictest API takes."""

PDF_TYPE: Final = "application/pdf"

PDF_BYTES_MAX: Final = 10_000_000
"""The largest PDF that a model is sent."""

PDF_PAGES_MAX: Final = 1_000
"""The most pages that are counted of a PDF; no API takes more."""

AUDIO_TYPES: Final[Mapping[str, Literal["wav", "mp3"]]] = MappingProxyType(
    {
        "audio/wav": "wav",
        "audio/x-wav": "wav",
        "audio/wave": "wav",
        "audio/vnd.wave": "wav",
        "audio/mpeg": "mp3",
        "audio/mp3": "mp3",
    }
)
"""The media types of sounds that models take, and the format that each of them is."""

AUDIO_BYTES_MAX: Final = 10_000_000
"""The largest sound that a model is sent."""

TEXT_BYTES_MAX: Final = 256 * 1024
"""The largest text file that a model is sent, as large as a message may be."""

TEXT_TYPES: Final = frozenset(
    f"application/{each}"
    for each in ("json", "jsonl", "xml", "yaml", "x-yaml", "toml", "javascript", "x-javascript", "x-sh", "sql", "x-tex")
)
"""Media types of texts besides `text/...`."""

SENT_BYTES_MAX: Final = 14_000_000
"""The most bytes of files in one request, and so in one message: some APIs take 20 MB, and base64 adds a third."""

FileKind = Literal["images", "pdf", "audio", "text"]
"""The kinds of files that models take, each as a word of a route's `capabilities`; all of them take texts."""

FILE_KINDS: Final[tuple[FileKind, ...]] = ("images", "pdf", "audio", "text")

KIND_NAMES: Final[Mapping[FileKind, str]] = MappingProxyType(
    {"images": "pictures", "pdf": "PDFs", "audio": "sounds", "text": "texts"}
)
"""The name of each kind in a sentence, for several of them."""

KIND_BYTES_MAX: Final[Mapping[FileKind, int]] = MappingProxyType(
    {"images": PICTURE_BYTES_MAX, "pdf": PDF_BYTES_MAX, "audio": AUDIO_BYTES_MAX, "text": TEXT_BYTES_MAX}
)
"""How large a file of each kind may be."""

ENDING_CHARS_MAX: Final = 16
"""How much of a long name's end is looked at for its ending, which is kept."""

EXACT_BYTES_MAX: Final = 10_000
"""Up to this size people are shown the exact number of a file's bytes."""

_ILLEGAL: Final = r"/\\\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
"""The characters of a path, of another line, of a terminal's commands, and those that reorder a line.

As the inside of a class.
"""

_FRAMING: Final = re.compile(r"[\[\]<>\"'`]")
"""What ends a line in brackets, a tag, or a quoted name."""

_FILE_NAME_PATTERN: Final = rf"^([^.{_ILLEGAL}]|\.[^.{_ILLEGAL}]|\.\.[^{_ILLEGAL}])[^{_ILLEGAL}]*$"

FileName = Annotated[
    str, StringConstraints(min_length=1, max_length=ATTACHMENT_NAME_CHARS_MAX, pattern=_FILE_NAME_PATTERN)
]
"""A file's name: one line, no path, and neither `.` nor `..`."""

MEDIA_TYPE_PATTERN: Final = r"^[a-z0-9!#$&^_.+-]+/[a-z0-9!#$&^_.+-]+$"

MediaType = Annotated[str, StringConstraints(max_length=MEDIA_TYPE_CHARS_MAX, pattern=MEDIA_TYPE_PATTERN)]
"""A media type in lower case without parameters, such as `image/png`."""


class Attachment(Frozen):
    """A file of a message or of a tool's result: its name, its media type, its `size` in bytes, its SHA-256.

    The record store has its bytes under that `digest`. `pages` is how many a PDF has, none where that is not known.
    """

    name: FileName
    media_type: MediaType
    size: int = Field(ge=0, le=ATTACHMENT_BYTES_MAX)
    digest: Digest
    pages: int | None = Field(default=None, ge=1, le=PDF_PAGES_MAX, exclude_if=is_none)

    @property
    def kind(self) -> FileKind | None:
        """Its kind by its media type; none where no model takes it."""
        return kind_of(self.media_type)

    @property
    def is_picture(self) -> bool:
        """Whether its media type is that of a picture that models take."""
        return self.media_type in PICTURE_TYPES

    @property
    def line(self) -> str:
        """The line by which the model learns of it."""
        return attached_line(self.name, self.media_type, self.size)


Attachments = Annotated[tuple[Attachment, ...], Field(max_length=ATTACHMENTS_MAX)]
"""The files of one call or message."""


def kind_of(media_type: str) -> FileKind | None:
    """Return the kind of the files of a media type; none where no model takes them."""
    if media_type in PICTURE_TYPES:
        return "images"
    if media_type == PDF_TYPE:
        return "pdf"
    if media_type in AUDIO_TYPES:
        return "audio"
    return "text" if media_type.startswith("text/") or media_type in TEXT_TYPES else None


def kinds_of(files: Iterable[Attachment]) -> tuple[FileKind, ...]:
    """Return the kinds of the files, each once."""
    return tuple(dict.fromkeys(kind for each in files if (kind := each.kind) is not None))


def files_problem(needed: Iterable[FileKind], taken: Iterable[FileKind], model: str) -> str:
    """Return why a model cannot be sent files of the kinds `needed`; empty where it takes them. Texts go anywhere."""
    takes = {*taken, "text"}
    missing = [KIND_NAMES[each] for each in dict.fromkeys(needed) if each not in takes]
    if not missing:
        return ""
    others = ", ".join(KIND_NAMES[each] for each in FILE_KINDS if each in takes)
    return (
        f"{model} takes no {' and no '.join(missing)}; leave out such files, or use another model (it takes: {others})"
    )


def problem_with_file_name(name: str) -> str | None:
    """Return why a file cannot be called so, and what it can be called; none where it can."""
    if 0 < len(name) <= ATTACHMENT_NAME_CHARS_MAX and re.fullmatch(_FILE_NAME_PATTERN, encodable(name)):
        return None
    rule = f"1 to {ATTACHMENT_NAME_CHARS_MAX} characters in one line, without `/`, `\\` and control characters"
    return f"{name[:ATTACHMENT_NAME_CHARS_MAX]!r} cannot name a file; give {rule}"


def has_none(attachments: object) -> bool:
    """For `Field(exclude_if=has_none)`: a call without files is written as if there were no such field."""
    return not attachments


def attached_line(name: str, media_type: str, size: int) -> str:
    """Return the line by which the model learns of a file of `size` bytes."""
    return f"[attached: {name}, {media_type}, {size_text(size)}]"


def legal_file_name(text: str) -> str:
    """Return the last part of a foreign name, path or address as a file's name; empty where nothing of it can be."""
    last = encodable(re.split(r"[/\\]", text)[-1])
    name = re.sub(f"[{_ILLEGAL}]", "_", last)
    if len(name) > ATTACHMENT_NAME_CHARS_MAX:
        dot = name.rfind(".", len(name) - ENDING_CHARS_MAX)
        ending = name[dot:] if dot >= 0 else ""
        name = name[: ATTACHMENT_NAME_CHARS_MAX - len(ending)] + ending
    return "" if name in {".", ".."} else name


def framed_name(name: str) -> str:
    """Return a file's name as it stands in a line or a tag for the model: it cannot end either."""
    return _FRAMING.sub("_", name)


def not_shown(name: str, why: str, *, what: str = "file") -> str:
    """Return the line that the model reads in place of a file."""
    return f"[{what} {framed_name(name)}: {why}]"


def legal_media_type(text: str) -> str:
    """Return a foreign media type without its parameters; UNKNOWN_MEDIA_TYPE for what is none."""
    kind = text.partition(";")[0].strip().lower()
    fits = len(kind) <= MEDIA_TYPE_CHARS_MAX and re.fullmatch(MEDIA_TYPE_PATTERN, kind) is not None
    return kind if fits else UNKNOWN_MEDIA_TYPE


def why_left_out(kind: FileKind) -> str:
    """Return why a model is not sent a file of that kind, as it reads it."""
    return f"left out, because this model takes no {KIND_NAMES[kind]}"


def size_text(count: int) -> str:
    """Return a number of bytes as people read it."""
    return f"{count:,} bytes" if count < EXACT_BYTES_MAX else f"{count / 1_000:,.0f} KB"


def share_of_step(attachments: tuple[Attachment, ...], call_count: int) -> tuple[Attachment, ...]:
    """Return those that one call of a step with so many calls may have; the first ones."""
    return attachments[: max(1, ATTACHMENTS_STEP_MAX // max(1, call_count))]


def with_attachments(text: str, attachments: tuple[Attachment, ...]) -> str:
    """Return a result's text with a line for each file that it does not mention in these words."""
    if not attachments:
        return text
    return "\n".join(filter(None, (text, *(each.line for each in attachments if each.line not in text))))
