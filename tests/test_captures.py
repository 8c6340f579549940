"""The pictures of docs/watching.md have their places there, and were taken of what the commands show."""

from __future__ import annotations

import re

import pytest

from docs.captures.write import PAGE, shown


@pytest.mark.parametrize(
    ("name", "words"), [("watch", ("█", "waits for approval", "├ step 1")), ("top", ("█", "q quit"))]
)
def test_the_page_shows_what_was_taken(name: str, words: tuple[str, ...]) -> None:
    page = PAGE.read_text(encoding="utf-8")
    found = re.search(
        rf"<!-- taken: {name} \(make captures\) -->\n\n```text\n(.+?)\n```\n\n<!-- end -->", page, re.DOTALL
    )
    assert found is not None
    assert all(each in found[1] for each in words)
    assert shown(page, {name: found[1]}) == page


def test_a_page_without_a_place_for_a_picture_is_refused() -> None:
    with pytest.raises(ValueError, match="it needs one"):
        shown("# Watching\n", {"watch": "..."})
