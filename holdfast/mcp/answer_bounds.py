"""Cuts the lists of a server's answers before the SDK reads them: validating each item takes the event loop's time."""

from __future__ import annotations

from typing import Any, Final, cast

PARTS_MAX: Final = 1_000
"""The most parts of a call's answer that are looked at. 200,000 would block the loop for seconds."""

LISTED_MAX: Final = 1_000
"""The most tools, resources or prompts of one server; what is beyond is left out, and said."""

_LISTS: Final = ("tools", "resources", "resourceTemplates", "prompts")


def cut(result: dict[str, Any]) -> None:
    """Cut the lists in the result of an answer; a last part of a call's says how many are left out.

    A list of what a server offers keeps one item over LISTED_MAX, so that whoever reads it sees that there are more.
    """
    for key in _LISTS:
        if isinstance(items := result.get(key), list):
            del cast("list[object]", items)[LISTED_MAX + 1 :]
    _cut_parts(result)
    if isinstance(of_task := result.get("result"), dict):
        _cut_parts(cast("dict[str, Any]", of_task))


def _cut_parts(result: dict[str, Any]) -> None:
    parts = result.get("content")
    if not isinstance(parts, list):
        return
    beyond = len(cast("list[object]", parts)) - PARTS_MAX
    if beyond > 0:
        parts[PARTS_MAX:] = [{"type": "text", "text": f"[{beyond:,} more parts are left out]"}]
