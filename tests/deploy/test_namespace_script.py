"""What `deploy/temporal/namespace.sh` asks a server for: a `temporal` of the test's own notes it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "deploy" / "temporal" / "namespace.sh"
TEMPORAL = """#!/bin/sh
echo "$*" >> "$NOTED"
case "$*" in *"namespace describe"*) exit "$DESCRIBES";; esac
"""


@pytest.mark.parametrize(
    ("is_there", "retention", "asked"),
    [
        (True, "", ""),
        (True, "90d", "namespace update --namespace shop --retention 90d"),
        (False, "", "namespace create --namespace shop --retention 30d"),
        (False, "90d", "namespace create --namespace shop --retention 90d"),
    ],
)
def test_a_namespace_that_is_there_keeps_its_retention_unless_another_one_is_asked_for(
    tmp_path: Path, *, is_there: bool, retention: str, asked: str
) -> None:
    program, noted = tmp_path / "temporal", tmp_path / "noted"
    program.write_text(TEMPORAL)
    program.chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "TEMPORAL_NAMESPACE": "shop",
        "RETENTION": retention,
        "NOTED": str(noted),
        "DESCRIBES": "0" if is_there else "1",
    }
    ended = subprocess.run(["/bin/sh", str(SCRIPT)], env=environment, capture_output=True, text=True, check=True)
    changes = [line for line in noted.read_text().splitlines() if "--retention" in line]
    assert changes == ([f"operator {asked}"] if asked else [])
    assert ended.stdout == "namespace shop is ready\n"
