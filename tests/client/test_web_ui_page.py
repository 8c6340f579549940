"""docs/web-ui.md names the columns that there are, and queries that a Temporal server takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast.client import Holdfast, Settings
from holdfast.core.wire.search_attributes import SEARCH_ATTRIBUTES

TEXT = (Path(__file__).parents[2] / "docs" / "web-ui.md").read_text(encoding="utf-8")


def test_the_page_tells_every_search_attribute_with_its_kind() -> None:
    assert dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", TEXT, flags=re.MULTILINE)) == SEARCH_ATTRIBUTES


@pytest.mark.temporal
async def test_every_query_of_the_page_is_taken(settings: Settings) -> None:
    (block,) = re.findall(r"^```\n(.*?)^```$", TEXT, flags=re.MULTILINE | re.DOTALL)
    client = await Holdfast.connect(settings)
    queries = block.splitlines()
    assert len(queries) > 3
    for query in queries:
        assert (await client.temporal.count_workflows(query)).count >= 0
