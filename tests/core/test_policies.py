"""Which rules of an agent contradict each other."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from holdfast.core.agent.policies import ContextPolicy, SummaryPolicy

SUMMARY = SummaryPolicy(above_input_tokens=100)


@pytest.mark.parametrize("sections", [(), ("messages",), ("summary", "messages"), ("buffer", "messages")])
def test_sections_that_hide_what_was_summarised_are_refused(sections: tuple[str, ...]) -> None:
    with pytest.raises(ValidationError, match="must name `summary` and `buffer`"):
        ContextPolicy(sections=sections, summary=SUMMARY)


@pytest.mark.parametrize("sections", [None, ("summary", "buffer", "messages"), ("messages", "buffer", "summary", "x")])
def test_sections_that_show_what_was_summarised_are_fine(sections: tuple[str, ...] | None) -> None:
    assert ContextPolicy(sections=sections, summary=SUMMARY).sections == sections


def test_without_summaries_any_sections_are_fine() -> None:
    assert ContextPolicy(sections=("messages",)).sections == ("messages",)
