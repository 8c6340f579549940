"""Describes a person's decision about a tool call, for every view. Decides nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from holdfast.core.conversation.amounts import duration, moment
from holdfast.core.conversation.verdicts import Approval

APPROVAL: Final = "approval"
"""The metadata key of a tool message that holds the decision about its call."""

DONE: Final = {"approve": "approved", "deny": "denied", "edit": "edited"}

DECIDED_CHARS_MAX: Final = 500
"""How much of an edited call's arguments a line shows, of the original and of the new ones each."""


def decision_text(
    approval: Approval,
    arguments: Mapping[str, object],
    *,
    since: datetime | None = None,
    chars_max: int = DECIDED_CHARS_MAX,
) -> str:
    """Return who decided what about a call with these `arguments`, and when: the moment, or how long after `since`.

    "edited by ann at 2026-01-01 12:00:00Z: asked with {"cents": 4900}, runs with {"cents": 100}". What is left out is
    counted; a reason follows.
    """
    at = f"at {moment(approval.at)}"
    if since is not None:  # a call's own time begins only with the decision
        at = f"{duration(max(0.0, (approval.at - since).total_seconds()))} into the step"
    if approval.decision == "expired":
        return f"expired undecided {at}"
    text = f"{DONE[approval.decision]} by {approval.by or 'an unknown person'} {at}"
    if approval.asked is not None:
        text += f": asked with {_spelled(approval.asked, chars_max)}, runs with {_spelled(arguments, chars_max)}"
    return f"{text} ({approval.reason})" if approval.reason else text


def marked(text: str, chars_max: int) -> str:
    """Return the beginning of `text`, and how many characters of it are not shown, if any are not."""
    hidden = len(text) - chars_max
    return text if hidden <= 0 else f"{text[:chars_max]}… +{hidden:,} characters"


def _spelled(arguments: Mapping[str, object], chars_max: int) -> str:
    return marked(json.dumps(dict(arguments), ensure_ascii=False), chars_max)
