"""The page that says which test proves which rule is whole: every rule has tests, and every test it names exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from itertools import groupby
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "spec-coverage.md"
SECTIONS = range(1, 9)
RULES_MIN = 120
ROW = re.compile(r"^\| (\d+)\.(\d+) \| (.+?) \| (.+) \|$")

Rule = tuple[int, int, str, str]


def rules(text: str) -> list[Rule]:
    """Return section, number, words and tests of every row."""
    found = (ROW.match(line) for line in text.splitlines())
    return [(int(row[1]), int(row[2]), row[3], row[4]) for row in found if row]


@cache
def names_in(path: Path) -> frozenset[str]:
    nodes = ast.parse(path.read_text()).body if path.is_file() else []
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def problem_with(proof: str) -> str | None:
    """Return why what a row names does not exist, if so."""
    path, _, test = proof.partition("::")
    if path.startswith("tests/scenarios/") and path.endswith(".yaml"):
        return None if (ROOT / path).is_file() else f"there is no scenario {path}"
    if not test.startswith("test_"):
        return f"{proof} names no test"
    return None if test in names_in(ROOT / path) else f"there is no test {proof}"


def problems(rule: Rule) -> list[str]:
    section, number, words, tests = rule
    proofs = re.findall(r"`([^`]+)`", tests)
    found = [problem for proof in proofs if (problem := problem_with(proof))]
    if not proofs or "<br>".join(f"`{proof}`" for proof in proofs) != tests:
        found.append(f"{tests!r} names no tests, or more than tests")
    if "todo" in f"{words} {tests}".lower():
        found.append("it is not done")
    return [f"{section}.{number}: {problem}" for problem in found]


def test_every_rule_names_tests_that_exist() -> None:
    found = [problem for rule in rules(PAGE.read_text()) for problem in problems(rule)]
    assert not found, "\n".join(found)


def test_the_rules_of_every_section_are_numbered_in_order() -> None:
    numbered = [(section, number) for section, number, _, _ in rules(PAGE.read_text())]
    assert len(numbered) >= RULES_MIN
    by_section = {section: [number for _, number in each] for section, each in groupby(numbered, key=lambda r: r[0])}
    assert list(by_section) == list(SECTIONS)
    for section, numbers in by_section.items():
        assert numbers == list(range(1, len(numbers) + 1)), f"section {section}"


def test_no_row_is_overlooked() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if re.match(r"^\|\s*\d", line)]
    assert len(rows) == len(rules(PAGE.read_text()))


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ('| 1.1 | "a rule" | `tests/core/test_state.py::test_nobody_wrote_this` |', "there is no test"),
        ('| 1.1 | "a rule" | `tests/core/test_nothing.py::test_it` |', "there is no test"),
        ('| 1.1 | "a rule" | `tests/core/test_state.py` |', "names no test"),
        ('| 1.1 | "a rule" | `tests/scenarios/cases/nobody_wrote_this.yaml` |', "there is no scenario"),
        ('| 1.1 | "a rule" | by reading |', "names no tests"),
        ('| 1.1 | "a rule" (todo) | `tests/core/test_state.py::test_microseconds_are_kept` |', "not done"),
    ],
)
def test_a_rule_without_its_proof_is_noticed(row: str, told: str) -> None:
    (rule,) = rules(row)
    assert any(told in problem for problem in problems(rule))
