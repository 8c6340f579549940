"""Patterns on arguments: which values a place means, what matches, and that no text makes it slow."""

from __future__ import annotations

import time
from fnmatch import fnmatchcase
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue, TypeAdapter, ValidationError

from holdfast.core.base.argument_patterns import (
    ARGUMENT_PATTERN_CHARS_MAX,
    ARGUMENT_PATTERNS_MAX,
    ARGUMENT_PLACE_PARTS_MAX,
    ArgumentPatterns,
    glob_matches,
    matches_all,
    matches_some,
)
from tests.core.strategies import json_maps

letters = st.text(alphabet="ab?*", max_size=12)


@given(glob=letters, text=st.text(alphabet="ab", max_size=20))
def test_globs_mean_what_they_mean_elsewhere(glob: str, text: str) -> None:
    assert glob_matches(glob, text) is fnmatchcase(text, glob)


@pytest.mark.parametrize(
    ("glob", "text", "matches"),
    [
        ("", "", True),
        ("", "a", False),
        ("*", "", True),
        ("a*a", "a", False),
        ("[a]", "a", False),
        ("[a]", "[a]", True),
        ("a.c", "abc", False),
        ("A", "a", False),
        ("a?c", "a\nc", True),
        ("*@example.org", "eve@example.org\n", False),
        ("*b?d*", "a\nbcd\n", True),
    ],
)
def test_a_pattern_is_about_the_whole_text_and_only_stars_and_question_marks_stand_for_others(
    glob: str, text: str, *, matches: bool
) -> None:
    assert glob_matches(glob, text) is matches


def test_no_text_makes_a_pattern_slow() -> None:
    """Sixty stars over a megabyte of what nearly fits: a matcher that goes back would take years."""
    begun = time.monotonic()
    assert not glob_matches("*a" * 60 + "*b", "a" * 1_000_000)
    assert not glob_matches("*a?a" * 40 + "*b*", "a" * 100_000)
    assert time.monotonic() - begun < 60


@pytest.mark.parametrize(
    ("value", "glob", "matches"),
    [
        ("500", "500", True),
        (500, "500", True),
        (500.0, "500", True),
        (-0.0, "0", True),
        (0.5, "0.5", True),
        (True, "true", True),
        (None, "null", True),
        ([], "[]", True),
        ({}, "{}", True),
        ("true", "true", True),
    ],
)
def test_what_is_no_text_is_matched_as_json_writes_it(value: object, glob: str, *, matches: bool) -> None:
    given_arguments: Any = {"a": value}
    assert matches_some({"a": glob}, given_arguments) is matches
    assert matches_all({"a": glob}, given_arguments) is matches


def test_of_several_values_one_is_enough_to_ask_and_all_are_needed_to_exempt() -> None:
    patterns = {"to": "*@example.org"}
    values: list[JsonValue] = [["ann@example.org", "eve@evil.test"], {"x": "ann@example.org", "y": ["eve@evil.test"]}]
    for value in values:
        assert matches_some(patterns, {"to": value})
        assert not matches_all(patterns, {"to": value})
    assert matches_all(patterns, {"to": ["ann@example.org", ["bob@example.org"]]})


def test_an_argument_that_is_not_there_matches_nothing_not_even_a_star() -> None:
    for arguments in ({}, {"b": 1}, {"A": 1}):
        assert not matches_some({"a": "*"}, arguments)
        assert not matches_all({"a": "*"}, arguments)


def test_a_path_leads_into_objects_and_through_lists() -> None:
    arguments: Any = {"orders": [{"total": {"eur": 5}}, {"total": {"eur": 900}}], "a.b": 1, "a": {"b": 2}}
    assert matches_some({"orders.total.eur": "900"}, arguments)
    assert not matches_all({"orders.total.eur": "900"}, arguments)
    assert not matches_some({"orders.total.usd": "*"}, arguments)
    assert matches_some({"a.b": "1"}, arguments), "a name with a dot in it"
    assert matches_some({"a.b": "2"}, arguments)
    assert not matches_all({"a.b": "1"}, arguments)


def test_a_list_of_which_one_element_lacks_the_place_exempts_nothing() -> None:
    arguments: Any = {"to": [{"domain": "example.org"}, {"address": "eve@evil.test"}]}
    assert matches_some({"to.domain": "example.org"}, arguments)
    assert not matches_all({"to.domain": "example.org"}, arguments)


def test_all_patterns_must_match() -> None:
    assert matches_some({"a": "1", "b": "2"}, {"a": 1, "b": 2})
    assert not matches_some({"a": "1", "b": "2"}, {"a": 1, "b": 3})
    assert not matches_some({"a": "1", "b": "2"}, {"a": 1})
    assert matches_some({}, {})


@given(patterns=st.dictionaries(st.sampled_from(["a", "a.b", "b"]), letters, max_size=2), arguments=json_maps)
def test_what_exempts_would_also_ask(patterns: dict[str, str], arguments: dict[str, JsonValue]) -> None:
    assert not matches_all(patterns, arguments) or matches_some(patterns, arguments)


@pytest.mark.parametrize(
    ("patterns", "said"),
    [
        ({"": "x"}, "'' is not a place"),
        ({"a..b": "x"}, "'a..b' is not a place"),
        ({".a": "x"}, "'.a' is not a place"),
        ({".".join("a" * (ARGUMENT_PLACE_PARTS_MAX + 1)): "x"}, "has 9 parts, at most 8"),
        ({"a": "x" * (ARGUMENT_PATTERN_CHARS_MAX + 1)}, "at most 200 characters"),
        ({f"a{number}": "x" for number in range(ARGUMENT_PATTERNS_MAX + 1)}, "at most 16 items"),
        ({"a": 5}, "valid string"),
        ({"a": None}, "valid string"),
        ({"a": ["x"]}, "valid string"),
    ],
)
def test_what_is_no_pattern_is_refused(patterns: object, said: str) -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(ArgumentPatterns)
    with pytest.raises(ValidationError, match=said):
        adapter.validate_python(patterns)
