"""docs/errors.md has every error class and every type of error that the code can give, each with a remedy."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from holdfast.client.sessions.updates import REFUSALS
from holdfast.core.base import errors
from holdfast.core.base.errors import HoldfastError
from holdfast.core.wire import endpoint_refusals

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "errors.md"
FOLDERS = ("holdfast", "workflows", "activities")
TYPED = {
    "ErrorRecord": "type",
    "ApplicationError": "type",
    "__init__": "type",
    "Refused": "kind",
    "ModelFailure": "kind",
}
"""What makes an error of a type that is a text, and its argument for it; `__init__` is that of a class of such."""

OUTSIDE_THE_CORE = (
    "holdfast.mcp.errors",
    "holdfast.runtime.open_resources",
    "holdfast.runtime.tool_runner",
    "holdfast.runtime.user_code",
    "holdfast.testing.scripted_tools",
    "holdfast.workspace.backend",
    "holdfast.workspace.calls",
    "activities.transcript_cache",
)
"""Modules with classes of their own; the worker tells them by name."""


def sources() -> list[Path]:
    found = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    return [path for path in found if "_app" not in path.parts]


def tables() -> list[list[list[str]]]:
    found = re.findall(r"(?:^\|.*\n)+", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [[[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]] for table in found]


CLASSES = [row for table in tables()[:2] for row in table]
TYPES = [row for table in tables()[2:] for row in table]


def subclasses(root: type[HoldfastError]) -> Iterator[type[HoldfastError]]:
    yield root
    for kind in root.__subclasses__():
        yield from subclasses(kind)


def constants() -> dict[str, str]:
    """The modules' own texts by name."""
    found: dict[str, str] = {}
    for path in sources():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                value = node.value
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    found[node.target.id] = value.value
    return found


@cache
def types_in_code() -> set[str]:
    known, found = constants(), set[str]()
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            if name not in TYPED:
                continue
            given = [each.value for each in node.keywords if each.arg == TYPED[name]]
            for value in given or (node.args[:1] if name == "Refused" else []):
                for part in ast.walk(value):  # as in `cause.type or "ApplicationError"`
                    if isinstance(part, ast.Constant) and re.fullmatch("[A-Z][A-Za-z]+", str(part.value)):
                        found.add(str(part.value))
                    elif isinstance(part, ast.Name) and part.id in known:
                        found.add(known[part.id])
    return found


def test_the_code_is_read_at_all() -> None:
    some = {"HookFailed", "ToolTimeout", "RunEnded", "WorkerShutdown", "InvalidAnswer", "ErrorForbade"}
    assert some <= types_in_code(), "given as texts and as constants"


def test_every_error_class_is_told_with_its_exit_code_and_none_else() -> None:
    for module in OUTSIDE_THE_CORE:
        importlib.import_module(module)
    ours = ("holdfast.", "activities.", "workflows.")
    real = {each for each in subclasses(HoldfastError) if each.__module__.startswith(ours)}
    assert {each for each in real if each.__module__ != errors.__name__}
    assert {row[0]: row[1] for row in CLASSES} == {f"`{each.__name__}`": str(each.exit_code) for each in real}
    assert len(CLASSES) == len(real)


def test_no_other_module_defines_an_error_that_the_page_does_not_have() -> None:
    where = {path for path in sources() if re.search(r"^class \w+\(HoldfastError\)", path.read_text(), re.MULTILINE)}
    named = {ROOT / f"{module.replace('.', '/')}.py" for module in OUTSIDE_THE_CORE}
    assert where == named | {ROOT / "holdfast" / "core" / "base" / "errors.py"}


def test_every_type_that_the_code_gives_is_told() -> None:
    told = {row[0].strip("`") for row in (*CLASSES, *TYPES)}
    endpoint = {*endpoint_refusals.FINAL_KINDS.values(), endpoint_refusals.UNAVAILABLE}
    endpoint |= set(re.findall(r'return "(\w+)"', Path(endpoint_refusals.__file__).read_text()))
    endpoint.add(endpoint_refusals.kind_of(422, ""))
    given = types_in_code() | endpoint | set(REFUSALS)
    assert given <= told
    by_class = {each.__name__ for each in subclasses(HoldfastError)}
    assert told - given <= by_class, "told, and given by nobody"


@pytest.mark.parametrize("row", [*CLASSES, *TYPES], ids=lambda row: row[0].strip("`"))
def test_each_says_when_it_comes_and_what_to_do(row: list[str]) -> None:
    *_, when, remedy = row
    assert len(when) > 15
    assert len(remedy) > 15


def test_a_type_stands_in_one_row_of_a_table() -> None:
    for table in tables():
        names = [row[0] for row in table]
        assert len(names) == len(set(names))
