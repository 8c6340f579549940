"""Patterns: what they match, what they refuse, and that none of them takes long."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.repo_detective.globbing import PATTERN_CHARS_MAX, PATTERN_NAMES_MAX, Glob
from holdfast.core.base.errors import InvalidInput


def matches(pattern: str, path: str) -> bool:
    glob = Glob.parse(pattern)
    places = glob.start
    for name in path.split("/"):
        places = glob.after(places, name)
    return glob.ended(places)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("**/*", "a"),
        ("**/*", "a/b/c"),
        ("**", "a/b"),
        ("", "a/b"),
        (".", "a/b"),
        ("*.py", "a.py"),
        ("*.py", "deep/down/a.py"),
        ("./src/*.py", "src/a.py"),
        ("src/", "src/deep/a.py"),
        ("src/**", "src/deep/a.py"),
        ("src/**/test_*.py", "src/test_a.py"),
        ("src/**/test_*.py", "src/x/y/test_a.py"),
        ("**/x/**/y", "a/x/b/x/c/y"),
        ("a?[bc].txt", "axb.txt"),
        ("[[]x", "[x"),
    ],
)
def test_a_pattern_matches(pattern: str, path: str) -> None:
    assert matches(pattern, path)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [("src/*.py", "src/deep/a.py"), ("src/*.py", "other/a.py"), ("*.py", "a.pyc"), ("a/**/b", "a/c"), ("A.py", "a.py")],
)
def test_a_pattern_does_not_match(pattern: str, path: str) -> None:
    assert not matches(pattern, path)


@pytest.mark.parametrize("pattern", ["/etc/*", "../*", "a/../../b", "a\0b"])
def test_a_pattern_that_leads_out_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidInput, match="inside the folder"):
        Glob.parse(pattern)


def test_a_huge_pattern_is_refused_with_its_limit() -> None:
    with pytest.raises(InvalidInput, match=f"at most {PATTERN_CHARS_MAX}"):
        Glob.parse("*" * (PATTERN_CHARS_MAX + 1))
    with pytest.raises(InvalidInput, match=f"at most {PATTERN_NAMES_MAX}"):
        Glob.parse("**/" * PATTERN_NAMES_MAX + "*")


@pytest.mark.parametrize(
    "pattern", ["*a" * 90 + "b", "**/" * 15 + "b", "**/*a*a*a*a*/" * 7 + "b", "[" * 200, "*?" * 99 + "b"]
)
def test_no_pattern_is_catastrophic(pattern: str) -> None:
    began = time.monotonic()
    assert not matches(pattern, "/".join(["a" * 255] * 30))
    assert time.monotonic() - began < 60


@given(st.text("ab*?[]!-^\\/.&|~", max_size=40), st.lists(st.text("ab[]!-.", min_size=1, max_size=8), max_size=5))
def test_any_pattern_is_refused_or_answers(pattern: str, names: list[str]) -> None:
    try:
        glob = Glob.parse(pattern)
    except InvalidInput:
        return
    places = glob.start
    for name in names:
        places = glob.after(places, name)
    assert glob.ended(places) in (True, False)
