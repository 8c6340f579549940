"""`ProviderSettings`: the address and key of a model endpoint. Opens no connection."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from holdfast.core.agent.model import Model
from holdfast.core.base.errors import InvalidInput
from holdfast.models.model_apis import OPENAI, ModelApi
from holdfast.runtime.prices import PriceList


class ModelServer(NamedTuple):
    """The host of a model endpoint, and the name of its API; the address tells the provider."""

    api: str
    address: str | None
    port: int | None


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """The address and key of a model endpoint: from the worker's environment, never part of a run's data."""

    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    model: str | None = None
    api: ModelApi = OPENAI

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ, api: ModelApi = OPENAI) -> ProviderSettings:
        """Read HOLDFAST_MODEL and the API's own: OPENAI_BASE_URL, OPENAI_API_KEY or OPENAI_API_KEY_FILE."""
        key = (environment.get(api.key_variable) or "").strip() or None
        file, source = environment.get(api.key_file_variable), api.key_variable
        if key is None and file:
            source = f"{file!r} ({api.key_file_variable})"
            try:
                key = Path(file).read_text(encoding="utf-8").strip() or None
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
                raise InvalidInput(f"{api.key_file_variable} {file!r} cannot be read: {reason}") from None
        if key is not None and not (key.isascii() and key.isprintable()):
            raise InvalidInput(f"the key in {source} has characters that no HTTP header can carry; correct it")
        base_url = (environment.get(api.base_url_variable) or "").strip() or None
        if base_url is not None and not _is_usable(base_url):
            raise InvalidInput(f"{api.base_url_variable} is not an address like https://host:port/v1; correct it")
        return cls(
            base_url=base_url,
            api_key=key,
            model=environment.get("HOLDFAST_MODEL") or None,
            api=api,
        )

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
    def server(self) -> ModelServer:
        """The endpoint's host; no port where the address names none."""
        parts = urlsplit(self.base_url or self.api.base_url)
        return ModelServer(self.api.provider_name, parts.hostname, parts.port)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that must never appear in our output: the key, and the address's password, query and fragment."""
        parts = urlsplit(self.base_url or "")
        return tuple(word for word in (self.api_key, parts.password, parts.query, parts.fragment) if word)


def provider_of(model: Model) -> ProviderSettings | None:
    """Return a model's settings; none for a script or a custom model without settings."""
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
        return make(model=(environment or {}).get("HOLDFAST_MODEL"), provider=None)
    return make(model=provider.model, base_url=provider.base_url, provider=provider.api.provider_name)


def _is_usable(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is no number
        return False
