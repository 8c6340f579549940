"""`ProviderSettings`: the address and key of a model's endpoint; `RoutingModel`: a model of several. Opens nothing."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from holdfast.core.agent.definition import LLM
from holdfast.core.agent.model import Model
from holdfast.core.base.errors import InvalidInput
from holdfast.models.model_apis import OPENAI, ModelApi
from holdfast.models.routes import Route, Timeouts, is_address
from holdfast.runtime.prices import PriceList

SECRET_CHARS_MIN: Final = 8
"""Shorter keys are no secrets, and to strike them out would garble texts."""


class ModelServer(NamedTuple):
    """The host of a model endpoint, and the name of its API; the address tells the provider."""

    api: str
    address: str | None
    port: int | None


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """The address and key of a model endpoint: from the worker's environment, never part of a run's data.

    `route` is the name under which agents choose it, empty for the worker's own model. `headers` go with every request,
    and `hidden` are the secrets among them.
    """

    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    model: str | None = None
    api: ModelApi = OPENAI
    think_tags: bool = False
    """Whether an answer's text begins with reasoning between `<think>` and `</think>`."""
    route: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    hidden: tuple[str, ...] = field(default=(), repr=False)
    timeouts: Timeouts = Timeouts()  # noqa: RUF009  # frozen

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ, api: ModelApi = OPENAI) -> ProviderSettings:
        """Read HOLDFAST_MODEL, HOLDFAST_THINK_TAGS, and the API's own: OPENAI_BASE_URL, OPENAI_API_KEY or its file."""
        key = (environment.get(api.key_variable) or "").strip() or None
        file, source = environment.get(api.key_file_variable), api.key_variable
        if key is None and file:
            source = f"{file!r} ({api.key_file_variable})"
            try:
                key = Path(file).read_text(encoding="utf-8").strip() or None
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
                raise InvalidInput(f"{api.key_file_variable} {file!r} cannot be read: {reason}") from None
        check_header(key or "", f"the key in {source}")
        base_url = (environment.get(api.base_url_variable) or "").strip() or None
        if base_url is not None and not is_address(base_url):
            raise InvalidInput(f"{api.base_url_variable} is not an address like https://host:port/v1; correct it")
        return cls(
            base_url=base_url,
            api_key=key,
            model=environment.get("HOLDFAST_MODEL") or None,
            api=api,
            think_tags=_is_on(environment, "HOLDFAST_THINK_TAGS"),
        )

    @property
    def has_no_access(self) -> bool:
        """Whether there is neither an address nor a key, and nobody who would find them."""
        return self.base_url is None and self.api_key is None and not self.api.finds_access

    @property
    def endpoint(self) -> str:
        """The address as it may be shown in an error: without user, password and query."""
        if self.base_url is None:
            return self.api.title
        parts = urlsplit(self.base_url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{host}{port}{parts.path}"

    @property
    def title(self) -> str:
        """The endpoint as an error names it: `the model endpoint ADDRESS`, or its API where no address is set."""
        return self.api.title if self.base_url is None else f"the model endpoint {self.endpoint}"

    @property
    def remedy_unreached(self) -> str:
        """What to check where no connection can be made."""
        if self.base_url is None and not self.api.finds_access:
            return f"check this machine's network and proxy, or name another endpoint by {self.address_name}"
        return f"is it running, is {self.address_name} right?"

    @property
    def key_name(self) -> str:
        """Where a person looks for the key."""
        if self.api.finds_access and self.api_key is None:
            return "the key that its provider has"
        return f"the key of the route {self.route!r}" if self.route else f"{self.api.key_variable} of the worker"

    @property
    def address_name(self) -> str:
        """Where a person looks for the address."""
        if self.api.finds_access:
            return "the address that its provider has"
        return f"the base_url of the route {self.route!r}" if self.route else self.api.base_url_variable

    @property
    def server(self) -> ModelServer:
        """The endpoint's host; no port where the address names none."""
        parts = urlsplit(self.base_url or self.api.base_url)
        return ModelServer(self.api.provider_name, parts.hostname, parts.port)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that must never appear in our output: the key, and the address's password, query and fragment.

        Shorter ones than SECRET_CHARS_MIN are none: a local server's `x` stands in many words.
        """
        parts = urlsplit(self.base_url or "")
        words = (self.api_key, parts.password, parts.query, parts.fragment, *self.hidden)
        return tuple(word for word in words if word and len(word) >= SECRET_CHARS_MIN)


class RoutingModel(Model):
    """A model that is several endpoints: which one answers depends on the name that a request has."""

    @property
    def routes(self) -> Mapping[str, Route]:
        """Its routes by name."""
        return {}

    @abstractmethod
    def provider_for(self, llm: LLM) -> ProviderSettings | None:
        """Return the settings of the endpoint that answers for `llm`; none for a model without settings."""
        ...

    @abstractmethod
    def routed_prices(self, prices: PriceList) -> PriceList:
        """Return the prices at all of its endpoints; `prices` are those at the worker's own."""
        ...


def check_header(value: str, what: str) -> None:
    """Raise InvalidInput for a value that no HTTP header can carry; `what` names it, as it may be a secret."""
    if not (value.isascii() and (value.isprintable() or not value)):
        raise InvalidInput(f"{what} has characters that no HTTP header can carry; correct it")


def provider_of(model: Model, llm: LLM | None = None) -> ProviderSettings | None:
    """Return the settings of the model that answers for `llm`, by default the worker's own.

    None for a script or a custom model without settings.
    """
    if llm is not None and isinstance(model, RoutingModel):
        return model.provider_for(llm)
    settings = getattr(model, "settings", None)
    return settings if isinstance(settings, ProviderSettings) else None


def prices_of(model: Model, environment: Mapping[str, str] | None = None) -> PriceList:
    """Return the prices at the model's endpoint; of one without, those that its name has anywhere.

    With an `environment` the file that HOLDFAST_PRICES names comes first, and HOLDFAST_MODEL names a model without
    settings. Raises InvalidInput for an unreadable file.
    """
    provider = provider_of(model)
    make = PriceList if environment is None else partial(PriceList.from_environment, environment)
    if provider is None:
        prices = make(model=(environment or {}).get("HOLDFAST_MODEL"), provider=None)
    else:
        prices = make(model=provider.model, base_url=provider.base_url, provider=provider.api.provider_name)
    return model.routed_prices(prices) if isinstance(model, RoutingModel) else prices


def _is_on(environment: Mapping[str, str], variable: str) -> bool:
    text = (environment.get(variable) or "0").strip()
    if text not in ("0", "1"):
        raise InvalidInput(f"{variable} is {text!r}; set it to 1 or 0")
    return text == "1"
