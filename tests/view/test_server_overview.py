"""What `holdfast top` is told of a server that refuses to list: that, and not that the server is away."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.client import Holdfast, Settings
from holdfast.core.base.errors import ServerUnavailable
from holdfast.view import server_overview
from tests.plain_server import running

pytestmark = pytest.mark.temporal


@pytest.mark.slow
async def test_a_server_that_allows_no_more_lists_is_not_said_to_be_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_overview, "LIST_SECONDS_MAX", 2.0)
    refused = r"answers, and has not listed within 2 s.*namespaceRPS\.visibility"
    with running(tmp_path, "frontend.namespaceRPS.visibility=0") as address:
        client = await Holdfast.connect(Settings(address=address))
        with pytest.raises(ServerUnavailable, match=refused):
            await listed_for_ever(client)


async def listed_for_ever(client: Holdfast) -> None:
    """List again and again: the server allows a first time."""
    while True:
        await server_overview.overview(client)
