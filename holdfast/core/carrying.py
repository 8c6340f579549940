"""What one run of an execution hands on to the next: a head, a short tail, and the past in sealed segments.

Messages and steps are only ever added. Once enough of them have come together they are sealed into a segment, JSON that
is never written again but for being joined with its neighbours, once: so many small ones make a large one. So what an
execution hands on is the same bytes as before (a store that names objects by their content keeps them once), and all
that is ever written of it grows linearly, however often it is handed on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from pydantic import TypeAdapter

from holdfast.core.contracts import Carried, Segment
from holdfast.core.errors import StateInvalid
from holdfast.core.limits import SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN
from holdfast.core.log import Log
from holdfast.core.messages import Message
from holdfast.core.paging import with_bulk
from holdfast.core.state import AgentState
from holdfast.core.steps import StepExecution

JOINED: Final = 32
"""How many segments of one size make one of the next, while that is not larger than SEGMENT_BYTES_MAX."""

STEPS: Final = None
"""The series of the steps; the others are called as the store's sections."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """A sealed segment with its bytes: a JSON list."""

    segment: Segment
    data: bytes


@dataclass(frozen=True, slots=True)
class _Series:
    """A series as far as it is sealed: `log` has what `sealed` hold."""

    log: Log[Any]
    sealed: tuple[Sealed, ...] = ()


class Past:
    """What of one execution is sealed. A run keeps one, and asks it what to hand on."""

    def __init__(self) -> None:
        self._series: dict[str | None, _Series] = {}

    @property
    def sealed(self) -> tuple[Sealed, ...]:
        """The sealed segments, series by series."""
        return tuple(each for series in self._series.values() for each in series.sealed)

    @property
    def size(self) -> int:
        """How many bytes the sealed segments take together."""
        return sum(len(each.data) for each in self.sealed)

    def seal(self, state: AgentState) -> tuple[tuple[StepExecution, ...], tuple[tuple[Message, ...], ...]]:
        """Seal what has come together since; return the tails that are not sealed yet: steps, and each section's."""
        before, self._series = self._series, {}
        steps = self._seal(STEPS, state.running.step_executions, before)
        return steps, tuple(self._seal(each.name, each.messages, before) for each in state.store.sections)

    def _seal(self, series: str | None, log: Log[Any], before: dict[str | None, _Series]) -> tuple[Any, ...]:
        known = before.get(series)
        if known is None or not log.continues(known.log):  # nothing yet, or messages were moved away
            known = _Series(log.before(0))
        tail = tuple(log[len(known.log) :])
        data = _items(series).dump_json(list(tail)) if tail else b""
        if len(data) < SEGMENT_BYTES_MIN:
            self._series[series] = known
            return tail
        added = Sealed(Segment(series=series, count=len(tail)), data)
        self._series[series] = _Series(log, _joined((*known.sealed, added)))
        return ()

    def opened(self, carried: Carried, segments: Sequence[bytes]) -> AgentState:
        """Return the state that was handed on, and know its sealed segments from now on.

        Raises StateInvalid when the segments are not those that `carried` speaks of.
        """
        if len(segments) != len(carried.segments):
            raise StateInvalid(f"{len(segments)} segments came with a run that needs {len(carried.segments)}")
        sealed = [Sealed(segment, data) for segment, data in zip(carried.segments, segments, strict=True)]
        steps = self._opened(STEPS, sealed, carried.steps)
        tails = zip(carried.head.store.sections, carried.messages, strict=True)
        sections = [self._opened(section.name, sealed, tail) for section, tail in tails]
        return with_bulk(carried.head, sections, steps)

    def _opened(self, series: str | None, sealed: Sequence[Sealed], tail: Sequence[Any]) -> Log[Any]:
        own = tuple(each for each in sealed if each.segment.series == series)
        past: Log[Any] = Log(item for each in own for item in _read(each))
        whole = past.extend(tail)
        self._series[series] = _Series(whole.before(len(past)), own)
        return whole


def _joined(sealed: tuple[Sealed, ...]) -> tuple[Sealed, ...]:
    """Return the segments of a series with those joined that have become many enough."""
    while len(sealed) >= JOINED:
        last = sealed[-JOINED:]
        size = last[0].segment.size
        if any(each.segment.size != size for each in last) or sum(len(each.data) for each in last) > SEGMENT_BYTES_MAX:
            break
        count = sum(each.segment.count for each in last)
        joined = Segment(series=last[0].segment.series, count=count, size=size + 1)
        sealed = (*sealed[:-JOINED], Sealed(joined, b"[" + b",".join(each.data[1:-1] for each in last) + b"]"))
    return sealed


def _read(sealed: Sealed) -> list[Any]:
    items: list[Any] = _items(sealed.segment.series).validate_json(sealed.data)
    if len(items) != sealed.segment.count:
        raise StateInvalid(f"a segment of {sealed.segment.count} has {len(items)} in it; its store was changed")
    return items


@cache
def _items(series: str | None) -> TypeAdapter[Any]:
    return TypeAdapter(list[StepExecution] if series is STEPS else list[Message])
