"""What `holdfast` offers by its own name: documented, light to import, and used by every document and example."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").rglob("*.py")]
HEAVY = {"aiohttp", "asyncio", "jsonschema", "openai", "rich", "temporalio", "typer", "yaml"}


@pytest.mark.parametrize("name", holdfast.__all__)
def test_every_name_is_there_and_says_what_it_is(name: str) -> None:
    assert inspect.getdoc(getattr(holdfast, name))


def test_every_name_that_is_there_is_listed() -> None:
    source = ROOT / "holdfast" / "api.py"
    imported = [node for node in ast.parse(source.read_text()).body if isinstance(node, ast.ImportFrom)]
    assert sorted(holdfast.__all__) == sorted(alias.name for node in imported for alias in node.names)


def test_it_loads_nothing_before_a_name_is_used() -> None:
    code = "import sys, holdfast; print(sorted(each for each in sys.modules if each.startswith('holdfast')))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout == "['holdfast']\n"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Agnet'"):
        getattr(holdfast, "Agnet")  # noqa: B009  # a type checker would refuse the name
    assert set(holdfast.__all__) <= set(dir(holdfast))


@pytest.mark.slow
def test_importing_it_brings_in_nothing_heavy() -> None:
    code = "import sys; from holdfast import *; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    assert HEAVY & set(done.stdout.split()) == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_it_offers_is_never_shown_under_a_longer_name(page: Path) -> None:
    text = page.read_text()
    blocks = [text] if page.suffix == ".py" else re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    longer = {
        alias.name
        for block in blocks
        for node in ast.walk(ast.parse(block))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("holdfast.core")
        for alias in node.names
    }
    assert longer & set(holdfast.__all__) == set()
