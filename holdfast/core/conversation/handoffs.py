"""Handoffs as values: one handoff, and which agent has the conversation since. Decides nothing."""

from __future__ import annotations

from typing import Final

from pydantic import AwareDatetime, Field

from holdfast.core.base.call_digest import Digest
from holdfast.core.base.frozen import Frozen

HANDOFF: Final = "handoff"
"""The name of the tool, and of its calls."""


class Handoff(Frozen):
    """A handoff of the conversation at the end of a step, for the `reason` that the model gave, if any."""

    step_number: int = Field(ge=1)
    from_agent: str
    to_agent: str
    reason: str = ""
    at: AwareDatetime


def handoff_text(from_agent: str, to_agent: str, reason: str) -> str:
    """Return a handoff in one line."""
    return f"{from_agent} handed over to {to_agent}{f': {reason}' if reason else ''}"


class Handover(Frozen):
    """Which agent has the conversation since the last handoff: `agent`, which may be `origin` again.

    `origin` is the agent that the conversation began with, `origin_digest` the digest of its definition: by another
    definition the conversation goes back to that agent.
    """

    agent: str
    origin: str
    origin_digest: Digest
