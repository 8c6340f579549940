"""Choosing an agent's tools from those on offer, and naming what is missing. Imports no tool module."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from difflib import get_close_matches

from holdfast.core.definition import AgentDefinition
from holdfast.core.errors import InvalidInput, UnknownTool
from holdfast.core.limits import NAMES_TOLD_MAX, TOOLS_MAX
from holdfast.core.tools import AnyTool


def resolve(definition: AgentDefinition, offered: Sequence[AnyTool]) -> tuple[AnyTool, ...]:
    """Return the tools `definition` gets of those `offered`, in its own order (or theirs, when it takes all).

    Raises UnknownTool for a name that is not offered, InvalidInput for two tools of one name.
    """
    by_name = {tool.name: tool for tool in offered}
    if len(by_name) < len(offered):
        twice = sorted({tool.name for tool in offered if by_name[tool.name] is not tool})
        raise InvalidInput(f"two tools are called {twice[0]!r}: rename one with @tool(name=...)")
    wanted = definition.tools if definition.tools is not None else tuple(by_name)
    for name in (*wanted, *definition.tools_deny):
        if name not in by_name:
            raise UnknownTool(f"agent {definition.name!r} names the tool {name!r}, {nearest(name, by_name)}")
    chosen = tuple(by_name[name] for name in dict.fromkeys(wanted) if name not in definition.tools_deny)
    if len(chosen) > TOOLS_MAX:
        text = f"agent {definition.name!r} gets {len(chosen)} tools, at most {TOOLS_MAX} are allowed"
        raise InvalidInput(f"{text}; name the ones it needs under `tools`")
    return chosen


def nearest(name: str, known: Collection[str]) -> str:
    """Return the end of a sentence about an unknown name: the nearest known one, or all of them."""
    if close := get_close_matches(name, known, n=1):
        return f"which is not there; did you mean {close[0]!r}?"
    listed = ", ".join(sorted(known)[:NAMES_TOLD_MAX]) or "none"
    more = f" and {len(known) - NAMES_TOLD_MAX} more" if len(known) > NAMES_TOLD_MAX else ""
    return f"which is not there; there are: {listed}{more}"
