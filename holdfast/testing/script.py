"""The script: what the model says, turn by turn. It holds neither I/O nor a wire format (that is `openai_wire_format`).

    script = [
        call("search", query="temporal"),
        say("It is a workflow engine.", failures=(Reply(status=429, headers={"retry-after": "1"}),)),
    ]

Which turn answers a request depends on the request alone (the number of assistant messages in it), so a request
that is repeated after a crash gets the same answer, from this process or from another one.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypedDict, Unpack

from holdfast.testing.holds import Hold

DEFAULT_USAGE = (100, 20)
"""Prompt and completion tokens of a turn that does not name its own: round figures, easy to add up in a test."""

ATTEMPTS_MAX = 10_000
"""Conversations whose scripted failures are being counted; the oldest go first."""


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call the model asks for.

    `arguments` as a mapping goes out as JSON; a str goes out as it is, so that malformed JSON can be scripted.
    `id` None becomes `call_<turn>_<index>`; an empty or repeated id can be scripted too.
    """

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict[str, Any])
    id: str | None = None

    @property
    def arguments_text(self) -> str:
        """The arguments as they travel: always a string."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(dict(self.arguments))


@dataclass(frozen=True, slots=True)
class ServerCall:
    """One call of a tool that the provider runs itself: what the model gives it, and what it finds.

    `FakeResponses` knows `web_search`, `file_search` and `code_interpreter`; `FakeAnthropic` knows `web_search`,
    `web_fetch` and `code_execution`.
    """

    name: str = "web_search"
    text: str = "holdfast"
    """The query, the address, or the code."""
    result: str = "It holds fast."
    """What it finds, where the API shows that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer of the model, or the fault that takes its place.

    An answer goes out in pieces: a streamed one has a piece per chunk (one that opens it, the text's, the calls', one
    with the finish reason, one with the usage, `[DONE]`), a plain JSON answer is one, a tuple `body` has its own.
    `hang`, `hold`, `disconnect`, `reset` and `then` happen before the first byte, or after `pieces_max` pieces where
    that is set.
    """

    text: str | None = None
    """The content; for an error status, the error's message."""
    calls: tuple[Call, ...] = ()
    reasoning: str | None = None
    """What the model thinks before it answers; `FakeAnthropic` signs it, `FakeResponses` makes an item of it.

    `FakeOpenAI` sends none.
    """
    blocks: tuple[Mapping[str, Any], ...] = ()
    """Further blocks of `FakeAnthropic`, or items of `FakeResponses`, in the API's own form, behind the reasoning."""
    server_calls: tuple[ServerCall, ...] = ()
    """Calls of the provider's own tools, with their results, behind the reasoning: of those two as well."""
    usage: tuple[int, int] | None = DEFAULT_USAGE
    """Prompt and completion tokens, sent as they are (also negative or huge); None leaves the usage out."""
    usage_details: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """More fields of the usage, sent as they are: `{"prompt_tokens_details": {"cached_tokens": 90}}`."""
    finish_reason: str | None = None
    """None is derived: `tool_calls` when there are calls, else `stop`."""
    delay_seconds: float = 0
    """Silence before the first byte."""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: str | bytes | tuple[bytes, ...] | None = None
    """Sent instead of the answer, whatever it is: HTML, an empty string, corrupt JSON, `{"choices": []}`, raw SSE."""
    piece_chars: int | None = None
    """How many characters of text or arguments a streamed piece holds; None is derived from their length."""
    piece_seconds: float = 0
    """Silence after each piece (or each write of `write_bytes`) but the last."""
    write_bytes: int | None = None
    """The socket gets so many bytes at once: 1 cuts every event, and every character that has several."""
    pieces_max: int | None = None
    """The answer ends after so many pieces: properly closed but incomplete, unless another fault is set."""
    usage_in: Literal["last", "every"] = "last"
    """`every` tells the usage with every streamed piece, so that it is known when the answer is cut."""
    hold: Hold | None = None
    """The (rest of the) answer waits until the test lets it go."""
    then: bytes | None = None
    """Sent instead of the rest of a streamed answer: a corrupt chunk, an error object."""
    disconnect: bool = False
    """The socket is closed instead of an (or the rest of the) answer."""
    reset: bool = False
    """The same, with a reset of the connection."""
    hang: bool = False
    """Nothing is ever sent (any more)."""
    failures: tuple[Reply, ...] = ()
    """Answers to the first attempts at this turn, in order; later attempts get the turn itself."""

    @property
    def ending(self) -> str:
        """The finish reason as sent."""
        return self.finish_reason or ("tool_calls" if self.calls else "stop")


