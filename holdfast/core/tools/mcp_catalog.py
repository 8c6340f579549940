"""`McpCatalog`: the tools of MCP servers as they were listed, under names that a model takes. Connects to nothing.

A catalog is a value with a digest: a run that keeps it sees the same descriptions and schemas to its end, whatever the
server says meanwhile, and two catalogs can be compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Final, Literal

from pydantic import Field, JsonValue
from pydantic_core import to_json

from holdfast.core.base.bounds import NAME_CHARS_MAX
from holdfast.core.base.call_digest import Digest
from holdfast.core.base.frozen import Frozen, canonical, is_empty, is_none, replace
from holdfast.core.tools.mcp_servers import InlineServer
from holdfast.core.tools.tool_traits import RESERVED_NAMES

_NOT_LEGAL: Final = re.compile(r"[^A-Za-z0-9_-]")

MARK_CHARS: Final = 8
"""How many digits of a digest make a name distinct that is too long, or taken."""


class McpAnnotations(Frozen):
    """What a server claims of a tool: it counts only where the server is trusted. None where it says nothing."""

    title: str | None = None
    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None


class McpTool(Frozen):
    """A server's tool: `tool` is what the server calls it, `name` what the model does.

    `parameters` and `output` are JSON Schemas; without `output` the server promises no form of its answers. `tasks` is
    whether the server can make a task of a call; absent where it cannot.
    """

    name: str
    server: str
    tool: str
    description: str = ""
    parameters: Mapping[str, JsonValue]
    output: JsonValue = None
    annotations: McpAnnotations = McpAnnotations()
    tasks: Literal[True] | None = Field(default=None, exclude_if=is_none)

    @property
    def digest(self) -> Digest:
        """The fingerprint of everything the server said of it: its description, both schemas, its annotations."""
        return sha256(canonical(self)).hexdigest()

    @property
    def repeatable(self) -> bool:
        """Whether the server says that a second call with the same arguments changes nothing more."""
        return bool(self.annotations.read_only or self.annotations.idempotent)


class McpCatalog(Frozen):
    """The tools of one server or several, in the servers' order, and what was left out, a line each."""

    tools: tuple[McpTool, ...] = ()
    left_out: tuple[str, ...] = ()
    inline: tuple[InlineServer, ...] = Field(default=(), exclude_if=is_empty)
    """The servers that the agent's definition describes: calls reach them as it says."""

    @property
    def digest(self) -> Digest:
        """The fingerprint of the catalog."""
        return sha256(canonical(self)).hexdigest()

    def of(self, server: str) -> McpCatalog:
        """Return the catalog of that server's tools alone."""
        return McpCatalog(tools=tuple(each for each in self.tools if each.server == server))

    def changes_since(self, older: McpCatalog) -> tuple[McpChange, ...]:
        """Return what is different from an older catalog, in this one's order, removed tools last."""
        before, now = ({each.name: each for each in catalog.tools} for catalog in (older, self))
        changed = [_change(before.get(name), tool) for name, tool in now.items() if before.get(name) != tool]
        return (*changed, *(McpChange(name=name, kind="removed") for name in before if name not in now))


class McpChange(Frozen):
    """How a tool differs from what it was: `fields` are what is new, each with the text before and after."""

    name: str
    kind: Literal["added", "changed", "removed"]
    fields: Mapping[str, tuple[str, str]] = Field(default_factory=dict[str, tuple[str, str]])


def _change(before: McpTool | None, now: McpTool) -> McpChange:
    if before is None:
        return McpChange(name=now.name, kind="added")
    old, new = (
        {name: _text(getattr(tool, name)) for name in McpTool.model_fields if name != "name"} for tool in (before, now)
    )
    different = {name: (old[name], new[name]) for name in new if old[name] != new[name]}
    return McpChange(name=now.name, kind="changed", fields=different)


def legal_names(tools: Iterable[McpTool], prefixes: Mapping[str, str]) -> tuple[McpTool, ...]:
    """Return the tools with names that begin as `prefixes` say, by server, are legal for models, and distinct.

    A name that has to be changed for that ends with a few digits of its digest, so that it does not depend on which
    other tools there are.
    """
    named: list[McpTool] = []
    taken = set(RESERVED_NAMES)
    for tool in tools:
        wanted = f"{prefixes[tool.server]}{tool.tool}"
        name = _NOT_LEGAL.sub("_", wanted)
        if name != wanted or len(name) > NAME_CHARS_MAX or not name or name in taken:
            mark = sha256(f"{tool.server}\0{tool.tool}".encode("utf-8", "replace")).hexdigest()[:MARK_CHARS]
            name = f"{name[: NAME_CHARS_MAX - MARK_CHARS - 1]}_{mark}"
        if name not in taken:
            taken.add(name)
            named.append(replace(tool, name=name))
    return tuple(named)


def _text(value: object) -> str:
    """Return a field of a tool as text: texts as they are, everything else as JSON."""
    return value if isinstance(value, str) else to_json(value).decode()
