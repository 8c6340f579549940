"""Every rule of docs/spec.md has a row in `spec_coverage.md`, and every test that a row names exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import get_args

import pytest

from holdfast.core.conversation.stop_reasons import OVERRIDABLE, StopReason
from holdfast.core.loop.commands import Command
from holdfast.core.loop.events import Event
from holdfast.core.wire.execution_events import KINDS

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "tests" / "spec_coverage.md"
SPEC = ROOT / "docs" / "spec.md"
SECTIONS = range(1, 9)
RULES_MIN = 90
RULE = re.compile(r"^\*\*(\d+)\.(\d+)\*\* ", re.MULTILINE)
REFERENCE = re.compile(r"(?<![\w.,*])([1-8])\.(\d+)(?![\w.,]\d)")
ROW = re.compile(r"^\| (\d+)\.(\d+) \| (.+?) \| (.+) \|$")

Row = tuple[int, int, str, str]


def specified() -> list[tuple[int, int]]:
    """Return section and number of every rule of the specification, in order."""
    return [(int(section), int(number)) for section, number in RULE.findall(SPEC.read_text())]


def rows_of(text: str) -> list[Row]:
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


def problems(row: Row) -> list[str]:
    section, number, words, tests = row
    proofs = re.findall(r"`([^`]+)`", tests)
    found = [problem for proof in proofs if (problem := problem_with(proof))]
    if not proofs or "<br>".join(f"`{proof}`" for proof in proofs) != tests:
        found.append(f"{tests!r} names no tests, or more than tests")
    if "todo" in f"{words} {tests}".lower():
        found.append("it is not done")
    return [f"{section}.{number}: {problem}" for problem in found]


@pytest.mark.slow
def test_every_row_names_tests_that_exist() -> None:
    found = [problem for row in rows_of(PAGE.read_text()) for problem in problems(row)]
    assert not found, "\n".join(found)


def test_every_rule_of_the_specification_has_its_rows_in_order() -> None:
    covered = [rule for rule, _ in groupby(rows_of(PAGE.read_text()), key=lambda row: row[:2])]
    assert covered == specified()


def test_the_rules_of_every_section_are_numbered_in_order() -> None:
    written = specified()
    assert len(written) >= RULES_MIN
    by_section = {section: [each[1] for each in found] for section, found in groupby(written, key=lambda each: each[0])}
    assert list(by_section) == list(SECTIONS)
    for section, numbers in by_section.items():
        assert numbers == list(range(1, len(numbers) + 1)), f"section {section}"


def test_the_specification_refers_only_to_rules_that_it_has() -> None:
    named = {(int(section), int(number)) for section, number in REFERENCE.findall(SPEC.read_text())}
    assert len(named) > len(SECTIONS)
    assert named <= set(specified())


def test_the_specification_names_every_command_and_every_event() -> None:
    text = SPEC.read_text()
    assert set(re.findall(r"^\| `([A-Z]\w+)` \|", text, re.MULTILINE)) == {each.__name__ for each in get_args(Command)}
    assert {*KINDS, *(each.__name__ for each in get_args(Event))} <= set(re.findall(r"\w+", text))


def test_the_specification_has_the_stop_reasons_as_they_are() -> None:
    word = {True: "yes", False: "no"}
    reasons = [(str(each.rank), each.value, word[each.forced], word[each in OVERRIDABLE]) for each in StopReason]
    assert re.findall(r"^\| (\d) \| `(\w+)` \| (yes|no) \| (yes|no) \|", SPEC.read_text(), re.MULTILINE) == reasons


def test_no_row_is_overlooked() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if re.match(r"^\|\s*\d", line)]
    assert len(rows) == len(rows_of(PAGE.read_text()))


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
    (found,) = rows_of(row)
    assert any(told in problem for problem in problems(found))
