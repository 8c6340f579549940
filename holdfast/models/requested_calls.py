"""The tool calls of an answer, read from a provider's texts within the bounds of one answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.core.base.bounds import ARGUMENTS_BYTES_MAX, CALLS_KEPT_MAX
from holdfast.core.conversation.messages import ToolCall, bounded_spelling


class RequestedCall(NamedTuple):
    """A call as the provider's texts: any of them may be empty, wrong or huge."""

    id: str
    name: str
    arguments: str


def read_calls(requested: Sequence[RequestedCall], *, cut: bool) -> tuple[ToolCall, ...]:
    """Return the first CALLS_KEPT_MAX calls in order; those past ARGUMENTS_BYTES_MAX are marked as not usable.

    `cut` is whether the answer was cut off, in the last of them: its arguments may be whole JSON and yet not all.
    """
    calls: list[ToolCall] = []
    used = 0
    for place, call in enumerate(requested[:CALLS_KEPT_MAX], start=1):
        used += len(call.arguments.encode())
        if used <= ARGUMENTS_BYTES_MAX:
            last = cut and place == len(requested)
            calls.append(ToolCall.parse(call.id, call.name, call.arguments, cut=last))
        else:
            # every call must be answered, also one whose arguments are not kept
            unread = ToolCall.parse(call.id, call.name, "")
            text = f"the arguments of this answer's calls pass {ARGUMENTS_BYTES_MAX:,} bytes"
            calls.append(unread.model_copy(update={"malformed": text}))
    return bounded_spelling(calls)
