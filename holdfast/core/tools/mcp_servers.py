"""`McpServer`: where an MCP server is and what of it agents may use. A value; `holdfast.mcp` connects to it.

It holds no secret: where one belongs, `${NAME}` names an environment variable of the process that connects, and
`${file:PATH}` a file that it can read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from holdfast.core.base.bounds import SECONDS_MAX, WORD_CHARS_MAX
from holdfast.core.base.frozen import Frozen

SERVERS_MAX: Final = 32
"""The most MCP servers of one worker."""

SERVER_NAME_CHARS_MAX: Final = 32
"""The longest name of a server: it begins the names of its tools, which have 64 characters at the most."""

CALL_SECONDS: Final = 60.0
"""How long one call may take unless the server's entry says otherwise."""

ANSWER_SECONDS: Final = 7 * 24 * 3600.0
"""How long a person may take to answer what the server asks, unless its entry says otherwise."""

START_SECONDS: Final = 30.0
"""How long a server may take to start unless its entry says otherwise: `npx` fetches a package in that time."""

START_SECONDS_MAX: Final = 80.0
"""The most that an entry may say: listing a run's servers takes attempts of 90 s (`workflows/timeouts.py`)."""

TASK_SECONDS: Final = 3600.0
"""How long a task may take that a server makes of a call, unless the server's entry says otherwise."""

ENTRIES_MAX: Final = 64
"""The most headers, variables or parts of a command."""

TENANT: Final = "${tenant}"
"""Stands for the run's tenant, also within the other references."""

REFERENCE: Final = re.compile(r"\$\{(?:file:([^{}]+)|([A-Za-z_][A-Za-z0-9_]*))\}")
"""A reference to a file, or to a variable, once the tenant is in its place."""

NESTED_TENANT: Final = re.compile(r"\$\{[A-Za-z0-9_]*\$\{tenant\}")
"""The tenant within a variable's name."""

TENANT_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
"""A tenant that may stand in a path or a variable's name: it leads to no other folder."""

_USER_INFO: Final = re.compile(r"//[^/@]*@")

ServerName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$", max_length=SERVER_NAME_CHARS_MAX)]

Entry = Annotated[str, Field(min_length=1, max_length=4 * WORD_CHARS_MAX)]


class McpOAuth(Frozen):
    """How a worker gets access tokens for a server: by its own client credentials, or by a refresh token in a file.

    `client_auth` is how the client shows its secret to `token_url`: in the header, or in the form. `resource` is what
    the token is to be good for (RFC 8707), by default the server's `url`; an empty one is not sent. A rotated refresh
    token replaces the file. Values may refer to variables, files and the tenant, as those of a server's entry.
    """

    token_url: Annotated[str, Field(pattern=r"^https?://\S+$", max_length=2_000)]
    client_id: Entry
    client_secret: Entry | None = None
    client_auth: Literal["basic", "post"] = "basic"
    scope: Entry | None = None
    audience: Entry | None = None
    resource: Annotated[str, Field(max_length=2_000)] | None = None
    refresh_token_file: Entry | None = None

    @model_validator(mode="after")
    def _has_a_grant(self) -> Self:
        if self.client_secret is None and self.refresh_token_file is None:
            raise ValueError("`client_secret` is missing; only a `refresh_token_file` goes without")
        return self


