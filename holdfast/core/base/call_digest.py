r"""`call_digest`: the fingerprint of a tool call's name and arguments, to which a decision is bound.

The same in every language: SHA-256 over the UTF-8 bytes of `{"arguments":{...},"name":"..."}`, the keys of every object
sorted, no blanks, everything but ASCII written as `\uXXXX`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Annotated, Final

from pydantic import Field, JsonValue

DIGEST_PATTERN: Final = r"^[0-9a-f]{64}$"

Digest = Annotated[str, Field(pattern=DIGEST_PATTERN)]
"""A SHA-256 in hexadecimal digits: it identifies a call, and names a snapshot or a part in the store."""

SHORT_CHARS: Final = 12
"""How many digits of a digest are shown and accepted: enough to tell waiting calls apart."""


def call_digest(name: str, arguments: Mapping[str, JsonValue]) -> str:
    """Return the digest of a call of the tool `name` with `arguments`; the call's id does not count."""
    fields = {"arguments": dict(arguments), "name": name}
    return sha256(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def short_digest(digest: str) -> str:
    """Return the readable form of `digest`: its first SHORT_CHARS digits."""
    return digest[:SHORT_CHARS]
