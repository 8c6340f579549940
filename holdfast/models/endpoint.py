"""Where the model is and how to get in. Talks to nobody."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from holdfast.core.agent.model import Model
from holdfast.core.base.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """Where the model is and how to get in: the worker's own environment, never part of a run's data."""

    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    model: str | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> ProviderSettings:
        """Read OPENAI_BASE_URL, OPENAI_API_KEY or OPENAI_API_KEY_FILE, and HOLDFAST_MODEL."""
        key = (environment.get("OPENAI_API_KEY") or "").strip() or None
        file = environment.get("OPENAI_API_KEY_FILE")
        if key is None and file:
            try:
                key = Path(file).read_text(encoding="utf-8").strip() or None
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
                raise InvalidInput(f"OPENAI_API_KEY_FILE {file!r} cannot be read: {reason}") from None
        if key is not None and not (key.isascii() and key.isprintable()):
            raise InvalidInput("OPENAI_API_KEY holds characters that no HTTP header can carry; correct it")
        base_url = (environment.get("OPENAI_BASE_URL") or "").strip() or None
        if base_url is not None and not _is_usable(base_url):
            raise InvalidInput("OPENAI_BASE_URL is not an address like https://host:port/v1; correct it")
        return cls(
            base_url=base_url,
            api_key=key,
            model=environment.get("HOLDFAST_MODEL") or None,
        )

    @property
    def endpoint(self) -> str:
        """The address as it may be shown in an error: without user, password and query."""
        if self.base_url is None:
            return "the OpenAI API"
        parts = urlsplit(self.base_url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{host}{port}{parts.path}"

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not appear in any text of ours: the key, and what the address holds besides the place."""
        parts = urlsplit(self.base_url or "")
        return tuple(word for word in (self.api_key, parts.password, parts.query, parts.fragment) if word)


def provider_of(model: Model) -> ProviderSettings | None:
    """Return the settings of a model that has some; none for a script, or for a model of somebody's own."""
    settings = getattr(model, "settings", None)
    return settings if isinstance(settings, ProviderSettings) else None


def _is_usable(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is no number
        return False
