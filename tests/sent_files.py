"""Files for tests, as small as their formats allow: a PDF, sounds."""

from __future__ import annotations

import zlib
from typing import Final


def pdf(pages: int = 1, words: str = "Hello", *, packed: bool = False) -> bytes:
    """Return a PDF of so many pages; `packed` has its page objects in a compressed stream, as most programs write."""
    objects = [b"<< /Type /Page /Parent 2 0 R >>" for _ in range(pages)]
    tree = b"<< /Type /Pages /Count %d >>" % pages
    if packed:
        stream = zlib.compress(b"\n".join((tree, *objects)))
        body = b"<< /Type /ObjStm /N %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (pages, stream)
    else:
        body = b"\n".join((tree, *objects))
    return b"%PDF-1.7\n" + body + b"\n% " + words.encode() + b"\n%%EOF\n"


WAV: Final = b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x40\x1f\0\0\x01\0\x08\0data\0\0\0\0"
"""A sound of no length."""

MP3: Final = b"\xff\xfb\x90\x00" + bytes(413)
"""One frame of silence."""
