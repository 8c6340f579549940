"""A scripted model for use without HTTP: the fake server's scripts as a Python callable, with the same answers.

    model = ScriptedModel([call("add", a=1, b=2), say("3", failures=(Turn(status=503),))])

What the fake server behind the real client answers or fails with, this does too (`activities.failures` has the table
of failures; a test holds the two against each other). Only a `body` that is a chat completion needs the server.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, Final, cast

from pydantic_core import to_json

from holdfast.core.errors import InvalidInput, ModelFailure
from holdfast.core.inference import ModelRequest
from holdfast.core.limits import ARGUMENTS_BYTES_MAX, CALLS_KEPT_MAX, RESPONSE_BYTES_MAX
from holdfast.core.messages import ToolCall
from holdfast.core.steps import InferenceResponse
from holdfast.core.texts import clamped, clamped_json, encodable
from holdfast.core.usage import Usage
from holdfast.testing.openai_format import Refusal, read_request, request_body
from holdfast.testing.script import (
    Attempts,
    Script,
    Scripts,
    Turn,
    call_ids,
    choose_turn,
    conversation_key,
    turn_number,
)

MODEL_NAME: Final = "scripted"
"""Which model answers where the agent names none."""

REQUESTS_MAX: Final = 1_000
"""Requests kept; the oldest go first."""

FAILURE_CHARS_MAX: Final = 500
WORD_CHARS_MAX: Final = 64
TOKENS_MAX: Final = 10**12
RETRY_AFTER_MAX: Final = timedelta(minutes=5)
RETRIED_STATUS: Final = frozenset({408, 409, 425, 429})
CONTEXT_WORDS: Final = ("context_length_exceeded", "exceed_context_size", "input_tokens", "maximum context length")


class ScriptedModel:
    """Answers from a script, or from the one of the request's model; `requests` keeps what it was asked.

    A turn's `failures` come first, counted per conversation as the fake server counts them, so that a driver's
    retries are played too (it really waits between them: give `headers={"retry-after": "0.01"}` to wait less).
    """

    def __init__(self, script: Scripts) -> None:
        self.script = script
        self.requests: list[ModelRequest] = []
        self._attempts = Attempts()

    async def __call__(self, request: ModelRequest) -> InferenceResponse:
        """Return the turn's answer after its delay; raise the typed ModelFailure of a fault."""
        self.requests.append(request)
        del self.requests[:-REQUESTS_MAX]
        body = request_body(request, request.llm.model or MODEL_NAME)
        refused = read_request("application/json", json.dumps(body).encode())
        if isinstance(refused, Refusal):
            raise _refused(refused.message)
        turn = self._attempts.played(self._turn(body), conversation_key(body))
        await asyncio.sleep(turn.delay_seconds)
        if turn.hang:
            await asyncio.Event().wait()
        if (failure := failure_of(turn)) is not None:
            raise failure
        return answer(turn, body)

    def _turn(self, body: dict[str, Any]) -> Turn:
        script = self.script
        if isinstance(script, Mapping):
            if body["model"] not in script:
                raise _final("ModelNotFound", f"the scripts know no model {body['model']!r}")
            script = script[body["model"]]
        try:
            return choose_turn(cast("Script", script), body)
        except Exception as problem:
            raise _refused(f"The script raised {type(problem).__name__}: {problem}.") from problem


def answer(turn: Turn, body: Mapping[str, Any]) -> InferenceResponse:
    """Return `turn` in the core's terms, as the answer to the request `body` in OpenAI's format.

    Usage that is missing or impossible becomes the bytes sent and received, as for a real endpoint that reports none.
    """
    number, (prompt, completion) = turn_number(body), turn.usage or (-1, -1)
    wanted = [
        (encodable(call_id), encodable(call.name), encodable(call.arguments_text))
        for call_id, call in zip(call_ids(turn, number), turn.calls, strict=True)
    ][:CALLS_KEPT_MAX]
    text = encodable(turn.text or "")
    return InferenceResponse(
        text=clamped_json(text, RESPONSE_BYTES_MAX),
        tool_calls=_tool_calls(wanted),
        finish_reason=encodable(turn.ending)[:WORD_CHARS_MAX],
        usage=Usage(
            input_tokens=min(prompt, TOKENS_MAX) if prompt > 0 else _sent_bytes(body),
            output_tokens=min(completion, TOKENS_MAX) if completion >= 0 else _received_bytes(text, wanted),
        ),
        model=clamped(body["model"], WORD_CHARS_MAX),
        response_id=f"chatcmpl-{number}",
    )


def _tool_calls(wanted: list[tuple[str, str, str]]) -> tuple[ToolCall, ...]:
    """Read the calls as the provider's client does: past the limit of one answer they are marked as not usable."""
    calls: list[ToolCall] = []
    used = 0
    for call_id, name, arguments in wanted:
        used += len(arguments.encode())
        usable = used <= ARGUMENTS_BYTES_MAX
        call = ToolCall.parse(call_id, name, arguments if usable else "")
        told = f"the arguments of this answer's calls pass {ARGUMENTS_BYTES_MAX:,} bytes"
        calls.append(call if usable else call.model_copy(update={"malformed": told}))
    return tuple(calls)


def _sent_bytes(body: Mapping[str, Any]) -> int:
    return len(to_json([body["messages"], body.get("tools", [])]))


def _received_bytes(text: str, wanted: list[tuple[str, str, str]]) -> int:
    calls = [{"id": id_, "function": {"name": name, "arguments": arguments}} for id_, name, arguments in wanted]
    return len(to_json({"content": text, "reasoning": "", "reasoning_content": "", "tool_calls": calls}))


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
    if status == HTTPStatus.TOO_MANY_REQUESTS and "insufficient_quota" in words:
        return _final("QuotaExceeded", told)
    if status in RETRIED_STATUS or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return ModelFailure(told, kind="ProviderUnavailable", again=True, after=_retry_after(turn.headers))
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return _final("NotAuthorised", told)
    if status == HTTPStatus.NOT_FOUND:
        return _final("ModelNotFound", told)
    return _final("ContextTooLong" if any(word in words for word in CONTEXT_WORDS) else "RequestRefused", told)


def _final(kind: str, told: str) -> ModelFailure:
    return ModelFailure(told, kind=kind, again=False)


def _refused(told: str) -> ModelFailure:
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


def _retry_after(headers: Mapping[str, str]) -> timedelta | None:
    value = next((value for name, value in headers.items() if name.lower() == "retry-after"), "")
    if not value:
        return None
    try:
        wait = timedelta(seconds=float(value))
    except (ValueError, OverflowError):
        try:
            wait = parsedate_to_datetime(value) - datetime.now(UTC)
        except (ValueError, TypeError):
            return None
    return min(max(wait, timedelta(0)), RETRY_AFTER_MAX)
