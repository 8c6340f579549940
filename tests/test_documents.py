"""Every Python example of these documents runs as it stands there: tests under pytest, anything else as a program."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.diagrams.write import ended_by
from holdfast import ExecutionBudget, StopReason, testing

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [
    f"docs/{name}.md"
    for name in (
        "budgets-and-stopping",
        "capabilities",
        "concepts",
        "events",
        "index",
        "model-apis",
        "models",
        "storage",
        "subagents",
        "testing",
        "tools",
    )
]
"""Documents whose examples all run by themselves, without a server."""

SECONDS_MAX = 240
"""How long the programs of a document may take, one at a time; some start a server, on a busy machine."""

OPTIONS = ["asyncio_mode=auto", "asyncio_default_fixture_loop_scope=function", "filterwarnings=error"]
PYTEST = ["-m", "pytest", "-q", "-p", "no:cacheprovider", *(word for option in OPTIONS for word in ("-o", option))]


def examples(document: str) -> list[tuple[int, str]]:
    """Return the Python blocks of a document with the line each begins at."""
    text = (ROOT / document).read_text()
    found = re.finditer(r"^```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, block.start(1)) + 1, block[1]) for block in found]


def ran(codes: list[tuple[int, str]], folder: Path) -> list[subprocess.CompletedProcess[str]]:
    """Run each of `codes` as a file of its own in `folder`: tests in one pytest, every program in its own process."""
    tests, programs = list[str](), list[str]()
    for line, code in codes:
        path = folder / f"test_line_{line}.py"
        path.write_text(code)
        is_test = re.search(r"^(async )?def test_", code, flags=re.MULTILINE)
        (tests if is_test else programs).append(path.name)
    commands = [[*PYTEST, *tests]] if tests else []
    return [_run(command, folder) for command in (*commands, *([program] for program in programs))]


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )


@pytest.mark.timeout(300)
@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_example_of_a_document_runs(document: str, tmp_path: Path) -> None:
    found = examples(document)
    assert found, "it has no examples"
    for done in ran(found, tmp_path):
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_recipe_that_needs_no_server_runs(tmp_path: Path) -> None:
    alone = [(line, code) for line, code in examples("docs/recipes.md") if "holdfast.client" not in code]
    assert len(alone) == 1
    for done in ran(alone, tmp_path):
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_page_with_examples_is_run_by_a_test() -> None:
    tests = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    for path in (ROOT / "docs").rglob("*.md"):
        if examples(name := str(path.relative_to(ROOT))) and name not in DOCUMENTS:
            parts = (f'"{name}"', " / ".join(f'"{part}"' for part in path.relative_to(ROOT).parts))
            assert any(part in test for part in parts for test in tests), f"add {name} to DOCUMENTS"


def test_examples_that_are_wrong_are_noticed(tmp_path: Path) -> None:
    wrong = [(1, "raise SystemExit(3)"), (2, "def test_it() -> None:\n    assert False"), (3, "print('fine')")]
    tests, *programs = ran(wrong, tmp_path)
    assert "1 failed" in tests.stdout
    assert [tests.returncode, *(done.returncode for done in programs)] == [1, 3, 0]


def test_the_page_on_testing_names_everything_there_is_to_test_with() -> None:
    page = (ROOT / "docs" / "testing.md").read_text()
    known = {"Script", "ScriptedTool", "ResultsExhausted", "run_summary", "calls_of", "an_error"}  # in their docstrings
    assert {name for name in testing.__all__ if name not in known and name not in page} == set()


def test_the_page_on_budgets_names_every_limit_and_every_reason_with_its_status() -> None:
    page = (ROOT / "docs" / "budgets-and-stopping.md").read_text()
    assert {name for name in ExecutionBudget.model_fields if f"| `{name}` |" not in page} == set()
    told = {reason: row[1] for row in table(page, "How it ended") for reason in re.findall(r"`(\w+)`", row[0])}
    assert told == {reason.value: f"`{ended_by(reason)}`" for reason in StopReason}


def test_the_comparison_tells_the_figures_of_the_benchmarks() -> None:
    page, bench = (ROOT / "docs" / "comparison.md").read_text(), (ROOT / "bench" / "README.md").read_text()
    rows = table(page, "Beside a loop written by hand: measured")
    figures = {figure for row in rows for cell in row[1:3] for figure in re.findall(r"\d[\d.,]*\d|\d+", cell)}
    assert len(figures) > 15
    assert {figure for figure in figures if not re.search(rf"(?<![\d.,]){re.escape(figure)}(?![\d])", bench)} == {"128"}
    assert "128 MB" in (ROOT / "README.md").read_text()
    for command in re.findall(r"`(python -m bench[^`]*)`", page):
        assert command in bench, command


def test_the_page_on_deploying_names_variables_and_options_that_there_are() -> None:
    page = (ROOT / "docs" / "deploy.md").read_text()
    known = "".join((ROOT / name).read_text() for name in ("docs/cli.md", "deploy/README.md"))
    names = set(re.findall(r"\b(?:HOLDFAST|TEMPORAL|OPENAI)_[A-Z_]+|--[a-z][a-z-]+", page))
    assert len(names) > 10
    names -= {"--scale", "--build", "--from-file"}  # of Docker and kubectl
    names -= {"--plugin", "--endpoint", "--user", "--database", "--schema-name"}  # of Temporal's schema tool
    names -= {"--deployment-name", "--unversioned", "--yes"}  # of `temporal worker deployment`
    assert {name for name in names if name not in known and not name.startswith("TEMPORAL_TLS_")} == set()


def table(page: str, heading: str) -> list[list[str]]:
    """Return the rows of the first table below a heading, each as its cells."""
    below = page.split(f"## {heading}\n", 1)[1]
    lines = re.search(r"(?:^\|.*\n)+", below, flags=re.MULTILINE)
    assert lines is not None
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[0].splitlines()[2:]]


def test_everything_named_for_users_exists() -> None:
    for name in testing.__all__:
        assert inspect.getdoc(getattr(testing, name)), name
    with pytest.raises(AttributeError, match="no attribute 'Mock'"):
        getattr(testing, "Mock")  # noqa: B009  # not known to type checkers either
