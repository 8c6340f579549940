"""`WireFormat`: what a fake server has to know of an API. Holds no API of its own, and no I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.testing.script import Reply


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the API would not take a request; it is sent with `status`."""

    message: str
    param: str | None = None
    code: str | None = None
    status: int = 400


def raw_pieces(turn: Reply) -> tuple[bytes, ...] | None:
    """Return the body that a turn has of its own, in the pieces in which it goes out; none where it has none."""
    if turn.body is None or isinstance(turn.body, tuple):
        return turn.body
    return (turn.body.encode() if isinstance(turn.body, str) else turn.body,)


@dataclass(frozen=True, slots=True, kw_only=True)
class WireFormat:
    """An API as a fake server speaks it."""

    path: str
    """Where model calls are posted."""
    base_path: str
    """The path of the address that the API's client takes."""
    headers_problem: Callable[[Mapping[str, str], str | None], Refusal | None]
    """From a request's headers and the one key that is let in, if there is one: why it is refused."""
    read_request: Callable[[str, bytes, frozenset[str]], dict[str, Any] | Refusal]
    """From a request's content type and body: its JSON, or the refusal that the API would send.

    The names are of those fields that the server's own answers had, as `fields_sent` says.
    """
    fields_sent: Callable[[Sequence[bytes]], frozenset[str]] = lambda _: frozenset()
    """From an answer's body: which of the fields it has that are refused in a request until an answer had them."""
    answer_pieces: Callable[[Reply, Mapping[str, Any]], tuple[bytes, ...]]
    """From a turn and the request that it answers: the answer's body, in the pieces in which it goes out."""
    error_body: Callable[[Refusal], bytes]
    model_list: Callable[[Sequence[str]], dict[str, Any]]
