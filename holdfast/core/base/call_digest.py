r"""`call_digest`: what a decision about a tool call is bound to, a fingerprint of the call's name and arguments.

The same in every language: SHA-256 over the UTF-8 bytes of `{"arguments":{...},"name":"..."}`, the keys of every object
sorted, no blanks, everything but ASCII written as `\uXXXX`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Annotated, Final

from pydantic import Field, JsonValue

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""A SHA-256 in hexadecimal digits: what a call is known by, and what a snapshot or a part is called in the store."""

SHORT_CHARS: Final = 12
"""So many of a digest's first digits people are shown, and may give: enough to tell the calls apart that wait."""


def call_digest(name: str, arguments: Mapping[str, JsonValue]) -> str:
    """Return the digest of a call of the tool `name` with `arguments`; the call's id does not count."""
    told = {"arguments": dict(arguments), "name": name}
    return sha256(json.dumps(told, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def short_digest(digest: str) -> str:
    """Return the readable form of `digest`: its first SHORT_CHARS digits."""
    return digest[:SHORT_CHARS]