class McpServer(Frozen):
    """One MCP server: reached at a `url` (streamable HTTP), or a `command` that is started and talks over its stdio.

    `headers` go with every request to a `url`; `env` is what a command gets besides PATH, HOME and the like, and `cwd`
    its working directory. In the values of `headers`, `env`, `command`, `cwd` and `url`, `${NAME}` stands for the
    process's variable of that name.

    `oauth` gets the token that goes with each request to a `url`. `${tenant}` is the run's tenant, and `${file:PATH}`
    the content of a file, read anew for each request: `${file:/secrets/${tenant}/token}`.

    `prefix` begins the names that the model sees, by default the server's name and `_`. `tools` are those that agents
    may use, by the server's own names; none means all, without `tools_deny`.

    `trusted` believes the server's annotations: a tool that it calls read-only or idempotent is repeated after a lost
    worker. Any other call is made at most once.

    `start_timeout_seconds` is how long the server may take to start and to say what it is, `timeout_seconds` how long
    one call may take, `answer_seconds` how long a person may take to answer what the server asks meanwhile, and
    `task_seconds_max` how long a task may take that the server makes of a call.

    A server that a command starts lives as long as its worker: when another process of it answers a run, the model is
    told that what it remembered is gone. `stateless` says that it remembers nothing.
    """

    name: ServerName
    url: Annotated[str, Field(pattern=r"^https?://\S+$", max_length=2_000)] | None = None
    command: Annotated[tuple[Entry, ...], Field(max_length=ENTRIES_MAX)] = ()
    headers: Annotated[Mapping[Entry, str], Field(max_length=ENTRIES_MAX)] = Field(default_factory=dict[str, str])
    env: Annotated[Mapping[Entry, str], Field(max_length=ENTRIES_MAX)] = Field(default_factory=dict[str, str])
    cwd: Entry | None = None
    oauth: McpOAuth | None = None
    prefix: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]*$", max_length=SERVER_NAME_CHARS_MAX + 1)] | None = None
    tools: tuple[Entry, ...] | None = None
    tools_deny: tuple[Entry, ...] = ()
    trusted: bool = False
    timeout_seconds: float = Field(default=CALL_SECONDS, gt=0, le=24 * 3600)
    answer_seconds: float = Field(default=ANSWER_SECONDS, gt=0, le=SECONDS_MAX)
    stateless: bool = False
    start_timeout_seconds: float = Field(default=START_SECONDS, gt=0, le=START_SECONDS_MAX)
    task_seconds_max: float = Field(default=TASK_SECONDS, gt=0, le=24 * 3600)

    @model_validator(mode="after")
    def _has_one_place(self) -> Self:
        if (self.url is None) is not bool(self.command):
            raise ValueError("a server has a `url` or a `command`; give one of them")
        if self.stateless and self.url is not None:
            raise ValueError("`stateless` means nothing for a server that is reached at a url; leave it out")
        beside = {"headers": self.headers, "oauth": self.oauth} if self.command else {"env": self.env, "cwd": self.cwd}
        for field, value in beside.items():
            if value:
                kind = "started by a command" if self.command else "reached at a url"
                raise ValueError(f"`{field}` means nothing for a server that is {kind}; leave it out")
        if self.oauth is not None and any(name.lower() == "authorization" for name in self.headers):
            raise ValueError("`oauth` makes the header `Authorization`; leave one of them out")
        return self

    @property
    def is_per_tenant(self) -> bool:
        """Whether its place or its credentials depend on the run's tenant: then no two tenants share a connection."""
        return any(TENANT in text for text in self._texts)

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables that it refers to, but for those with the tenant in their names."""
        found = (match[2] for text in self._texts for match in REFERENCE.finditer(text.replace(TENANT, "")))
        return tuple(dict.fromkeys(filter(None, found)))

    @property
    def _texts(self) -> tuple[str, ...]:
        texts = (self.url, self.cwd, *self.command, *self.headers.values(), *self.env.values())
        oauth = () if self.oauth is None else dict(self.oauth).values()
        return tuple(text for text in (*texts, *oauth) if text)

    @property
    def tool_prefix(self) -> str:
        """What the names of its tools begin with."""
        return f"{self.name}_" if self.prefix is None else self.prefix

    @property
    def place(self) -> str:
        """The URL without a password, or the command, as it was written: without the values of variables."""
        return _USER_INFO.sub("//", self.url, count=1) if self.url else " ".join(self.command)

    def offers(self, tool: str) -> bool:
        """Return whether agents may use the server's tool of that name."""
        return tool not in self.tools_deny and (self.tools is None or tool in self.tools)


class InlineServer(McpServer):
    """An MCP server in an agent's definition. It is a client's word, so it may say less than a worker's file.

    A definition travels through histories: it holds no headers, refers to no variable of the worker's, and does not say
    that the server is to be trusted.
    """

    @model_validator(mode="after")
    def _says_no_more_than_a_client_may(self) -> Self:
        if self.trusted:
            raise ValueError("only a worker's mcp.yaml can say that a server is `trusted`; leave it out")
        if self.headers or self.oauth:
            field = "headers" if self.headers else "oauth"
            raise ValueError(f"`{field}` would stand in histories; put a server that needs it in the worker's mcp.yaml")
        if self.url and _USER_INFO.search(self.url):
            raise ValueError("the `url` holds a name or password; put such a server in the worker's mcp.yaml")
        texts = (*self._texts, *self.env.keys())
        if found := next((match[0] for text in texts if (match := REFERENCE.search(text))), None):
            problem = f"{found[:WORD_CHARS_MAX]} refers to what only the worker may read"
            raise ValueError(f"{problem}; put the server in the worker's mcp.yaml")
        return self


def server_name(server: str | McpServer) -> str:
    """Return the name of a server that is given by its name, or whole."""
    return server if isinstance(server, str) else server.name


def _kind(value: object) -> str:
    return "name" if isinstance(value, str) else "server"


McpChoice = Annotated[Annotated[ServerName, Tag("name")] | Annotated[InlineServer, Tag("server")], Discriminator(_kind)]
"""An MCP server of an agent's: the name of one that the worker knows, or a whole one."""
