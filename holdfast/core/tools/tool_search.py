"""Tools that are too many to be shown: the two that stand in for them, and the search among them. Calls none.

A model that has `search_tools` and `call_tool` finds a tool by words, and calls it by its name. What runs, and what
rules, hooks and records see, is the call of that tool; only the transcript keeps what the model wrote.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, cast

from pydantic import JsonValue
from pydantic_core import to_json

from holdfast.core.base.bounds import TOOL_DESCRIPTION_CHARS_MAX
from holdfast.core.base.did_you_mean import nearest
from holdfast.core.base.errors import InvalidArguments
from holdfast.core.base.frozen import canonical, replace
from holdfast.core.base.safe_text import clamped
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.tools.tool_traits import ToolSchema, ToolTraits

SEARCH_TOOL: Final = "search_tools"
"""The tool that finds others."""

CALL_TOOL: Final = "call_tool"
"""The tool that calls them."""

WINDOW_SHARE: Final = 10
"""Schemas of MCP servers may take one part in so many of the model's context window: more would crowd out the work."""

BYTES_PER_TOKEN: Final = 4
"""How many bytes of a schema make a token, about: JSON of English words has 3.5 to 4.5."""

RESULTS_MAX: Final = 10
"""The most tools that one search returns."""

RESULT_BYTES_MAX: Final = 32 * 1024
"""The most that they take together; the best one is returned whatever its schema takes."""

QUERY_CHARS_MAX: Final = 1_000
"""How much of a query is read."""

_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_a-zA-Z]+")

_IN_NAME, _BEGINS_IN_NAME, _IN_DESCRIPTION, _BEGINS_IN_DESCRIPTION = 8, 4, 2, 1
"""What a query's word counts by where it stands, or where a word begins with it."""

_PREFIX_CHARS_MIN: Final = 3
"""A word of the query counts as another one's beginning from this length on."""


def too_many(traits: Sequence[ToolTraits], others: int, count_max: int, window: int | None) -> bool:
    """Return whether the MCP tools among `traits` are to be searched for instead of shown.

    That is when the agent's tools, with `others` of the loop's own, are more than `count_max`, or when the schemas of
    MCP servers take more than one part in WINDOW_SHARE of the model's context `window`, in tokens; none if unknown.
    """
    foreign = [each.described_bytes for each in traits if each.mcp is not None]
    if not foreign:
        return False
    crowded = window is not None and sum(foreign) * WINDOW_SHARE > window * BYTES_PER_TOKEN
    return crowded or len(traits) + others > count_max


def with_search(traits: Sequence[ToolTraits]) -> tuple[tuple[ToolTraits, ...], tuple[ToolSchema, ...]]:
    """Return the tools with those of MCP servers deferred behind the two that stand in for them, and the two's schemas.

    The others keep their places.
    """
    own = tuple(each for each in traits if each.mcp is None)
    deferred = tuple(replace(each, deferred=True) for each in traits if each.mcp is not None)
    servers = sorted({str(each.mcp) for each in deferred})
    schemas = (search_schema(len(deferred), servers), call_schema())
    stand_ins = (
        ToolTraits(name=SEARCH_TOOL, idempotent=True, required=("query",), described_bytes=len(canonical(schemas[0]))),
        ToolTraits(name=CALL_TOOL, described_bytes=len(canonical(schemas[1]))),
    )
    return (*own, *stand_ins, *deferred), schemas


def search_schema(count: int, servers: Sequence[str]) -> ToolSchema:
    """Return the schema of the tool that searches among `count` tools of `servers`."""
    text = (
        f"Search among {count} further tools, of {', '.join(servers)}, by words of their names and descriptions. "
        f"Returns at most {RESULTS_MAX}, best first, each with its name, description and the JSON Schema of its "
        f"arguments. Call one with {CALL_TOOL}."
    )
    return ToolSchema(
        name=SEARCH_TOOL,
        description=clamped(text, TOOL_DESCRIPTION_CHARS_MAX),
        parameters={
            "type": "object",
            "properties": {"query": {"type": "string", "description": "words of what the tool does"}},
            "required": ["query"],
            "additionalProperties": False,
        },
    )


