"""The APIs of models that are spoken here: what the rest of Holdfast has to know of each. Imports no client of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True)
class ModelApi:
    """An API of models, and where it is when nobody says another place."""

    name: str
    """What `--model` and HOLDFAST_MODEL_API call it, and so do traces (`gen_ai.provider.name`) and the price table."""
    title: str
    """What a sentence calls it: `the OpenAI API`."""
    base_url: str
    variables: str
    """How the environment's variables for it begin; what begins so is kept from the guardian's process."""
    package: str
    """Its client, as it is imported."""
    extra: str
    """What installs that: `pip install 'holdfast[EXTRA]'`."""
    model: str
    """Its `Model`, by its name in `holdfast.models`; made with ProviderSettings."""
    headers: Callable[[str], Mapping[str, str]]
    """The HTTP headers that carry a key, for the question which models there are (`GET BASE_URL/models`)."""

    @property
    def base_url_variable(self) -> str:
        """The variable that names another place."""
        return f"{self.variables}_BASE_URL"

    @property
    def key_variable(self) -> str:
        """The variable that has the key."""
        return f"{self.variables}_API_KEY"

    @property
    def key_file_variable(self) -> str:
        """The variable that names a file with the key."""
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
)
"""Chat Completions, as OpenAI and many others serve it; what counts when no API is named."""

APIS: Final[Mapping[str, ModelApi]] = MappingProxyType({each.name: each for each in (OPENAI,)})
"""Every API that is spoken here; another one is a package beside `openai_chat` and a row here."""
