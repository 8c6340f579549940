"""How reports and commands say times, amounts and money. Knows nothing of markup."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from holdfast.core.base.bounds import REPORTED_TEXT_CHARS_MAX
from holdfast.core.conversation.decision_text import decision_text
from holdfast.core.conversation.verdicts import Approval

MINUTE: Final = 60
HOUR: Final = 3_600


def moment(at: datetime | None) -> str:
    """Return a time as people read it, in UTC."""
    return "–" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"


def lasting(seconds: float | None) -> str:
    """Return how long something took, in the units that fit."""
    if seconds is None:
        return "–"
    if seconds < 1:
        return f"{round(seconds * 1000)} ms"
    if seconds < MINUTE:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < HOUR:
        return f"{whole // MINUTE} min {whole % MINUTE:02} s"
    return f"{whole // HOUR} h {whole % HOUR // MINUTE:02} min"


def counted(number: int, what: str) -> str:
    """Return so many of something: `1 call`, `2 calls`."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def decided(approval: Approval, arguments: Mapping[str, object], step_started_at: datetime | None) -> str:
    """Return what was decided about a call, and how far into its step: a call's own time begins only then."""
    seconds = None if step_started_at is None else max(0.0, (approval.at - step_started_at).total_seconds())
    return decision_text(approval, arguments, when="" if seconds is None else f"{lasting(seconds)} into the step")


def beginning(text: str, chars_max: int = REPORTED_TEXT_CHARS_MAX) -> tuple[str, str]:
    """Return the beginning of `text`, and what to say about the rest: nothing where there is none."""
    if len(text) <= chars_max:
        return text, ""
    return text[:chars_max], f"{len(text) - chars_max:,} of {len(text):,} characters are left out here"
