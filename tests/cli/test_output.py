"""What the commands print of values, without any server."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

import pytest

from holdfast.cli.screens import output
from holdfast.client.execution_summaries import ExecutionSummary


def test_a_status_is_listed_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    at = datetime.now(UTC)
    output.table([ExecutionSummary(str(uuid4()), "clerk", "in_progress", None, 1, 2, 0.5, at, None)])
    assert "  in progress  " in capsys.readouterr().out
