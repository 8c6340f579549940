"""Pydantic's problems in terms of YAML and JSON, which have lists and mappings, no tuples. Pure text."""

from __future__ import annotations

import re
from typing import Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from holdfast.core.base.bounds import ERROR_CHARS_MAX
from holdfast.core.base.safe_text import clamped

WORDS: Final = (
    (re.compile(r"^Value error, "), ""),
    (re.compile(r"\ba valid (?:tuple|list|set|frozenset)\b"), "a list"),
    (re.compile(r"\ba valid dictionary(?: or instance of \w+)?"), "a mapping of names to values"),
    (re.compile(r"^(?:Tuple|List|Set|Frozenset|Value) should(?= have)"), "The list should"),
    (re.compile(r"^Dictionary should"), "The mapping should"),
    (re.compile(r" after validation\b"), ""),
)
"""Pydantic's Python terms, and the terms of YAML and JSON in their place."""


def problem_text(problem: ErrorDetails) -> str:
    """Return what one of pydantic's problems says, without its place."""
    text = problem["msg"]
    for python, plain in WORDS:
        text = python.sub(plain, text)
    return text


def problems_text(error: ValidationError, whole: str = "arguments") -> str:
    """Return every problem in one line, each with its field; `whole` names what has none."""
    problems = [
        f"{'.'.join(str(part) for part in problem['loc']) or whole}: {problem_text(problem)}"
        for problem in error.errors(include_url=False, include_input=False, include_context=False)
    ]
    return clamped("; ".join(problems), ERROR_CHARS_MAX)
