"""What one Temporal run of an execution carries over to the next: a head, a short tail, and sealed segments.

Messages and steps are only ever added. Once there are enough, they are sealed into a segment: JSON that is written once
more only when many small segments are joined into a large one. So an execution carries over the same bytes as before (a
store that names objects by their content keeps them once), and the total written grows linearly, however often it
continues as new.

The snapshot of an ended execution has the same form (`holdfast.core.wire.records`): there sealed segments are called
parts, and named by their digests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import sha256
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from holdfast.core.agent.state import AgentState
from holdfast.core.base.append_list import AppendList
from holdfast.core.base.bounds import SEGMENT_BYTES_MIN
from holdfast.core.base.errors import StateInvalid
from holdfast.core.base.framing import frames_of
from holdfast.core.base.frozen import replace
from holdfast.core.conversation.messages import Message
from holdfast.core.conversation.steps import StepExecution
from holdfast.core.wire.contracts import CarriedState, Segment
from holdfast.core.wire.paging import with_bulk, without_bulk
from holdfast.core.wire.records import Part, Snapshot

SEGMENT_BYTES_MAX: Final = 4 * 1024 * 1024
"""The largest segment made by joining others: one object of the store."""

JOINED: Final = 32
"""How many segments of one size make one of the next, while that is not larger than SEGMENT_BYTES_MAX."""

STEPS: Final = None
"""The series of the steps; the others have the names of the store's sections."""


@dataclass(frozen=True)  # no slots: the digest is computed when it is first asked for
class SealedSegment:
    """A sealed segment with its bytes: a JSON list. `known_digest` is their digest, if computed before."""

    segment: Segment
    data: bytes
    known_digest: str = ""

    @cached_property
    def part(self) -> Part:
        """The entry for it in a snapshot."""
        segment = self.segment
        digest = self.known_digest or sha256(self.data).hexdigest()
        return Part(series=segment.series, count=segment.count, rank=segment.rank, digest=digest)


@dataclass(frozen=True, slots=True)
class _Series:
    """The sealed part of a series: `log` has the items that `sealed` hold."""

    log: AppendList[Any]
    sealed: tuple[SealedSegment, ...] = ()


class SealedHistory:
    """The sealed segments of one execution. Each Temporal run holds one and carries it over."""

    def __init__(self) -> None:
        self._series: dict[str | None, _Series] = {}

    @property
    def sealed(self) -> tuple[SealedSegment, ...]:
        """The sealed segments, series by series."""
        return tuple(each for series in self._series.values() for each in series.sealed)

    @property
    def size(self) -> int:
        """How many bytes the sealed segments take together."""
        return sum(len(each.data) for each in self.sealed)

    def seal(self, state: AgentState) -> tuple[tuple[StepExecution, ...], tuple[tuple[Message, ...], ...]]:
        """Seal what was added since, if it is enough; return the unsealed tails: the steps', and each section's."""
        before, self._series = self._series, {}
        steps = self._seal(STEPS, AppendList() if state.execution is None else state.execution.step_executions, before)
        return steps, tuple(self._seal(each.name, each.messages, before) for each in state.store.sections)

    def snapshot(self, state: AgentState) -> Snapshot:
        """Seal what was added since, and return all of `state`, with digests in place of sealed items."""
        steps, messages = self.seal(state)
        parts = tuple(each.part for each in self.sealed)
        return Snapshot(head=without_bulk(state), parts=parts, steps=steps, messages=messages)

    def carried(self, state: AgentState) -> CarriedState:
        """Seal what was added since, and return all of `state` but the sealed segments, which travel beside it."""
        steps, messages = self.seal(state)
        segments = tuple(each.segment for each in self.sealed)
        return CarriedState(head=without_bulk(state), segments=segments, steps=steps, messages=messages)

    def part(self, digest: str) -> bytes | None:
        """Return the sealed part of that digest; none when the segments were joined differently since."""
        return next((each.data for each in self.sealed if each.part.digest == digest), None)

    def _seal(self, series: str | None, log: AppendList[Any], before: dict[str | None, _Series]) -> tuple[Any, ...]:
        previous = before.get(series)
        if previous is None or not log.continues(previous.log):  # nothing yet, or messages were moved away
            previous = _Series(log.before(0))
        tail = tuple(log[len(previous.log) :])
        data = _items(series).dump_json(list(tail)) if tail else b""
        if len(data) < SEGMENT_BYTES_MIN:
            self._series[series] = previous
            return tail
        added = SealedSegment(Segment(series=series, count=len(tail)), data)
        self._series[series] = _Series(log, _joined((*previous.sealed, added)))
        return ()

    def opened(self, carried: CarriedState, segments: Sequence[bytes]) -> AgentState:
        """Return the state that was carried over, and take over its sealed segments.

        Raises StateInvalid when the segments are not those that `carried` names.
        """
        if len(segments) != len(carried.segments):
            raise StateInvalid(f"{len(segments)} segments came with a run that needs {len(carried.segments)}")
        sealed = [SealedSegment(segment, data) for segment, data in zip(carried.segments, segments, strict=True)]
        steps = self._opened(STEPS, sealed, carried.steps)
        return with_bulk(carried.head, self._sections(carried.head, sealed, carried.messages), steps)

    def restored(self, frames: bytes, *, agent_id: str) -> AgentState:
        """Return the session that a snapshot holds, as the agent `agent_id`'s, and take over its sealed parts.

        `frames` are what arrives for a `SnapshotReference`: without the execution and its steps. Raises StateInvalid
        for anything else.
        """
        first, *rest = frames_of(frames) or (b"",)
        snapshot = snapshot_of(first)
        parts = message_parts(snapshot)
        if len(rest) != len(parts):
            raise StateInvalid(f"{len(rest)} parts came with a snapshot that needs {len(parts)}; its store was changed")
        head = snapshot.head
        sealed = [_sealed(part, data) for part, data in zip(parts, rest, strict=True)]
        state = with_bulk(head, self._sections(head, sealed, snapshot.messages), AppendList())
        return replace(state.for_next_execution(head.updated_at), agent_id=agent_id)

    def _sections(
        self, head: AgentState, sealed: Sequence[SealedSegment], tails: Sequence[Sequence[Message]]
    ) -> list[AppendList[Message]]:
        pairs = zip(head.store.sections, tails, strict=True)
        return [self._opened(section.name, sealed, tail) for section, tail in pairs]

    def _opened(self, series: str | None, sealed: Sequence[SealedSegment], tail: Sequence[Any]) -> AppendList[Any]:
        own = [_read(each) for each in sealed if each.segment.series == series]
        past: AppendList[Any] = AppendList(item for _, items in own for item in items)
        whole = past.extend(tail)
        self._series[series] = _Series(whole.before(len(past)), tuple(each for each, _ in own))
        return whole


