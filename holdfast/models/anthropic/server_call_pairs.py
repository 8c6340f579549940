"""Which calls of Anthropic's own tools go back, and which results: the API refuses one without the other. Pure.

A call has its result behind it, in the same answer. Two calls have none: one that was begun when the answer was cut or
paused, and one beside calls of the agent's tools. The API makes the second when it gets their results, and the next
answer begins with its result, as
https://docs.claude.com/en/docs/build-with-claude/handling-stop-reasons says: only while nothing but these results
follows, and the tool is still among those of the request.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, cast

from holdfast.models.anthropic.conversation import EMPTY, Block, Turn
from holdfast.models.anthropic.server_tools import tool_of

RESULT: Final = "_tool_result"
"""How the types of blocks end that are results of the provider's tools."""

THINKING: Final = ("thinking", "redacted_thinking")


def with_pairs_alone(conversation: Sequence[Turn], offered: Collection[str]) -> list[Turn]:
    """Return the turns without calls of the provider's that it could not pair any more, and without such results.

    `offered` are the names of its tools that the request has.
    """
    waiting, left_out = dict[str, Block](), set[int]()
    for turn in conversation:
        if turn["role"] == "assistant":
            left_out |= _loose_results(turn["content"], waiting)
        elif any(block["type"] != "tool_result" for block in turn["content"]):
            left_out |= set(map(id, waiting.values()))  # the answer is over, they are never made
            waiting.clear()
    left_out |= {id(block) for block in waiting.values() if tool_of(block) not in offered}
    return [_without(turn, left_out) for turn in conversation] if left_out else list(conversation)


def _loose_results(blocks: Sequence[Block], waiting: dict[str, Block]) -> set[int]:
    """Return the results that belong to no call; note in `waiting` the calls by their ids until their results come."""
    loose = set[int]()
    for block in blocks:
        kind = block["type"]
        if tool_of(block):
            waiting[_id(block.get("id"))] = block
        elif kind.endswith(RESULT) and waiting.pop(_id(block.get("tool_use_id")), None) is None:
            loose.add(id(block))
    return loose


def _id(value: object) -> str:
    return value if isinstance(value, str) else ""


def _without(turn: Turn, left_out: Collection[int]) -> Turn:
    """Return a turn without those blocks. Thinking, which the API does not take as an end, is not left alone."""
    blocks = cast("list[dict[str, Any]]", turn["content"])
    rest = [block for block in blocks if id(block) not in left_out]
    if len(rest) == len(blocks):
        return turn
    if not rest or rest[-1]["type"] in THINKING:
        rest.append({"type": "text", "text": EMPTY})
    return {**turn, "content": rest}
