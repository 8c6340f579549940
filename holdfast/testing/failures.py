"""What a scripted fault is to whoever asks: the table of `core.refusals`, for turns of a script. No I/O."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

from holdfast.core.errors import InvalidInput, ModelFailure
from holdfast.core.refusals import UNAVAILABLE, kind_of, retry_after
from holdfast.core.texts import clamped
from holdfast.testing.script import Turn

FAILURE_CHARS_MAX: Final = 500


def failure_of(turn: Turn) -> ModelFailure | None:
    """Return the failure that `turn` is to whoever asks, none for an answer; the table is `activities.failures`'s.

    Raises InvalidInput for a `body` that is a chat completion: reading one is the provider's client's work.
    """
    if turn.disconnect:
        return ModelFailure("the script closes the connection", kind="ProviderUnavailable", again=True)
    if not HTTPStatus.OK <= turn.status < HTTPStatus.MULTIPLE_CHOICES:
        return _status_failure(turn)
    cut = turn.pieces_max == 0 or (isinstance(turn.body, tuple) and turn.pieces_max is not None)
    if turn.body is None and not cut:
        return None
    if not cut and _is_completion(_body(turn)):
        raise InvalidInput("a script whose `body` is a chat completion needs the fake server: use FakeOpenAI for it")
    return ModelFailure("the scripted answer is no chat completion", kind="UnusableAnswer", again=True)


def _status_failure(turn: Turn) -> ModelFailure:
    status, words = turn.status, turn.text or ""
    if turn.body is not None:
        words = _body(turn).decode("utf-8", "replace")
    told = clamped(f"the script answers {status}: {' '.join(words.split())}", FAILURE_CHARS_MAX)
    kind = kind_of(status, words)
    if kind != UNAVAILABLE:
        return final(kind, told)
    header = next((value for name, value in turn.headers.items() if name.lower() == "retry-after"), "")
    return ModelFailure(told, kind=kind, again=True, after=retry_after(header, datetime.now(UTC)))


def final(kind: str, told: str) -> ModelFailure:
    """Return the failure that asking again cannot help."""
    return ModelFailure(told, kind=kind, again=False)


def refused(told: str) -> ModelFailure:
    """Return the failure of a request that the API would not take."""
    return _status_failure(Turn(status=HTTPStatus.BAD_REQUEST, text=told))


def _body(turn: Turn) -> bytes:
    body = turn.body or b""
    if isinstance(body, tuple):
        return b"".join(body)
    return body.encode() if isinstance(body, str) else body


def _is_completion(body: bytes) -> bool:
    """Return whether `body` could be read as an answer; what lacks a first choice with a message cannot."""
    with suppress(ValueError, RecursionError, LookupError, TypeError):
        data: Any = json.loads(body)
        return isinstance(data["choices"][0]["message"], dict)
    return False
