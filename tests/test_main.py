"""The program `holdfast` from its first moment on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

SLOW_TO_LOAD = """
import time
print("loading", flush=True)
time.sleep(60)
"""
"""In the place of a package that the commands need."""


def test_ctrl_c_while_the_commands_are_loaded_prints_nothing(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text(SLOW_TO_LOAD)
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "list"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509  # as a shell would
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "loading\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=90)
    assert (process.returncode, out, err) == (130, "", "")


@pytest.mark.slow
def test_it_is_a_module_too() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "--version"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert done.stdout.startswith("holdfast ")
