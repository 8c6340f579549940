"""A scripted model for use without HTTP: the scripts of the fake server, as a Python callable.

An error status is one failure that is not asked again; faults of the wire (`body`, `pieces_max`, `failures`) need the
server.
"""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.core.inference import ModelRequest
from holdfast.core.messages import Message, ToolCall
from holdfast.core.steps import InferenceResponse
from holdfast.core.usage import Usage
from holdfast.testing.script import Script, Turn, call_ids, choose_turn, turn_number


class ScriptedFault(HoldfastError):
    """The script says that this model call fails."""


class ScriptedModel:
    """Answers from a script; `requests` keeps what it was asked."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[ModelRequest] = []

    async def __call__(self, request: ModelRequest) -> InferenceResponse:
        """Return the turn's answer after its delay; raise ScriptedFault for an error turn."""
        self.requests.append(request)
        body: dict[str, Any] = {"messages": [_spoken(message) for message in request.messages]}
        turn = choose_turn(self.script, body)
        await asyncio.sleep(turn.delay_seconds)
        if turn.hang:
            await asyncio.Event().wait()
        if turn.status != 200 or turn.disconnect:  # noqa: PLR2004  # HTTP's OK
            raise ScriptedFault(f"the script answers {turn.status}: {turn.text or ''}")
        return answer(turn, turn_number(body))


def answer(turn: Turn, number: int) -> InferenceResponse:
    """Return `turn`, as turn `number` of its conversation, in the core's terms."""
    prompt, completion = turn.usage or (0, 0)
    calls = zip(turn.calls, call_ids(turn, number), strict=True)
    return InferenceResponse(
        text=turn.text or "",
        tool_calls=tuple(ToolCall.parse(call_id, call.name, call.arguments_text) for call, call_id in calls),
        finish_reason=turn.ending,
        usage=Usage(input_tokens=max(0, prompt), output_tokens=max(0, completion)),
        model="scripted",
    )


def _spoken(message: Message) -> dict[str, Any]:
    return {"role": message.role, "content": message.content}
