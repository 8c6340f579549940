"""`Route`: where a model is and what it can do, under a name that agents use. A value; it holds no secret.

Where a secret belongs it names an environment variable of the process that calls the model, or a file that it can read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from holdfast.core.base.bounds import WORD_CHARS_MAX
from holdfast.core.base.frozen import Frozen
from holdfast.core.base.retries import MODEL_SECONDS_MAX
from holdfast.core.base.usage import Prices
from holdfast.core.tools.mcp_servers import REFERENCE

ROUTES_MAX: Final = 64
"""The most routes of one worker."""

HEADERS_MAX: Final = 64
"""The most headers of a route."""

TOKENS_MAX: Final = 1_000_000_000
"""The largest number of tokens, or of requests, in a field."""


PYTHON_API: Final = "python:"
"""How `api` begins for a model of your own."""

TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""The name of an HTTP header (RFC 9110, 5.6.2)."""

FRAMING: Final = frozenset({"content-length", "transfer-encoding", "connection"})
"""Headers that say how a request is sent; the client sets them."""

Capability = Literal[
    "stream", "tools", "parallel_tools", "images", "pdf", "audio", "json_object", "json_schema", "reasoning"
]
"""What a model can do, as far as it decides how it is asked."""

RouteName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$", max_length=WORD_CHARS_MAX)]
Entry = Annotated[str, Field(min_length=1, max_length=4 * WORD_CHARS_MAX)]
Tokens = Annotated[int, Field(gt=0, le=TOKENS_MAX)]
Seconds = Annotated[float, Field(gt=0, le=MODEL_SECONDS_MAX)]
"""How long a route may wait: no longer than one attempt may take as a whole."""


def is_address(url: str) -> bool:
    """Return whether a client of an API can call `url`."""
    try:
        parts = urlsplit(url)
        return url.isprintable() and parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is no number, or an IPv6 address is none
        return False


def _address(url: str) -> str:
    if "@" in url.partition("//")[2].partition("/")[0]:
        raise ValueError("it holds a name or password; give a `key` or a header")
    if not is_address(url) or " " in url:
        raise ValueError("it is no address like https://host:port/v1")
    if "?" in url or "#" in url:
        raise ValueError("it has a query or fragment, and clients append their paths to it; leave that out")
    return url


def _header_name(name: str) -> str:
    if not TOKEN.fullmatch(name):
        raise ValueError("it is no name of an HTTP header")
    if name.lower() in FRAMING:
        raise ValueError("the client sends this header itself; leave it out")
    return name


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("it holds the character NUL, which neither the name of a file nor an HTTP header can have")
    return text


BaseUrl = Annotated[str, Field(max_length=2_000), AfterValidator(_address)]
HeaderName = Annotated[Entry, AfterValidator(_header_name)]
HeaderValue = Annotated[str, AfterValidator(_without_nul)]


class RouteKey(Frozen):
    """Where the key is: in an environment variable, or in a file, which is read when the first call is made."""

    variable: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=WORD_CHARS_MAX)] | None = None
    file: Annotated[Entry, AfterValidator(_without_nul)] | None = None

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.variable is None) is (self.file is None):
            raise ValueError("a key is in a `variable` or in a `file`; give one of them")
        return self

    @property
    def source(self) -> str:
        """Where it is, in words."""
        return f"the variable {self.variable}" if self.variable else f"the file {self.file}"


class Timeouts(Frozen):
    """How long the endpoint may be silent, in seconds; what is not given is as the API's client has it.

    `connect_seconds` is for the connection, TLS included, `first_byte_seconds` until an answer that streams begins,
    `silence_seconds` the longest pause within it.
    """

    connect_seconds: Seconds | None = None
    first_byte_seconds: Seconds | None = None
    silence_seconds: Seconds | None = None


class RateLimits(Frozen):
    """What the provider allows: calls of all workers together, and tokens, input and output, of each worker."""

    requests_per_minute: Annotated[int, Field(gt=0, le=TOKENS_MAX)] | None = None
    tokens_per_minute: Tokens | None = None


class Route(Frozen):
    """A model, and how it is reached.

    `api` is the API that it speaks, or `python:MODULE:NAME` for a model of your own. `model` is the provider's name for
    it; without one, agents write ROUTE/MODEL. `base_url` is the endpoint's address. `headers` go with every request; in
    their values `${NAME}` stands for the process's variable of that name and `${file:PATH}` for the content of a file.

    Without `base_url` and `key`, those of the API's variables count (OPENAI_BASE_URL, OPENAI_API_KEY). A `base_url`
    without a `key` is called without one: the key of another endpoint is never sent there.

    `prices`, `context_window` and `max_output_tokens` are those of `model`. `capabilities` lists what it can do, none
    leaves it open. One without `images`, `pdf` or `audio` gets no such files; what else it lacks is asked for by other
    means (`holdfast.models.prompted`).
    """

    api: Entry
    model: Annotated[str, Field(min_length=1, max_length=WORD_CHARS_MAX)] | None = None
    base_url: BaseUrl | None = None
    key: RouteKey | None = None
    headers: Annotated[Mapping[HeaderName, HeaderValue], Field(max_length=HEADERS_MAX)] = Field(
        default_factory=dict[str, str]
    )
    timeouts: Timeouts = Timeouts()
    prices: Prices | None = None
    context_window: Tokens | None = None
    max_output_tokens: Tokens | None = None
    capabilities: Annotated[tuple[Capability, ...], Field(max_length=16)] | None = None
    rate_limits: RateLimits = RateLimits()

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.prices is not None and self.model is None:
            raise ValueError("`prices` are those of `model`, which is missing")
        if not self.is_custom:
            return self
        places = {"base_url": self.base_url, "key": self.key, "headers": self.headers}
        for field, value in (*places.items(), ("timeouts", self.timeouts != Timeouts())):
            if value:
                raise ValueError(f"`{field}` means nothing for a model of your own; leave it out")
        return self

    @property
    def is_limited(self) -> bool:
        """Whether it has rate limits: its calls wait for them, and have a task queue of their own."""
        return self.rate_limits != RateLimits()

    @property
    def is_custom(self) -> bool:
        """Whether it is a model of your own."""
        return self.api.startswith(PYTHON_API)

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables with its secrets."""
        in_headers = (match[2] for text in self.headers.values() for match in REFERENCE.finditer(text))
        named = (self.key.variable if self.key else None, *in_headers)
        return tuple(dict.fromkeys(filter(None, named)))
