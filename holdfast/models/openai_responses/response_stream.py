"""Assembles a streamed response from the API's events; then `response_object` parses it. Unknown events are ignored."""

from __future__ import annotations

import json
from typing import Final, cast

from holdfast.core.agent.model import AnswerListener
from holdfast.core.base.bounds import WORD_CHARS_MAX
from holdfast.core.base.safe_text import encodable
from holdfast.models.answer_errors import AnswerCut, ErrorInAnswer, UnusableAnswer
from holdfast.models.event_stream import AnswerStream, fields_of, parsed, raw_text, word_of
from holdfast.models.openai_responses.response_object import (
    NO_RESPONSE,
    OUTPUT_ITEMS_MAX,
    UNDER_WAY,
    check_status,
    failed,
    reported,
)

TEXT: Final = frozenset({"response.output_text.delta", "response.refusal.delta"})
REASONING: Final = frozenset({"response.reasoning_summary_text.delta", "response.reasoning_text.delta"})
ARGUMENTS: Final = frozenset({"response.function_call_arguments.delta"})
ENDS: Final = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})


class StreamedResponse(AnswerStream):
    """One answer: `feed` it the chunks that arrive; `end` returns the response.

    Its items are those of the events that end them; the last event repeats them, and is believed where it has more.
    With `background` it `lives_on` where the server says that it makes the response without this connection.
    """

    not_an_answer = NO_RESPONSE
    not_a_stream = "the answer is neither a response of the Responses API nor a stream of one; check OPENAI_BASE_URL"

    def __init__(
        self, listener: AnswerListener | None = None, *, streamed: bool = True, background: bool = False
    ) -> None:
        super().__init__(listener, streamed=streamed)
        self._background = background
        self.last_event = -1
        """The sequence number of the last event, -1 before the first: where a broken stream can be taken up again."""
        self._first_event = -1  # those up to it have come already
        self._items: dict[int, object] = {}
        self._streamed_items: set[int] = set()
        self._response: dict[str, object] | None = None

    def _take_done(self) -> None:
        """Take [DONE], which the API does not have: it ends nothing that was not ended before."""

    def _failure(self, error: object) -> ErrorInAnswer:
        return failed(error)

    def _take(self, event: str, fields: dict[str, object]) -> None:
        kind = word_of(fields.get("type")) or event
        if kind == "error":
            raise failed(fields)
        if not kind.startswith("response."):
            if fields.get("choices") is not None or "object" in fields:
                raise UnusableAnswer(NO_RESPONSE)
            return  # a keep-alive, or news that concerns nobody
        self._parts += 1
        if isinstance(number := fields.get("sequence_number"), int):
            if number <= self._first_event:
                return
            self.last_event = number
        if kind in TEXT or kind in REASONING or kind in ARGUMENTS:
            self._take_delta(kind, fields)
        elif kind == "response.output_item.done":
            self._take_item(fields)
        elif response := fields_of(fields.get("response")):
            self._take_response(kind, response)
        elif kind in ENDS:
            raise UnusableAnswer(NO_RESPONSE)

    def reopen(self) -> None:
        """Go on with a body that begins behind the last event; what it repeats is left out."""
        super().reopen()
        self._first_event = self.last_event

    def _take_delta(self, kind: str, fields: dict[str, object]) -> None:
        text = raw_text(fields.get("delta"))
        if isinstance(index := fields.get("output_index"), int) and len(self._streamed_items) < OUTPUT_ITEMS_MAX:
            self._streamed_items.add(index)
        if kind in ARGUMENTS:
            self._call_bytes += len(text.encode("utf-8", "surrogatepass"))
        elif text:
            self._fresh_text.append(text if kind in TEXT else "")
            self._fresh_reasoning.append("" if kind in TEXT else text)

    def _take_item(self, fields: dict[str, object]) -> None:
        index, item = fields.get("output_index"), fields.get("item")
        place = index if isinstance(index, int) else len(self._items)
        size = len(json.dumps(item, ensure_ascii=False))
        if place not in self._streamed_items:  # nothing of it was reported
            self._call_bytes += size
        self._items[place] = item
        self._content_chars += size
        self._check_length()
        if len(self._items) > OUTPUT_ITEMS_MAX:
            raise UnusableAnswer(f"the answer has more than {OUTPUT_ITEMS_MAX:,} items")

    def _take_words(self, response: dict[str, object]) -> None:
        for name in ("id", "model"):
            if not self._words[name] and (word := word_of(response.get(name))):
                # at once: by its id an answer can be found again, should this process be lost
                self._words[name], self._news = word, True

    def _take_response(self, kind: str, response: dict[str, object]) -> None:
        self._take_words(response)
        if (usage := reported(response.get("usage"))) is not None:
            self.usage = usage
        if kind not in ENDS:
            self._note_background(response)
            return
        if self.lives_on:
            self.lives_on, self._news = False, True
        status = {"response.completed": "completed", "response.incomplete": "incomplete"}.get(kind, "failed")
        self._response = {"status": status, **response}
        check_status(self._response)
        self.complete = self.done = True

    def _note_background(self, response: dict[str, object]) -> None:
        """Note that the provider makes the response without this connection, where it says so."""
        id_, status = self._words["id"], response.get("status")
        if not self._background or status not in UNDER_WAY or self.lives_on is not None:
            return
        # a whole body that has not ended comes of nothing else
        goes_on = response.get("background") is True or status == "queued" or self.plain
        if goes_on and 0 < len(id_) <= WORD_CHARS_MAX and encodable(id_) == id_:
            self.lives_on, self._news = True, True

    def resume(self, response_id: str) -> None:
        """Read a response that was begun before, from its first event on."""
        self._words["id"], self.lives_on = response_id, True

    @property
    def response_id(self) -> str:
        """The response's id, empty before it is known."""
        return self._words["id"]

    def _joined(self) -> object:
        if self._response is None:
            raise AnswerCut
        listed = self._response.get("output")
        items = [self._items[place] for place in sorted(self._items)]
        repeated = cast("list[object]", listed) if isinstance(listed, list) else []
        output = repeated if len(repeated) > len(items) else items
        if self._streamed_items and not output:
            raise UnusableAnswer("the answer's stream ended without the items that it had begun")
        return {**self._response, **self._words, "output": output}

    def _whole(self, body: bytes) -> object:
        response = parsed(body)
        fields = fields_of(response)
        self.usage = reported(fields.get("usage"))
        self._take_words(fields)
        self._note_background(fields)
        if fields.get("error") and not fields.get("output"):
            raise ErrorInAnswer(fields["error"]) if "status" not in fields else failed(fields["error"])
        return response
