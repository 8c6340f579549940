"""Assembles tool calls from streamed fragments, and bounds how many are kept."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any, cast

from holdfast.core.base.bounds import CALLS_KEPT_MAX, WORD_CHARS_MAX
from holdfast.models.answer_errors import UnusableAnswer
from holdfast.models.event_stream import fields_of, joined, word_of
from holdfast.models.openai_chat.chat_completion import NO_COMPLETION, arguments_of
from holdfast.models.openai_chat.chat_items import merge


class _Call:
    """A tool call in the making."""

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments = StringIO()
        self.is_function = False
        self.extra: dict[str, object] = {}

    def wire(self) -> dict[str, Any]:
        # a custom tool's call has no function; the reader refuses it as it would in a plain answer
        function = {"name": self.name, "arguments": joined(self.arguments)} if self.is_function else None
        call = {"id": self.id, "function": function}
        return {**call, "extra_content": self.extra} if self.extra else call


class Calls:
    """The tool calls of one answer, assembled from fragments that name their call by index.

    Servers differ: some give every call the index 0 and its own id, some give none. So a fragment also begins a new
    call when it names another id, or is a whole call by itself.
    """

    def __init__(self) -> None:
        self.all: list[_Call] = []
        self.bytes = 0
        """How many bytes of names, ids and arguments arrived, also of calls that are not kept."""
        self._by_index: dict[int, _Call] = {}
        self._last: _Call | None = None

    def take(self, fragment: object) -> int:
        """Add a fragment and return how many characters of it are kept."""
        if not isinstance(fragment, dict):
            raise UnusableAnswer(NO_COMPLETION)
        fields = fields_of(cast("object", fragment))
        function_field = fields.get("function")
        function = fields_of(function_field)
        # id and name come with the first piece alone, or with every one
        id_, name = word_of(fields.get("id")), word_of(function.get("name"))
        arguments = _arguments(function.get("arguments"))
        # also of calls that are dropped: they were made and are billed
        self.bytes += sum(len(each.encode("utf-8", "surrogatepass")) for each in (id_, name, arguments))
        call = self._call_of(fields.get("index"), id_, name, arguments)
        if call is None:
            return 0
        # later pieces have arguments only, and some servers send `function: null` with them
        call.is_function = call.is_function or isinstance(function_field, dict)
        call.id = call.id or id_
        if name != call.name:  # some repeat it with every fragment
            call.name = (call.name + name)[: 2 * WORD_CHARS_MAX]
        # pieces are cut anywhere, also within an escape: they are read when all have come
        call.arguments.write(arguments)
        extra = fields_of(fields.get("extra_content"))  # Gemini's signature comes with the first piece
        return len(id_) + len(name) + len(arguments) + (merge(call.extra, extra) if extra else 0)

    def _call_of(self, index: object, id_: str, name: str, arguments: str) -> _Call | None:
        """Return the call that a fragment belongs to, none beyond CALLS_KEPT_MAX."""
        # without an index a piece continues the latest call
        call = self._by_index.get(index) if isinstance(index, int) else self._last
        if call is None or (name and _is_another(call, id_, arguments)):
            call = _Call() if len(self.all) < CALLS_KEPT_MAX else None
            if call is not None:
                self.all.append(call)
            if isinstance(index, int):
                # a dropped call's index must not lead its later pieces to a kept call
                if call is None:
                    self._by_index.pop(index, None)
                else:
                    self._by_index[index] = call
        self._last = call
        return call


def _is_another(call: _Call, id_: str, arguments: str) -> bool:
    """Return whether a fragment with a name begins a call of its own, although its index is that of `call`."""
    # every call with index 0 and an id of its own: the id decides
    if id_ and call.id:
        return id_ != call.id
    # a name with whole arguments behind whole arguments is a second call, not a repetition
    if not call.arguments.tell() or not (arguments.startswith("{") and arguments.endswith("}")):
        return False
    try:
        # braces alone prove nothing: a piece may end in one by chance
        json.loads(arguments)
    except (ValueError, RecursionError):
        return False
    return True


def _arguments(value: object) -> str:
    return value if isinstance(value, str) else arguments_of(value)
