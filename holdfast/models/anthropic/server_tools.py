"""Tools that Anthropic runs itself: what their options are, how they are asked for, how their calls are counted.

https://docs.claude.com/en/docs/agents-and-tools/tool-use/overview lists them. Imports no client.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from holdfast.core.base.server_tools import COUNTED_CALLS_MAX, OTHER, ServerTool, counted_calls
from holdfast.models.event_stream import fields_of
from holdfast.models.lenient_values import count_of, text_of

_SEARCH: Final = ("allowed_callers", "allowed_domains", "blocked_domains", "max_uses", "user_location")
_FETCH: Final = (
    "allowed_callers",
    "allowed_domains",
    "blocked_domains",
    "citations",
    "max_content_tokens",
    "max_uses",
    "url_sources",
)
_CODE: Final = ("allowed_callers",)

SERVER_TOOLS: Final[Mapping[str, Mapping[str, bool]]] = MappingProxyType({
    kind: MappingProxyType(dict.fromkeys(options, False))
    for kind, options in {
        "web_search": _SEARCH,
        "web_search_20250305": _SEARCH,
        "web_search_20260209": _SEARCH,
        "web_search_20260318": (*_SEARCH, "response_inclusion"),
        "web_fetch": _FETCH,
        "web_fetch_20250910": _FETCH,
        "web_fetch_20260209": _FETCH,
        "web_fetch_20260309": (*_FETCH, "use_cache"),
        "web_fetch_20260318": (*_FETCH, "response_inclusion", "use_cache"),
        "code_execution": _CODE,
        "code_execution_20250522": _CODE,
        "code_execution_20250825": _CODE,
        "code_execution_20260120": _CODE,
        "code_execution_20260521": _CODE,
    }.items()
})  # fmt: skip
"""The types of tools, and their options with whether they must be given."""

VERSIONS: Final[Mapping[str, str]] = MappingProxyType({
    "web_search": "web_search_20250305",
    "web_fetch": "web_fetch_20250910",
    "code_execution": "code_execution_20250825",
})  # fmt: skip
"""What a type without a version means: the one that the most models take."""

CODE_EXECUTION: Final = "code_execution"
"""How the names of that tool's parts end: `bash_code_execution`, `text_editor_code_execution`."""

REQUESTS: Final = "_requests"
"""How the counts of `usage.server_tool_use` end, behind a tool's name."""


def wire_tools(tools: Iterable[ServerTool]) -> list[dict[str, Any]]:
    """Return `tools` as a request has them."""
    return [{"type": VERSIONS.get(tool.type, tool.type), "name": tool.name, **tool.options} for tool in tools]


def server_calls(blocks: Iterable[Mapping[str, Any]], usage: object) -> dict[str, int]:
    """Return how many calls of its own tools the provider made, by name.

    They are counted by their blocks; where the usage has more, those of answers that it left out are in it.
    """
    counts = counted_calls(_names(blocks))
    for field, value in fields_of(fields_of(usage).get("server_tool_use")).items():
        name, count = field.removesuffix(REQUESTS), min(count_of(value) or 0, COUNTED_CALLS_MAX)
        if field.endswith(REQUESTS) and (name in counts or name in VERSIONS) and count > counts.get(name, 0):
            counts[name] = count
    return counts


def tool_of(block: Mapping[str, Any]) -> str:
    """Return the tool of the provider's that a block is a call of; empty where it is none."""
    if block["type"] == "mcp_tool_use":
        return "mcp"
    if block["type"] != "server_tool_use":
        return ""
    name = text_of(block.get("name"))
    return CODE_EXECUTION if name.endswith(CODE_EXECUTION) else name or OTHER


def _names(blocks: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    return filter(None, map(tool_of, blocks))