def call_schema() -> ToolSchema:
    """Return the schema of the tool that calls another."""
    return ToolSchema(
        name=CALL_TOOL,
        description=f"Call a tool that {SEARCH_TOOL} has returned, by its name, with arguments that fit its schema.",
        parameters={
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "the tool's name"},
                "arguments": {"type": "object", "description": "its arguments"},
            },
            "required": ["name"],
            "additionalProperties": False,
        },
    )


def called_tool(call: ToolCall, tools: Mapping[str, ToolTraits]) -> ToolCall:
    """Return the call that `call` asks for: of the tool that a call of CALL_TOOL names, else `call` itself.

    One that names no tool to be searched for is marked malformed, with the nearest name.
    """
    if call.name != CALL_TOOL or call.name not in tools:
        return call
    name, arguments = call.arguments.get("name"), call.arguments.get("arguments", {})
    if call.malformed is not None:  # the record names the tool that was meant, as far as that is known
        return replace(call, name=name) if isinstance(name, str) and name in tools and tools[name].deferred else call
    if (
        not isinstance(name, str)
        or not isinstance(arguments, dict)
        or not call.arguments.keys() <= {"name", "arguments"}
    ):
        text = "give `name`, a text, and `arguments`, a JSON object, and nothing else"
        return replace(call, malformed=text)
    if name not in tools or not tools[name].deferred:
        names = [each for each, traits in tools.items() if traits.deferred]
        text = f"it names the tool {name[:80]!r}, {nearest(name, names)}; find one with {SEARCH_TOOL}"
        return replace(call, malformed=text)
    return replace(call, name=name, arguments=arguments, raw_arguments=None)


def ranked(query: str, schemas: Iterable[ToolSchema]) -> tuple[ToolSchema, ...]:
    """Return the tools in which words of `query` stand, best first; equals in their own order.

    A word counts more in a name than in a description, and more when fewer tools have it. A tool's whole name is best.
    """
    every = tuple(schemas)
    words = tuple(dict.fromkeys(_words(query[:QUERY_CHARS_MAX])))
    named = [(frozenset(_words(each.name)), frozenset(_words(each.description))) for each in every]
    scores = [[_score(word, name, about) for name, about in named] for word in words]
    totals = Counter[int]()
    for column in scores:
        rarity = (len(every) // max(1, sum(map(bool, column)))).bit_length()
        for place, score in enumerate(column):
            totals[place] += score * rarity
    whole = query.strip()
    for place, each in enumerate(every):
        if each.name == whole:
            totals[place] += 1_000_000
    best = sorted((place for place, score in totals.items() if score), key=lambda place: (-totals[place], place))
    return tuple(every[place] for place in best)


def query_of(arguments: Mapping[str, JsonValue]) -> str:
    """Return what a call of SEARCH_TOOL searches for. Raises InvalidArguments."""
    query = arguments.get("query")
    if not isinstance(query, str) or len(arguments) != 1:
        raise InvalidArguments("give `query`, a text, and nothing else")
    return query


def search_result(query: str, schemas: Iterable[ToolSchema]) -> str:
    """Return what a search answers: the best tools as JSON within the bounds, or that there are none."""
    every = tuple(schemas)
    found = ranked(query, every)
    shown: list[dict[str, JsonValue]] = []
    size = 0
    for each in found[:RESULTS_MAX]:
        entry = cast("dict[str, JsonValue]", each.model_dump(mode="json", exclude_none=True))
        size += len(to_json(entry))
        if shown and size > RESULT_BYTES_MAX:
            break
        shown.append(entry)
    if not shown:
        return (
            f"none of the {len(every)} tools has a word of {query[:80]!r} in its name or description; try other words"
        )
    return to_json({"tools": shown, "more": len(found) - len(shown)}).decode()


def _words(text: str) -> list[str]:
    return [each.lower() for each in _WORD.findall(text)]


def _score(word: str, name: frozenset[str], about: frozenset[str]) -> int:
    if word in name:
        return _IN_NAME
    if len(word) >= _PREFIX_CHARS_MIN and any(each.startswith(word) for each in name):
        return _BEGINS_IN_NAME
    if word in about:
        return _IN_DESCRIPTION
    begins = len(word) >= _PREFIX_CHARS_MIN and any(each.startswith(word) for each in about)
    return _BEGINS_IN_DESCRIPTION if begins else 0
