"""The errors of scripted faults, by the table of `core.wire.endpoint_refusals`. No I/O."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final, cast

from holdfast.core.base.errors import InvalidInput, ModelFailure
from holdfast.core.base.safe_text import clamped
from holdfast.core.base.usage import NOTHING_USED, Usage
from holdfast.core.wire.endpoint_refusals import UNAVAILABLE, Refusal, refusal, refusal_within
from holdfast.testing.script import Reply
from holdfast.testing.wire_format import raw_pieces

FAILURE_CHARS_MAX: Final = 500

NEEDS_SERVER: Final = (
    "a script whose `body` or `then` is a chat completion or a stream needs the fake server: use FakeOpenAI for it"
)


def failure_of(turn: Reply) -> ModelFailure | None:
    """Return the failure that `turn` is to whoever asks, none for an answer.

    The table is that of `holdfast.models.provider_errors`.

    An answer may still fail while it is played: `failure_within` and `cut` are for that. Raises InvalidInput for a
    `body` that is a chat completion or a stream of one: reading it is the provider's client's work.
    """
    good = HTTPStatus.OK <= turn.status < HTTPStatus.MULTIPLE_CHOICES
    if (turn.disconnect or turn.reset) and (turn.pieces_max is None or turn.body is not None or not good):
        return ModelFailure("the script closes the connection", kind=UNAVAILABLE, again=True)
    if not good:
        return _status_failure(turn)
    if turn.body is None:
        return None
    cut = turn.pieces_max == 0 or (isinstance(turn.body, tuple) and turn.pieces_max is not None)
    body = _body(turn)
    if not cut and body.count(b"data:") > 1:
        raise InvalidInput(NEEDS_SERVER)
    return _unusable() if cut else failure_within(body)


def failure_within(body: bytes, used: Usage = NOTHING_USED) -> ModelFailure:
    """Return the failure that raw bytes in the place of an answer are, which had `used` so much before."""
    data: Any = None
    with suppress(ValueError, RecursionError):
        data = json.loads(body.strip().removeprefix(b"data:"))
    error: object = cast("dict[str, object]", data).get("error") if isinstance(data, dict) else None
    if error:
        return _refused(refusal_within(error), f"the script answers with the error {json.dumps(error)}", used)
    if _is_completion(data):
        raise InvalidInput(NEEDS_SERVER)
    return _unusable(used)


def cut(used: Usage) -> ModelFailure:
    """Return the failure that an answer without its end is."""
    return ModelFailure("the scripted answer ends before it is complete", kind=UNAVAILABLE, again=True, usage=used)


def _unusable(used: Usage = NOTHING_USED) -> ModelFailure:
    return ModelFailure("the scripted answer is not a chat completion", kind="UnusableAnswer", again=True, usage=used)


def _status_failure(turn: Reply) -> ModelFailure:
    words = turn.text or ""
    if turn.body is not None:
        words = _body(turn).decode("utf-8", "replace")
    headers = {name.lower(): value for name, value in turn.headers.items()}
    problem = f"the script answers {turn.status}: {' '.join(words.split())}"
    return _refused(refusal(turn.status, words, headers, datetime.now(UTC)), problem)


def _refused(refused: Refusal, problem: str, used: Usage = NOTHING_USED) -> ModelFailure:
    problem = clamped(problem, FAILURE_CHARS_MAX)
    return ModelFailure(
        problem, kind=refused.kind, again=refused.again, after=refused.after, usage=used, free=refused.free
    )


def final(kind: str, problem: str) -> ModelFailure:
    """Return the failure that asking again cannot help."""
    return ModelFailure(problem, kind=kind, again=False, free=True)


def refused(problem: str) -> ModelFailure:
    """Return the failure of a request that the API would not take."""
    return _status_failure(Reply(status=HTTPStatus.BAD_REQUEST, text=problem))


def _body(turn: Reply) -> bytes:
    return b"".join(raw_pieces(turn) or ())


def _is_completion(data: Any) -> bool:  # noqa: ANN401  # any JSON value
    """Return whether `data` could be read as an answer; what lacks a first choice with a message cannot."""
    with suppress(LookupError, TypeError):
        choice = data["choices"][0]
        return isinstance(choice["delta"] if "delta" in choice else choice["message"], dict)
    return False
