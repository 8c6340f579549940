"""What the model has been told so far, named by length and digest, so that only what is new has to travel.

A conversation is a hash chain: its root stands for the opening (definition and tools), each message moves it on.
Two transcripts with equal marks are equal. Sending `{base, delta, target}` instead of every message keeps a run's
history from growing with the square of its length (ARCHITECTURE.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Final

from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.tools import ToolSchema
from holdfast.core.base.frozen import Frozen, canonical
from holdfast.core.conversation.messages import Message

DIGEST_HEX: Final = 32
"""Digits kept of a SHA-256: 128 bits."""


class TranscriptPrefix(Frozen):
    """What stands before the first message and never changes within a run."""

    definition: AgentDefinition
    tools: tuple[str, ...]
    """The names the model may call, in the order it is offered them."""
    spawn: ToolSchema | None = None
    """The tool that calls subagents, where there are any: it is described by them, not by the worker."""


class TranscriptMark(Frozen):
    """A place in a transcript: how many messages it has there, and the digest of all of them."""

    length: int
    digest: str


def root(opening: TranscriptPrefix) -> TranscriptMark:
    """Return the mark of a conversation in which nothing has been said."""
    return TranscriptMark(length=0, digest=sha256(canonical(opening)).hexdigest()[:DIGEST_HEX])


def advanced(mark: TranscriptMark, messages: Iterable[Message]) -> TranscriptMark:
    """Return the mark after `messages` (as the model sees them) were said at `mark`."""
    length, digest = mark.length, mark.digest
    for message in messages:
        digest = sha256(digest.encode() + canonical(message)).hexdigest()[:DIGEST_HEX]
        length += 1
    return TranscriptMark(length=length, digest=digest)


def size(message: Message) -> int:
    """Return about how many bytes `message` takes in a payload."""
    return len(canonical(message))
