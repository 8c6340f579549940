"""What `--help` says of options."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

from holdfast.cli.main import app

COMMANDS = [
    *[[str(each.name or getattr(each.callback, "__name__", "")).replace("_", "-")] for each in app.registered_commands],
    *[["session", action] for action in ("show", "stop", "change", "close")],
    ["session"],
    [],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_flag_names_no_type(command: list[str]) -> None:
    told = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "100"})
    assert told.exit_code == 0
    [line] = re.findall(r"^.*--help .*$", told.output, re.MULTILINE)
    assert "Show this message and exit" in line
    assert "<bool>" not in told.output
