"""`McpServer`: where an MCP server is and what of it agents may use. A value; `holdfast.mcp` connects to it.

It holds no secret: where one belongs, `${NAME}` names an environment variable of the process that connects.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from holdfast.core.base.bounds import WORD_CHARS_MAX
from holdfast.core.base.frozen import Frozen

SERVERS_MAX: Final = 32
"""The most MCP servers of one worker."""

SERVER_NAME_CHARS_MAX: Final = 32
"""The longest name of a server: it begins the names of its tools, which have 64 characters at the most."""

CALL_SECONDS: Final = 60.0
"""How long one call may take unless the server's entry says otherwise."""

TASK_SECONDS: Final = 3600.0
"""How long a task may take that a server makes of a call, unless the server's entry says otherwise."""

ENTRIES_MAX: Final = 64
"""The most headers, variables or parts of a command."""

VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
"""A reference to an environment variable, within any text."""

_USER_INFO: Final = re.compile(r"//[^/@]*@")

ServerName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$", max_length=SERVER_NAME_CHARS_MAX)]

Entry = Annotated[str, Field(min_length=1, max_length=4 * WORD_CHARS_MAX)]


class McpServer(Frozen):
    """One MCP server: reached at a `url` (streamable HTTP), or a `command` that is started and talks over its stdio.

    `headers` go with every request to a `url`; `env` is what a command gets besides PATH, HOME and the like, and `cwd`
    its working directory. In the values of `headers`, `env`, `command`, `cwd` and `url`, `${NAME}` stands for the
    process's variable of that name.

    `prefix` begins the names that the model sees, by default the server's name and `_`. `tools` are those that agents
    may use, by the server's own names; none means all, without `tools_deny`.

    `trusted` believes the server's annotations: a tool that it calls read-only or idempotent is repeated after a lost
    worker. Any other call is made at most once. `timeout_seconds` is how long one call may take,
    and `task_seconds_max` a task that the server makes of it.
    """

    name: ServerName
    url: Annotated[str, Field(pattern=r"^https?://\S+$", max_length=2_000)] | None = None
    command: Annotated[tuple[Entry, ...], Field(max_length=ENTRIES_MAX)] = ()
    headers: Annotated[Mapping[Entry, str], Field(max_length=ENTRIES_MAX)] = Field(default_factory=dict[str, str])
    env: Annotated[Mapping[Entry, str], Field(max_length=ENTRIES_MAX)] = Field(default_factory=dict[str, str])
    cwd: Entry | None = None
    prefix: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]*$", max_length=SERVER_NAME_CHARS_MAX + 1)] | None = None
    tools: tuple[Entry, ...] | None = None
    tools_deny: tuple[Entry, ...] = ()
    trusted: bool = False
    timeout_seconds: float = Field(default=CALL_SECONDS, gt=0, le=24 * 3600)
    task_seconds_max: float = Field(default=TASK_SECONDS, gt=0, le=24 * 3600)

    @model_validator(mode="after")
    def _has_one_place(self) -> Self:
        if (self.url is None) is not bool(self.command):
            raise ValueError("a server has a `url` or a `command`; give one of them")
        beside = {"headers": self.headers} if self.command else {"env": self.env, "cwd": self.cwd}
        for field, value in beside.items():
            if value:
                kind = "started by a command" if self.command else "reached at a url"
                raise ValueError(f"`{field}` means nothing for a server that is {kind}; leave it out")
        return self

    @property
    def begins(self) -> str:
        """What the names of its tools begin with."""
        return f"{self.name}_" if self.prefix is None else self.prefix

    @property
    def place(self) -> str:
        """The URL without a password, or the command, as it was written: without the values of variables."""
        return _USER_INFO.sub("//", self.url, count=1) if self.url else " ".join(self.command)

    def offers(self, tool: str) -> bool:
        """Return whether agents may use the server's tool of that name."""
        return tool not in self.tools_deny and (self.tools is None or tool in self.tools)
