"""Tools that OpenAI runs itself: what their options are, how they are asked for, how their calls are counted.

https://developers.openai.com/api/docs/guides/tools lists them. Those that need an output from outside are none of them,
nor is `image_generation`, whose pictures no answer has a place for; MCP servers are `mcp` of a definition. Imports no
client.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from holdfast.core.base.server_tools import ServerTool

_SEARCH: Final[Mapping[str, bool]] = MappingProxyType(
    dict.fromkeys(("external_web_access", "filters", "search_context_size", "user_location"), False)
)
_PREVIEW: Final[Mapping[str, bool]] = MappingProxyType(
    dict.fromkeys(("search_content_types", "search_context_size", "user_location"), False)
)
_FILES: Final[Mapping[str, bool]] = MappingProxyType({
    "vector_store_ids": True, "filters": False, "max_num_results": False, "ranking_options": False,
})  # fmt: skip
_CODE: Final[Mapping[str, bool]] = MappingProxyType({"container": False})

SERVER_TOOLS: Final[Mapping[str, Mapping[str, bool]]] = MappingProxyType({
    "web_search": _SEARCH,
    "web_search_2025_08_26": _SEARCH,
    "web_search_preview": _PREVIEW,
    "web_search_preview_2025_03_11": _PREVIEW,
    "file_search": _FILES,
    "code_interpreter": _CODE,
})  # fmt: skip
"""The types of tools, and their options with whether they must be given."""

OF_ITSELF: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType({
    "code_interpreter": MappingProxyType({"container": {"type": "auto"}}),
})  # fmt: skip
"""Options that the API demands and that have one usual value."""

CALL: Final = "_call"
"""How the types of items end that are calls of a tool, behind its name."""


def wire_tools(tools: Iterable[ServerTool]) -> list[dict[str, Any]]:
    """Return `tools` as a request has them."""
    return [{"type": tool.type, **OF_ITSELF.get(tool.type, {}), **tool.options} for tool in tools]


def called_tool(kind: str) -> str:
    """Return the tool of the provider's that an item of the type `kind` is a call of; empty where it is none."""
    return kind.removesuffix(CALL) if kind.endswith(CALL) else ""
