"""`ServerTool`: a tool that a model's provider runs itself, as a definition names it. Knows no API."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue
from pydantic_core import to_json

from holdfast.core.base.bounds import NAME_CHARS_MAX, PRICE_USD_MAX
from holdfast.core.base.frozen import Frozen, is_none
from holdfast.core.base.json_values import PortableMap
from holdfast.core.base.names import distinct

SERVER_TOOLS_MAX: Final = 16
"""The most tools of the provider's that an agent may name."""

OPTIONS_BYTES_MAX: Final = 8 * 1024
"""The most that the options of one may take, in bytes of JSON: they are a part of every request."""

COUNTED_TOOLS_MAX: Final = 32
"""The most tools of one answer whose calls are counted by name; further ones count as `other`."""

COUNTED_CALLS_MAX: Final = 10_000
"""The most calls of one tool that are counted in one answer."""

OTHER: Final = "other"

VERSION: Final = re.compile(r"(_preview)?(_\d{8}|_\d{4}_\d{2}_\d{2})?$")
"""What providers add to a tool's name for its versions."""


def _is_small(options: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    for name in ("type", "name"):
        if name in options:
            raise ValueError(f"{name!r} is no option; it follows from the tool's `type`")
    size = len(to_json(options))
    if size > OPTIONS_BYTES_MAX:
        raise ValueError(f"they have {size:,} bytes of JSON, at most {OPTIONS_BYTES_MAX:,} are sent; shorten them")
    return options


class ServerTool(Frozen):
    """A tool that the provider runs within a model call, such as `web_search`: no hook or approval sees its calls.

    `type` is the API's word for it, with or without a version, `options` are further fields of it, in the API's terms:
    no place for secrets. `usd_per_call` is what the provider asks for a call of it, in US dollars; none is unknown.
    """

    type: str = Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=NAME_CHARS_MAX)
    options: Annotated[PortableMap, AfterValidator(_is_small)] = Field(
        default_factory=dict[str, JsonValue], exclude_if=operator.not_
    )
    usd_per_call: float | None = Field(default=None, ge=0, le=PRICE_USD_MAX, exclude_if=is_none)

    @property
    def name(self) -> str:
        """The tool's name without a version: as the model calls it, and as its calls are counted."""
        return VERSION.sub("", self.type)


def _server_tool(value: object) -> object:
    return {"type": value} if isinstance(value, str) else value


def _distinct_names(tools: tuple[ServerTool, ...]) -> tuple[ServerTool, ...]:
    distinct(tuple(tool.name for tool in tools))
    return tools


ServerTools = Annotated[
    tuple[
        Annotated[ServerTool, BeforeValidator(_server_tool, json_schema_input_type=str | ServerTool)],
        ...,
    ],
    Field(max_length=SERVER_TOOLS_MAX),
    AfterValidator(_distinct_names),
]
"""Tools of the provider's; a type is enough for one without options. No tool is named twice, in whatever versions."""

ServerToolCalls = Annotated[
    Mapping[
        Annotated[str, Field(min_length=1, max_length=NAME_CHARS_MAX)],
        Annotated[int, Field(gt=0, le=COUNTED_CALLS_MAX)],
    ],
    Field(max_length=COUNTED_TOOLS_MAX + 1),
]
"""How many calls of each of the provider's tools were made, by name."""


def counted_calls(names: Iterable[str]) -> dict[str, int]:
    """Return how often each name stands in `names`, within the bounds of `ServerToolCalls`."""
    counts = dict[str, int]()
    for given in names:
        name = given[:NAME_CHARS_MAX] or OTHER
        if name not in counts and len(counts) >= COUNTED_TOOLS_MAX:
            name = OTHER
        counts[name] = min(counts.get(name, 0) + 1, COUNTED_CALLS_MAX)
    return counts


def joined_calls(all_counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the sum of several counts, in the order in which the names first come."""
    sums = dict[str, int]()
    for counts in all_counts:
        for name, count in counts.items():
            sums[name] = sums.get(name, 0) + count
    return sums


def calls_cost(calls: Mapping[str, int], tools: Iterable[ServerTool]) -> tuple[float, tuple[str, ...]]:
    """Return what `calls` cost in US dollars by the prices of `tools`, and the names of those without a price."""
    prices = {tool.name: tool.usd_per_call for tool in tools}
    cost = sum(count * (prices.get(name) or 0.0) for name, count in calls.items())
    return cost, tuple(name for name in calls if prices.get(name) is None)
