"""What goes wrong with an MCP server: before a call, in its answer, and after it was sent."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.errors import HoldfastError, InvalidInput, MissingPart


class McpUnavailable(HoldfastError):
    """The server cannot be started or reached, or speaks no protocol of ours: nothing was called."""

    exit_code = 6


class McpAccessRefused(McpUnavailable):
    """The server refuses our credentials, or what they allow (HTTP 401, 403), and they stay the same with every try."""


class McpCallFailed(HoldfastError):
    """The server answered that the call failed, or refused it; the message is the server's, bounded."""


class McpOutcomeUnknown(HoldfastError):
    """The call was sent and its answer was lost: the connection broke, the time was over, or it was unreadable.

    The tool may have had its effect.
    """


FINAL: Final = (InvalidInput, MissingPart, McpAccessRefused)
"""Errors of listing that no retry mends."""