Script: TypeAlias = Sequence[Reply] | Callable[[dict[str, Any]], Reply]
"""The turns in order, or a function from the request's body to its turn (it should depend on nothing else)."""

Scripts: TypeAlias = Script | Mapping[str, Script]
"""One script for any model name, or a script per model name (any other model is then unknown)."""

ENDED = Reply(text="The script has ended.")
"""What the model says when it is asked more often than the script foresaw."""


class TurnOptions(TypedDict, total=False):
    """What `say` and `calls` take besides their own arguments; the meanings are `Reply`'s."""

    reasoning: str | None
    blocks: tuple[Mapping[str, Any], ...]
    server_calls: tuple[ServerCall, ...]
    usage: tuple[int, int] | None
    usage_details: Mapping[str, Any]
    finish_reason: str | None
    delay_seconds: float
    headers: Mapping[str, str]
    piece_chars: int | None
    piece_seconds: float
    write_bytes: int | None
    pieces_max: int | None
    usage_in: Literal["last", "every"]
    hold: Hold | None
    then: bytes | None
    disconnect: bool
    reset: bool
    hang: bool
    failures: tuple[Reply, ...]


def say(text: str, **options: Unpack[TurnOptions]) -> Reply:
    """Return a turn that answers with a text."""
    return Reply(text=text, **options)


def call(name: str, /, **arguments: Any) -> Reply:  # noqa: ANN401 - any JSON value is an argument
    """Return a turn that asks for one tool call: `call("add", a=1, b=2)`."""
    return Reply(calls=(Call(name, arguments),))


def calls(*tool_calls: Call, text: str | None = None, **options: Unpack[TurnOptions]) -> Reply:
    """Return a turn that asks for several tool calls at once: `calls(Call("add", {"a": 1}), Call("ping"))`."""
    return Reply(text=text, calls=tool_calls, **options)


def turn_number(request: Mapping[str, Any]) -> int:
    """Return how many turns the model has had in this conversation: its assistant messages. The first turn is 0."""
    messages: list[Mapping[str, Any]] = request["messages"]
    return sum(message["role"] == "assistant" for message in messages)


def choose_turn(script: Script, request: dict[str, Any]) -> Reply:
    """Return the turn that answers the request, `ENDED` past the script's end."""
    if callable(script):
        return script(request)
    number = turn_number(request)
    return script[number] if number < len(script) else ENDED


def conversation_key(request: Mapping[str, Any]) -> str:
    """Return what names a model call: equal for every attempt at it, different for another conversation or model."""
    # Model and messages alone: a retry may ask for fewer tokens and is still the same call.
    identity = json.dumps([request["model"], request["messages"]], sort_keys=True).encode()
    return hashlib.sha256(identity).hexdigest()[:16]


class Attempts:
    """Counts the attempts at each model call, so that a turn's `failures` come before the turn itself."""

    def __init__(self) -> None:
        self._counts = OrderedDict[str, int]()

    def played(self, turn: Reply, key: str) -> Reply:
        """Return what answers this attempt at the call `key`, and count it."""
        if not turn.failures:
            return turn
        attempt = self._counts.get(key, 0)
        self._counts[key] = attempt + 1
        if len(self._counts) > ATTEMPTS_MAX:
            self._counts.popitem(last=False)
        return turn.failures[attempt] if attempt < len(turn.failures) else turn


def call_ids(turn: Reply, number: int) -> tuple[str, ...]:
    """Return the ids of the turn's calls when it is the conversation's turn `number`."""
    return tuple(f"call_{number}_{i}" if each.id is None else each.id for i, each in enumerate(turn.calls))
