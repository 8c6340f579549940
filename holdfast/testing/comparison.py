"""The differences of two states, path by path: readable where a plain comparison is not. Judges nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, cast

from holdfast.core.agent.state import AgentState

TIMES: Final = frozenset({"created_at", "updated_at", "started_at", "completed_at", "current_step_started_at", "at"})
"""Fields that say when something happened: no two runs happen at the same moment."""

TIMED: Final = ("max_seconds", "deadline")
"""The limits of which a stop signal's `used` says when they struck."""

FOREIGN: Final = frozenset({"arguments", "metadata"})
"""Fields whose contents are the author's: nothing in them is ignored, except TIMED_METADATA."""

TIMED_METADATA: Final = frozenset({"approval"})
"""Metadata of messages that we write ourselves and that says when something happened."""

VALUE_CHARS_MAX: Final = 200


class _Nothing:
    def __repr__(self) -> str:
        return "nothing"


NOTHING: Final = _Nothing()


def differences(one: object, other: object, ignoring: Iterable[str] = TIMES) -> list[str]:
    """Return where two states (or data as of `to_dict`) are not equal, and how, as lines of path and both values.

    Of the fields named in `ignoring`, only whether they are set is compared.
    """
    return _differences(_data(one), _data(other), "state", frozenset(ignoring))


def _data(value: object) -> object:
    return value.to_dict() if isinstance(value, AgentState) else value


def _differences(one: object, other: object, place: str, ignoring: frozenset[str]) -> list[str]:
    both: tuple[object, object] = (one, other)
    if isinstance(one, dict) and isinstance(other, dict):
        return _of_fields(cast("dict[str, object]", one), cast("dict[str, object]", other), place, ignoring)
    if isinstance(one, list) and isinstance(other, list):
        return _of_items(cast("list[object]", one), cast("list[object]", other), place, ignoring)
    return [] if one == other else [f"{place}: {_shortened(both[0])} and {_shortened(both[1])}"]


def _of_fields(one: dict[str, object], other: dict[str, object], place: str, ignoring: frozenset[str]) -> list[str]:
    lines: list[str] = []
    for name in sorted(one | other):
        mine, theirs = one.get(name, NOTHING), other.get(name, NOTHING)
        timed = name == "used" and "at" in ignoring and one.get("limit") in TIMED
        if (name in ignoring or timed) and mine and theirs and NOTHING not in (mine, theirs):
            continue
        lines += _differences(mine, theirs, f"{place}.{name}", _within(name, ignoring))
    return lines


def _within(name: str, ignoring: frozenset[str]) -> frozenset[str]:
    if name not in FOREIGN:
        return ignoring
    return TIMED_METADATA if name == "metadata" and "at" in ignoring else frozenset()


def _of_items(one: list[object], other: list[object], place: str, ignoring: frozenset[str]) -> list[str]:
    lines = [] if len(one) == len(other) else [f"{place}: {len(one)} items and {len(other)}"]
    for index, (mine, theirs) in enumerate(zip(one, other, strict=False)):
        lines += _differences(mine, theirs, f"{place}[{index}]", ignoring)
    return lines


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= VALUE_CHARS_MAX else f"{text[:VALUE_CHARS_MAX]}…"
