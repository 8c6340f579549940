"""Transcript marks: a transcript's length and digest, so that only new messages have to travel.

A transcript is a hash chain: its root is the digest of the opening (definition and tools), each message extends it.
Two transcripts with equal marks are equal. Sending `{base, delta, target}` instead of every message keeps a run's
history from growing with the square of its length (ARCHITECTURE.md).
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from hashlib import sha256
from typing import Final

from pydantic import Field

from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.base.call_digest import Digest
from holdfast.core.base.frozen import Frozen, canonical, is_empty
from holdfast.core.conversation.messages import Message
from holdfast.core.tools.tool_traits import ToolSchema

DIGEST_HEX: Final = 32
"""Digits kept of a SHA-256: 128 bits."""


class TranscriptPrefix(Frozen):
    """The part before the first message; it never changes within a run."""

    definition: AgentDefinition
    tools: tuple[str, ...]
    """The names the model may call, in the order it is offered them."""
    spawn: ToolSchema | None = None
    """The tool that starts subagents, if there are any: its schema follows from them, not from the worker."""
    mcp: Digest | None = None
    """The catalog with the schemas of its MCP tools, if there are any."""
    handoff: ToolSchema | None = None
    """The tool that hands the conversation over, likewise."""
    search: tuple[ToolSchema, ...] = Field(default=(), exclude_if=is_empty)
    """The tools that find and call those of the catalog, where these are too many to be shown."""
    prompts: bool = Field(default=False, exclude_if=operator.not_)
    """Whether functions on the worker add to the system prompt, for each model call."""

    @property
    def own_tools(self) -> tuple[ToolSchema, ...]:
        """The tools that the loop itself offers the model, behind all others."""
        return (*(each for each in (self.spawn, self.handoff) if each is not None), *self.search)


class TranscriptMark(Frozen):
    """A place in a transcript: how many messages it has there, and the digest of all of them."""

    length: int
    digest: str


def root(opening: TranscriptPrefix) -> TranscriptMark:
    """Return the mark of a transcript without messages."""
    return TranscriptMark(length=0, digest=sha256(canonical(opening)).hexdigest()[:DIGEST_HEX])


def advanced(mark: TranscriptMark, messages: Iterable[Message]) -> TranscriptMark:
    """Return the mark after `messages` (as the model sees them) were added at `mark`."""
    length, digest = mark.length, mark.digest
    for message in messages:
        digest = sha256(digest.encode() + canonical(message)).hexdigest()[:DIGEST_HEX]
        length += 1
    return TranscriptMark(length=length, digest=digest)


def size(message: Message) -> int:
    """Return about how many bytes `message` takes in a payload."""
    return len(canonical(message))
