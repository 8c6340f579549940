"""`OpenAIEndpoint`: what the APIs that the official openai client speaks have in common."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from openai import AsyncOpenAI, DefaultAsyncHttpxClient, Timeout

from holdfast.core.base.retries import MODEL_SECONDS_MAX
from holdfast.models.answer_transfer import CONNECT_SECONDS
from holdfast.models.endpoint import ProviderSettings
from holdfast.models.http_errors import REDIRECTS_MAX
from holdfast.models.http_model import HttpModel, event_hooks
from holdfast.runtime.trusted_certificates import trusted_certificates

JSON_INSTRUCTION: Final = "Answer with a JSON object."
"""Added to a conversation without the word JSON: OpenAI refuses `json_object` for one."""


def mention_json(texts: Iterable[str]) -> bool:
    """Return whether a conversation of these texts has the word that OpenAI looks for."""
    return any("json" in text.lower() for text in texts)


class OpenAIEndpoint(HttpModel[AsyncOpenAI]):
    """An endpoint that the official client calls, with its retries off."""

    def __init__(self, settings: ProviderSettings | None = None) -> None:
        """Without `settings`, those of the environment count. Raises InvalidInput for unusable ones."""
        super().__init__(settings or ProviderSettings.from_environment())

    def _made_client(self, key: str) -> AsyncOpenAI:
        settings = self.settings
        base_url = settings.base_url or settings.api.base_url
        return AsyncOpenAI(
            api_key=key,
            base_url=base_url,
            max_retries=0,
            # the silences within an answer are timed in `answer_transfer`
            timeout=Timeout(MODEL_SECONDS_MAX, connect=settings.timeouts.connect_seconds or CONNECT_SECONDS),
            http_client=DefaultAsyncHttpxClient(
                event_hooks=event_hooks(base_url), verify=trusted_certificates(), max_redirects=REDIRECTS_MAX
            ),
            default_headers=settings.headers,
        )
