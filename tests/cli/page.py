"""docs/cli.md as data: its sections and tables, and the JSON examples beside it. Judges nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
EXAMPLES = PAGE.parent / "schema" / "cli.json"


def section(heading: str) -> str:
    """Return the text below the heading that begins with these words, up to the next one."""
    parts = re.split(r"^## (.+)\n", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    [text] = [
        text for title, text in zip(parts[1::2], parts[2::2], strict=True) if f"{title} ".startswith(f"{heading} ")
    ]
    return text


def rows(heading: str, table: int = -1) -> list[list[str]]:
    """Return the body rows of the section's last table, or of another one."""
    tables = re.findall(r"(?:^\|.*\n)+", section(heading), flags=re.MULTILINE)
    lines = tables[table].splitlines()[2:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def options(heading: str) -> list[list[str]]:
    """Return the body rows of the section's table of options; none where it has only common ones."""
    headers = re.findall(r"^\| (\w+) \|.*\n\|---", section(heading), flags=re.MULTILINE)
    return rows(heading, headers.index("option")) if "option" in headers else []


def common_options(commands: Sequence[str]) -> dict[str, set[str]]:
    """Return the options that several commands take, each with those of `commands` that take it."""
    found: dict[str, set[str]] = {}
    for option, *_, where in rows("Common options"):
        named = set(re.findall(r"`([\w-]+)`", where))
        assert named <= set(commands), named - set(commands)
        found[option.strip("`")] = set(commands) - named if where.startswith("all but") else named
    return found


def first_words(heading: str) -> list[str]:
    """Return what stands in backticks in the first column of the section's table."""
    return [row[0].strip("`") for row in rows(heading)]


def examples(command: str) -> list[Any]:
    """Return the examples of what a command prints with `--json`."""
    found: dict[str, list[Any]] = json.loads(EXAMPLES.read_text(encoding="utf-8"))
    return found[command]


def keys(example: Any) -> set[str]:  # noqa: ANN401  # what JSON holds
    """Return the names of an example's fields, nested ones with a dot."""
    found: set[str] = set()
    for name, value in example.items():
        found.add(name)
        if name == "usage":
            found |= {f"usage.{inner}" for inner in value}
    return found
