"""Prints how a server's tools differ from those that a run has pinned: a unified diff for each. Asks nobody."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from difflib import unified_diff
from typing import Final

from rich.markup import escape

from holdfast.cli.screens import output
from holdfast.core.base.safe_text import printable
from holdfast.core.tools.mcp_catalog import McpChange

AS_TEXT: Final = ("description", "tool", "server")
"""The fields of a tool that are no JSON."""


def show(server: str, changes: Sequence[McpChange], *, as_json: bool) -> None:
    """Print the changes of a server's tools, the newer side as it is now."""
    if as_json:
        output.as_json([each.model_dump(mode="json") for each in changes])
        return
    screen = output.console()
    if not changes:
        screen.print(escape(f"the tools of {server} are as that run has pinned them"))
    for each in changes:
        screen.print(escape(printable(f"{each.kind} {each.name}")))
        for line in _diff(each):
            screen.print(escape(printable(line)))


def _diff(change: McpChange) -> Iterator[str]:
    for field, (before, after) in change.fields.items():
        old, new = (_lines(field, text) for text in (before, after))
        yield from unified_diff(old, new, f"{change.name} {field}, pinned", f"{change.name} {field}, now", lineterm="")


def _lines(field: str, text: str) -> list[str]:
    """Return a field's text by lines: JSON with one entry a line, so that a diff shows what is new in it."""
    if field in AS_TEXT:
        return text.splitlines()
    return json.dumps(json.loads(text), indent=2, ensure_ascii=False).splitlines()
