"""The supported model APIs, and what the rest of Holdfast needs to know about each. Imports none of their clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from holdfast.core.agent.definition import OPTIONS
from holdfast.core.conversation.attachments import FILE_KINDS, FileKind
from holdfast.models.anthropic import server_tools as anthropic_server_tools
from holdfast.models.openai_responses import server_tools as openai_server_tools


@dataclass(frozen=True, slots=True)
class ModelApi:
    """A model API and its default address."""

    name: str
    """Its name in `--model` and HOLDFAST_MODEL_API; in traces (`gen_ai.provider.name`) and in the price table, too."""
    title: str
    """Its name in a sentence: `the OpenAI API`."""
    base_url: str
    variables: str
    """The prefix of its environment variables; the guardian's process does not get them."""
    package: str
    """The import name of its client."""
    extra: str
    """The extra that installs it."""
    model: str
    """The name of its `Model` in `holdfast.models`, made with ProviderSettings."""
    headers: Callable[[str], Mapping[str, str]]
    """The HTTP headers that carry a key, for listing the models (`GET BASE_URL/models`)."""
    options: frozenset[str] = frozenset(OPTIONS)
    """Which of `definition.OPTIONS` the API knows; an agent with another is refused before it runs."""
    server_tools: Mapping[str, Mapping[str, bool]] = field(default_factory=dict[str, Mapping[str, bool]])
    """The tools that its provider runs itself, by type: their options, and whether each must be given."""
    files: frozenset[FileKind] = frozenset(FILE_KINDS)
    """Which kinds of files it takes in messages."""
    provider: str = ""
    """The provider's name in traces and in the price table, where it is not the API's."""
    finds_access: bool = False
    """Whether its client finds the address and the key by itself, in variables of its own."""
    version: str = ""
    """The end of the path of its addresses that one may leave out, as its vendor's client does: `/v1`."""

    @property
    def provider_name(self) -> str:
        """The provider's name in traces and in the price table."""
        return self.provider or self.name

    def without_version(self, base_url: str) -> str:
        """Return an address of the API without its version."""
        return base_url.rstrip("/").removesuffix(self.version) if self.version else base_url

    @property
    def base_url_variable(self) -> str:
        """The variable for another address."""
        return f"{self.variables}_BASE_URL"

    @property
    def key_variable(self) -> str:
        """The variable for the key."""
        return f"{self.variables}_API_KEY"

    @property
    def key_file_variable(self) -> str:
        """The variable for a file with the key."""
        return f"{self.variables}_API_KEY_FILE"


OPENAI: Final = ModelApi(
    name="openai",
    title="the OpenAI API",
    base_url="https://api.openai.com/v1",
    variables="OPENAI",
    package="openai",
    extra="openai",
    model="OpenAIChat",
    headers=lambda key: {"Authorization": f"Bearer {key}"},
    options=frozenset(OPTIONS) - {"background", "server_tools"},
)
"""Chat Completions, as OpenAI and many others serve it; the default API."""

OPENAI_RESPONSES: Final = replace(
    OPENAI,
    name="openai_responses",
    title="OpenAI's Responses API",
    model="OpenAIResponses",
    options=frozenset(OPTIONS) - {"stop", "seed"},
    server_tools=openai_server_tools.SERVER_TOOLS,
    files=frozenset(FILE_KINDS) - {"audio"},
    provider="openai",
)
"""Responses, OpenAI's newer API, at the same address and with the same key."""

ANTHROPIC: Final = ModelApi(
    name="anthropic",
    title="the Anthropic API",
    base_url="https://api.anthropic.com/v1",
    variables="ANTHROPIC",
    package="anthropic",
    extra="anthropic",
    model="Anthropic",
    headers=lambda key: {"x-api-key": key, "anthropic-version": "2023-06-01"},
    options=frozenset(OPTIONS) - {"seed", "verbosity", "background"},
    server_tools=anthropic_server_tools.SERVER_TOOLS,
    files=frozenset(FILE_KINDS) - {"audio"},
    version="/v1",
)
"""Messages, as Anthropic and some gateways serve it."""

PYDANTIC_AI: Final = ModelApi(
    name="pydantic_ai",
    title="Pydantic AI",
    base_url="",
    variables="PYDANTIC_AI",
    package="pydantic_ai",
    extra="pydantic-ai",
    model="PydanticAIModel",
    headers=lambda key: {"Authorization": f"Bearer {key}"},
    options=frozenset(OPTIONS) - {"verbosity", "background", "server_tools"},
    finds_access=True,
)
"""Whatever Pydantic AI speaks; models have its names, such as `bedrock:...`, which name the provider."""

APIS: Final[Mapping[str, ModelApi]] = MappingProxyType(
    {each.name: each for each in (OPENAI, OPENAI_RESPONSES, ANTHROPIC, PYDANTIC_AI)}
)
"""All supported APIs; a further one is a package beside `openai_chat` and an entry here."""

ALIASES: Final[Mapping[str, str]] = MappingProxyType({"openai_chat": OPENAI.name})
"""Other names of APIs, where one name alone could mean several."""


def api_named(name: str) -> ModelApi | None:
    """Return the API of that name or alias; none where there is no such API."""
    return APIS.get(ALIASES.get(name, name))


def api_names() -> tuple[str, ...]:
    """Return the names of all APIs, aliases included."""
    return (*APIS, *ALIASES)
