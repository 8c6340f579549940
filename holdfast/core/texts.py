"""Making foreign text safe to keep: bounded and encodable, whatever a tool or a provider put into it."""

from __future__ import annotations

import unicodedata

from holdfast.core.limits import ERROR_CHARS_MAX
from holdfast.core.steps import ErrorRecord


def encodable(text: str) -> str:
    """Return `text` with what UTF-8 cannot carry (lone surrogates) replaced by `?`."""
    return text.encode("utf-8", "replace").decode("utf-8")


def printable(text: str) -> str:
    """Return `text` with what could steer a terminal or reorder its line shown as escapes; line ends stay."""
    return "".join(
        char
        if char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co", "Cn")
        else ascii(char)[1:-1]
        for char in text
    )


def clamped(text: str, chars_max: int) -> str:
    """Return `text` cut to at most `chars_max` characters, the cut said at its end."""
    if len(text) <= chars_max:
        return encodable(text)
    note = f"\n[cut: the first {chars_max:,} of {len(text):,} characters]"
    return encodable(text[: max(0, chars_max - len(note))]) + note


def clamped_bytes(text: str, bytes_max: int) -> str:
    """Return `text` cut to at most `bytes_max` bytes of UTF-8, the cut said at its end."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= bytes_max:
        return raw.decode("utf-8")
    note = f"\n[cut: the first {bytes_max:,} of {len(raw):,} bytes]"
    return raw[: bytes_max - len(note)].decode("utf-8", "ignore") + note


def error_record(error: BaseException, source: str) -> ErrorRecord:
    """Return `error` as data; survives errors whose text is huge, unencodable or itself raises."""
    try:
        text = str(error)
    except Exception as second:  # noqa: BLE001  # a broken __str__ must not hide the first error
        text = f"(its text cannot be read: {type(second).__name__})"
    return ErrorRecord(type=type(error).__name__, message=clamped(text, ERROR_CHARS_MAX), source=source)
