"""A scripted model for use without HTTP: the fake server's scripts as a Python callable, with the same answers.

    model = ScriptedModel([call("add", a=1, b=2), say("3", failures=(Reply(status=503),))])

What the fake server behind the real client answers or fails with, this does too: a test holds it against the table of
failures in `holdfast.models.provider_errors`. Only a `body` that is a chat completion needs the server.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final, cast

from pydantic_core import to_json

from holdfast.core.agent.model import AnswerPart, Model, ModelRequest
from holdfast.core.agent.usage_estimates import answered_usage, input_bound
from holdfast.core.base.bounds import (
    ARGUMENTS_BYTES_MAX,
    CALLS_KEPT_MAX,
    RESPONSE_BYTES_MAX,
    WORD_CHARS_MAX,
)
from holdfast.core.base.safe_text import clamped, clamped_json, encodable
from holdfast.core.conversation.messages import CUT_OFF, ToolCall, bounded_spelling
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.models.openai_chat.chat_completion import reported
from holdfast.testing.openai_wire_format import read_request, request_body, usage_fields
from holdfast.testing.script import (
    Attempts,
    Reply,
    Script,
    Scripts,
    call_ids,
    choose_turn,
    conversation_key,
    turn_number,
)
from holdfast.testing.scripted_errors import failure_of, final, refused
from holdfast.testing.scripted_stream import played, waited
from holdfast.testing.wire_format import Refusal

MODEL_NAME: Final = "scripted"
"""Which model answers where the agent names none."""

REQUESTS_MAX: Final = 1_000
"""Requests kept; the oldest go first."""


class ScriptedModel(Model):
    """Answers from a script, or from the one of the request's model; `requests` keeps what it was asked.

    A turn's `failures` come first, counted per conversation as the fake server counts them, so that a driver's
    retries are played too (it really waits between them: give `headers={"retry-after": "0.01"}` to wait less).
    """

    def __init__(self, script: Scripts) -> None:
        self._scripts: Mapping[str, Script] | None = script if isinstance(script, Mapping) else None
        self._script = cast("Script", script)  # plays for every model where there is no mapping
        self.requests: list[ModelRequest] = []
        self._attempts = Attempts()

    async def __call__(self, request: ModelRequest) -> InferenceResponse:
        """Return the turn's answer after its delay; raise the typed ModelFailure of a fault."""
        self.requests.append(request)
        del self.requests[:-REQUESTS_MAX]
        body = request_body(request, request.llm.model or MODEL_NAME)
        problem = read_request("application/json", json.dumps(body).encode())
        if isinstance(problem, Refusal):
            raise refused(problem.message)
        turn = self._attempts.played(self._turn(body), conversation_key(body))
        if request.listener is not None:
            request.listener(AnswerPart(unseen=not request.llm.stream))
        await asyncio.sleep(turn.delay_seconds)
        if turn.pieces_max is None:
            await waited(turn)
        if (failure := failure_of(turn)) is not None:
            raise failure
        if request.listener is not None or turn.pieces_max is not None or turn.then is not None or turn.piece_seconds:
            turn = await played(turn, body, request.listener)
        return answer(turn, body, request)

    def _turn(self, body: dict[str, Any]) -> Reply:
        script = self._script if self._scripts is None else self._scripts.get(body["model"])
        if script is None:
            raise final("ModelNotFound", f"there is no script for the model {body['model']!r}")
        try:
            return choose_turn(script, body)
        except Exception as problem:
            raise refused(f"The script raised {type(problem).__name__}: {problem}.") from problem


def answer(turn: Reply, body: Mapping[str, Any], request: ModelRequest) -> InferenceResponse:
    """Return `turn` in the core's terms, as the answer to the `request`, whose `body` is in OpenAI's format.

    Usage that is missing or impossible is bounded from above, as for a real endpoint that reports none.
    """
    number, completion = turn_number(body), turn.usage[1] if turn.usage else -1
    requested = [
        (encodable(call_id), encodable(call.name), encodable(call.arguments_text))
        for call_id, call in zip(call_ids(turn, number), turn.calls, strict=True)
    ][:CALLS_KEPT_MAX]
    text = encodable(turn.text or "")
    silent = completion == 0 and not text and not requested
    return InferenceResponse(
        text=clamped_json(text, RESPONSE_BYTES_MAX),
        tool_calls=_tool_calls(requested, cut=turn.ending in CUT_OFF),
        finish_reason=encodable(turn.ending)[:WORD_CHARS_MAX],
        usage=answered_usage(
            reported(usage_fields(turn).get("usage")),
            lambda: input_bound(request),
            0 if completion > 0 or silent else _received_bytes(text, requested),
            request.max_output_tokens,
        ),
        model=clamped(body["model"], WORD_CHARS_MAX),
        response_id=f"chatcmpl-{number}",
    )


def _tool_calls(requested: list[tuple[str, str, str]], *, cut: bool) -> tuple[ToolCall, ...]:
    """Read the calls as the provider's client does: past the limit of one answer they are marked as not usable."""
    calls: list[ToolCall] = []
    used = 0
    for number, (call_id, name, arguments) in enumerate(requested, start=1):
        used += len(arguments.encode())
        usable = used <= ARGUMENTS_BYTES_MAX
        last = cut and number == len(requested)
        call = ToolCall.parse(call_id, name, arguments if usable else "", cut=usable and last)
        problem = f"the arguments of this answer's calls pass {ARGUMENTS_BYTES_MAX:,} bytes"
        calls.append(call if usable else call.model_copy(update={"malformed": problem}))
    return bounded_spelling(calls)


def _received_bytes(text: str, requested: list[tuple[str, str, str]]) -> int:
    calls = [{"id": id_, "function": {"name": name, "arguments": arguments}} for id_, name, arguments in requested]
    message = {"content": text, "reasoning": "", "reasoning_content": "", "refusal": "", "tool_calls": calls}
    return len(to_json(message))
