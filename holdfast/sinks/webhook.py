"""`Webhook`: a sink that is an HTTP endpoint: batches as JSON, signed, each with an idempotency key."""

from __future__ import annotations

import base64
import binascii
import hmac
import time
from hashlib import sha256
from typing import Final
from urllib.parse import urlsplit

import aiohttp
from pydantic_core import to_json

from holdfast.core.base.errors import InvalidInput
from holdfast.core.wire.event_envelope import to_dict
from holdfast.core.wire.sink_contracts import checked_consumer
from holdfast.sinks.sink import Batch, SinkAway, SinkRefused

TIMEOUT_SECONDS: Final = 15.0
"""How long the endpoint may take for one batch; after that it is sent again."""

SECRET_PREFIX: Final = "whsec_"  # noqa: S105  # it is none itself
"""What stands before the base64 of a secret, by the Standard Webhooks specification."""

AWAY: Final = frozenset({408, 425, 429, 502, 503, 504})
"""Answers of an endpoint, or a proxy before it, that takes nothing at the moment."""

RETRY_AFTER_SECONDS_MAX: Final = 300.0
"""The longest wait that an endpoint can ask for."""


class Webhook:
    """POSTs `{"id", "consumer", "events": [...]}`; an answer of 2xx means that all of it is taken.

    A batch can arrive more than once: its answer may get lost. It has the same `Idempotency-Key` then, so that a
    receiver that keeps keys takes each exactly once. With a secret the headers `webhook-id`, `webhook-timestamp` and
    `webhook-signature` are those of the Standard Webhooks specification: HMAC-SHA256 of "ID.TIMESTAMP.BODY".
    """

    def __init__(
        self, url: str, *, name: str = "webhook", secret: str | None = None, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> None:
        self.name: Final = checked_consumer(name)
        self._url, self._key, self._timeout = checked_url(url), _key(secret), timeout_seconds
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Make ready; nothing is sent."""
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=self._timeout))

    async def deliver(self, batch: Batch) -> None:
        """Return when the endpoint has taken the batch."""
        if self._session is None:
            raise SinkAway("the webhook is not open")
        events = [to_dict(each) for each in batch.events]
        body = to_json({"id": batch.id, "consumer": batch.consumer, "events": events})
        headers = {"Content-Type": "application/json", "Idempotency-Key": batch.id, **self._signed(batch.id, body)}
        try:
            async with self._session.post(self._url, data=body, headers=headers, allow_redirects=False) as answer:
                status, after = answer.status, answer.headers.get("Retry-After", "")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise SinkAway(f"the endpoint does not answer ({type(error).__name__})") from None  # its text has the URL
        if status in AWAY:
            raise SinkAway(f"the endpoint answers {status}", _seconds(after))
        if 300 <= status < 500:  # noqa: PLR2004  # HTTP's classes of answers
            raise SinkRefused(f"the endpoint answers {status}")
        if not 200 <= status < 300:  # noqa: PLR2004  # as above
            raise RuntimeError(f"the endpoint answers {status}")

    async def close(self) -> None:
        """Close connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _signed(self, id_: str, body: bytes) -> dict[str, str]:
        moment = str(int(time.time()))
        headers = {"webhook-id": id_, "webhook-timestamp": moment}
        if self._key is None:
            return headers
        digest = hmac.digest(self._key, f"{id_}.{moment}.".encode() + body, sha256)
        return {**headers, "webhook-signature": f"v1,{base64.b64encode(digest).decode()}"}


def checked_url(url: str) -> str:
    """Return the URL of an endpoint; InvalidInput, which does not repeat it, for what is none."""
    if not _is_url(url):
        raise InvalidInput("the webhook's URL is not valid; write webhook:https://HOST/PATH, or webhook:$VARIABLE")
    if "@" in urlsplit(url).netloc:
        raise InvalidInput("the webhook's URL holds a user or password; sign with HOLDFAST_WEBHOOK_SECRET instead")
    return url


def _is_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        there = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return there and url.isprintable() and not any(char.isspace() for char in url)


def _key(secret: str | None) -> bytes | None:
    if not secret:
        return None
    if not secret.startswith(SECRET_PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except binascii.Error:
        raise InvalidInput(f"the webhook's secret begins with {SECRET_PREFIX} but is not base64 after it") from None


def _seconds(header: str) -> float | None:
    return min(float(header), RETRY_AFTER_SECONDS_MAX) if header.isascii() and header.isdigit() else None
