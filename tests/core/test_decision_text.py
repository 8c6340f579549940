"""What a person decided, in words: who, what was asked, what runs, and how much of it is not shown."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from holdfast.core.conversation.decision_text import decision_text, marked
from holdfast.core.conversation.verdicts import Approval

AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
DIGEST = "0" * 64


@pytest.mark.parametrize(
    ("approval", "text"),
    [
        (Approval(decision="approve", by="ann", at=AT, digest=DIGEST), "approved by ann at 2026-01-01 12:00:00Z"),
        (
            Approval(decision="deny", at=AT, digest=DIGEST, reason="too dear"),
            "denied by an unknown person at 2026-01-01 12:00:00Z (too dear)",
        ),
        (Approval(decision="expired", at=AT, digest=DIGEST), "expired undecided at 2026-01-01 12:00:00Z"),
        (
            Approval(decision="edit", by="ann", at=AT, digest=DIGEST, asked={"cents": 4900}),
            'edited by ann at 2026-01-01 12:00:00Z: asked with {"cents": 4900}, runs with {"cents": 100}',
        ),
    ],
)
def test_a_decision_says_who_what_and_when(approval: Approval, text: str) -> None:
    assert decision_text(approval, {"cents": 100}) == text


def test_what_is_not_shown_is_counted() -> None:
    assert marked("ls; rm -rf /", 12) == "ls; rm -rf /"
    assert marked("ls" + " " * 98 + "; rm -rf /", 100) == "ls" + " " * 98 + "… +10 characters"