def _joined(sealed: tuple[SealedSegment, ...]) -> tuple[SealedSegment, ...]:
    """Return the segments of a series, joined where there are enough of one size."""
    while len(sealed) >= JOINED:
        last = sealed[-JOINED:]
        rank = last[0].segment.rank
        if any(each.segment.rank != rank for each in last) or sum(len(each.data) for each in last) > SEGMENT_BYTES_MAX:
            break
        count = sum(each.segment.count for each in last)
        joined = Segment(series=last[0].segment.series, count=count, rank=rank + 1)
        sealed = (*sealed[:-JOINED], SealedSegment(joined, b"[" + b",".join(each.data[1:-1] for each in last) + b"]"))
    return sealed


def snapshot_of(data: bytes) -> Snapshot:
    """Return the snapshot whose JSON this is. Raises StateInvalid for anything else."""
    try:
        snapshot = Snapshot.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"]))
        text = f"this is not a snapshot of an agent: {place}: {first['msg']}; its store was changed"
        raise StateInvalid(text) from None
    if len(snapshot.messages) != len(snapshot.head.store.sections):
        raise StateInvalid("this is not a snapshot of an agent: its sections have no tail each; its store was changed")
    return snapshot


def message_parts(snapshot: Snapshot) -> tuple[Part, ...]:
    """Return the parts of a snapshot that hold messages, in order: those that an agent continues with."""
    return tuple(part for part in snapshot.parts if part.series is not STEPS)


def whole(snapshot: Snapshot, parts: Sequence[bytes]) -> AgentState:
    """Return the state of a snapshot, its execution's steps included, from the bytes of its parts in order.

    Raises StateInvalid when they are not its parts.
    """
    sealed = [_sealed(part, data) for part, data in zip(snapshot.parts, parts, strict=True)]
    steps: AppendList[StepExecution] = _all_of(STEPS, sealed, snapshot.steps)
    tails = zip(snapshot.head.store.sections, snapshot.messages, strict=True)
    return with_bulk(snapshot.head, [_all_of(section.name, sealed, tail) for section, tail in tails], steps)


def latest(snapshot: Snapshot, parts: Mapping[str, bytes]) -> AgentState:
    """Return the state of a snapshot with only its execution's latest steps and messages.

    Those are the tails, and the sealed parts that `parts` has, by their digests. Raises StateInvalid when they are not
    its parts.
    """
    sealed = [_sealed(part, parts[part.digest]) for part in snapshot.parts if part.digest in parts]
    steps: AppendList[StepExecution] = _all_of(STEPS, sealed, snapshot.steps)
    execution_id = snapshot.head.running.execution_id
    tails = zip(snapshot.head.store.sections, snapshot.messages, strict=True)
    sections = [
        AppendList(
            each for each in _all_of(section.name, sealed, tail) if each.metadata.get("execution_id") == execution_id
        )
        for section, tail in tails
    ]
    return with_bulk(snapshot.head, sections, steps)


def _all_of(series: str | None, sealed: Sequence[SealedSegment], tail: Sequence[Any]) -> AppendList[Any]:
    past: AppendList[Any] = AppendList(
        item for each in sealed if each.segment.series == series for item in _read(each)[1]
    )
    return past.extend(tail)


def _sealed(part: Part, data: bytes) -> SealedSegment:
    return SealedSegment(Segment(series=part.series, count=part.count, rank=part.rank), data, part.digest)


def _read(sealed: SealedSegment) -> tuple[SealedSegment, list[Any]]:
    """Return a segment's items; a part that is used up to its `count` alone is sealed again with those items."""
    segment, adapter = sealed.segment, _items(sealed.segment.series)
    try:
        items: list[Any] = adapter.validate_json(sealed.data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]["msg"]
        raise StateInvalid(f"a segment holds what is none of ours ({first}); its store was changed") from None
    if len(items) > segment.count and sealed.known_digest:
        items = items[: segment.count]
        sealed = SealedSegment(segment, adapter.dump_json(items))
    if len(items) != segment.count:
        raise StateInvalid(f"a segment of {segment.count} has {len(items)} in it; its store was changed")
    return sealed, items


@cache
def _items(series: str | None) -> TypeAdapter[Any]:
    return TypeAdapter(list[StepExecution] if series is STEPS else list[Message])
