"""A scripted answer as it streams, piece by piece and with its faults in the middle, without HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from holdfast.core.agent.model import AnswerListener, AnswerPart
from holdfast.core.base.safe_text import encodable
from holdfast.core.base.usage import NOTHING_USED
from holdfast.models.openai_chat.chat_completion import reported
from holdfast.testing.openai_wire_format import answer_chunks, usage_fields
from holdfast.testing.script import Reply, turn_number
from holdfast.testing.scripted_errors import cut, failure_within


async def waited(turn: Reply) -> None:
    """Wait as long as the turn does before it goes on."""
    if turn.hang:
        await asyncio.Event().wait()
    if turn.hold is not None:
        await turn.hold.stand()


async def played(turn: Reply, body: Mapping[str, Any], listener: AnswerListener | None) -> Reply:
    """Tell the listener each piece of the answer to `body`; return the turn as far as it was told.

    Raises the ModelFailure of a turn that ends before its answer is complete.
    """
    answer = _Answer(turn, body, listener)
    first = 0 if turn.then is not None and turn.pieces_max is None else turn.pieces_max
    await answer.send(answer.pieces[:first])
    if first is None:
        return turn
    if turn.pieces_max is not None and not (turn.hang and answer.is_complete):
        await waited(turn)
    if turn.then is not None:
        raise failure_within(turn.then, answer.used)
    if turn.hold is not None and not answer.breaks:
        await answer.send(answer.pieces[first:])
    if not answer.is_complete or (answer.breaks and not answer.streamed):
        raise (
            failure_within(b"")
            if first == 0 and not answer.breaks
            else cut(answer.used if answer.streamed else NOTHING_USED)
        )
    return turn if answer.usage_sent else replace(turn, usage=None)


class _Answer:
    """What has been told of an answer."""

    def __init__(self, turn: Reply, body: Mapping[str, Any], listener: AnswerListener | None) -> None:
        self.streamed = bool(body.get("stream"))
        self.pieces = tuple(answer_chunks(turn, body)) if self.streamed else (_whole(turn, body),)
        self.breaks = turn.disconnect or turn.reset
        self.is_complete = self.usage_sent = False
        self.used = NOTHING_USED
        self._turn, self._model, self._listener = turn, str(body["model"]), listener

    async def send(self, pieces: Sequence[Mapping[str, Any]]) -> None:
        for piece in pieces:
            choice: Mapping[str, Any] = piece["choices"][0] if piece["choices"] else {"delta": {}}
            self.is_complete = self.is_complete or bool(choice.get("finish_reason"))
            usage = reported(piece.get("usage"))
            self.usage_sent, self.used = self.usage_sent or piece.get("usage") is not None, usage or self.used
            text = encodable(choice["delta"].get("content") or "")
            if self._listener is not None and (text or usage is not None):
                self._listener(AnswerPart(text, "", usage, model=self._model, response_id=piece["id"]))
            await asyncio.sleep(self._turn.piece_seconds)


def _whole(turn: Reply, body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an answer that does not stream as its one piece."""
    choice = {"delta": {"content": turn.text}, "finish_reason": turn.ending}
    return {"id": f"chatcmpl-{turn_number(body)}", "choices": [choice], **usage_fields(turn)}
