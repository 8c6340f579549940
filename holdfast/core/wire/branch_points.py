"""Where an agent can go on from: the end of an execution, or the end of any of its steps. Reads and writes nothing.

A branch shares all sealed parts with what it was cut from: it is a snapshot of its own only where it was cut, and then
one without anything that stood there already. Side effects are not undone: what tools have done stays done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.core.agent.state import AgentState
from holdfast.core.base.append_list import AppendList
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.frozen import replace
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.amounts import joined_models
from holdfast.core.conversation.messages import DEFAULT_SECTION, Message
from holdfast.core.conversation.steps import AgentStep
from holdfast.core.wire.carry_over import STEPS
from holdfast.core.wire.paging import without_bulk
from holdfast.core.wire.records import Part, Snapshot


def messages_before(state: AgentState) -> int:
    """Return how many messages the default section had before its last execution, as far as they still stand there."""
    execution_id = state.running.execution_id
    said = (at for at, each in enumerate(state.messages) if each.metadata.get("execution_id") == execution_id)
    return next(said, len(state.messages))


def cut(snapshot: Snapshot, state: AgentState, steps: int) -> Snapshot:
    """Return the snapshot of `state` as it stood after so many steps of its execution; `snapshot` is that of `state`.

    After none of them: with what was asked alone. Calls stay with their answers. Raises InvalidInput for a place that
    there is not, or whose messages were summarised since.
    """
    total = state.step_count
    if not 0 <= steps <= total:
        what = f"the execution {state.running.execution_id} has {total} steps"
        raise InvalidInput(f"{what}, so none can go on after step {steps}; name 0 to {total}, or none for its end")
    if steps == total:
        return snapshot
    kept = state.running.step_executions.before(steps)
    lengths = {STEPS: steps, DEFAULT_SECTION: _length_after(state, steps)}
    usage, cost = sum((each.usage for each in kept), Usage()), sum(each.step.cost for each in kept)
    unpriced = joined_models((), (model for each in kept for model in each.step.unpriced))
    ended = kept[-1].completed_at if kept else state.running.started_at
    execution = replace(
        without_bulk(state).running,
        usage=usage,
        cost=cost,
        unpriced=unpriced,
        completed_at=ended,
        current_step=None,
        current_step_started_at=None,
        open_calls=(),
        waiting_messages=(),
        answer_due=False,
        error=None,
    )
    names = [section.name for section in snapshot.head.store.sections]
    tails = zip(names, snapshot.messages, strict=True)
    return replace(
        snapshot,
        head=replace(snapshot.head, execution=execution),
        parts=_parts(snapshot.parts, lengths),
        steps=_tail(snapshot.parts, STEPS, snapshot.steps, lengths),
        messages=tuple(_tail(snapshot.parts, name, tail, lengths) for name, tail in tails),
    )


def _length_after(state: AgentState, steps: int) -> int:
    """Return how many messages the default section had at the end of that step."""
    done = [each.step for each in state.running.step_executions]
    spoke = [step for step in done[:steps] if step.output_messages]  # one whose model call failed says nothing
    if spoke:
        return _end_of(state.messages, spoke[-1])
    after = next((step for step in done if step.output_messages), None)
    if after is None:
        return len(state.messages)
    return _end_of(state.messages, after) - len(after.output_messages)


def _end_of(messages: AppendList[Message], step: AgentStep) -> int:
    """Return the place behind the last message of a step."""
    for at in range(len(messages) - 1, -1, -1):
        if messages[at].metadata.get("step_id") == step.id:
            return at + 1
    told = f"the messages of step {step.number} were summarised since, and cannot be gone on from"
    raise InvalidInput(f"{told}; name a later step, or the execution's end")


def _parts(parts: Sequence[Part], lengths: Mapping[str | None, int]) -> tuple[Part, ...]:
    """Return the parts as far as they lie within the lengths of their series; the last one perhaps in part only."""
    left, kept = dict(lengths), list[Part]()
    for part in parts:
        room = left.get(part.series, part.count)
        if room > 0:
            kept.append(replace(part, count=min(room, part.count)))
        if part.series in left:
            left[part.series] -= part.count
    return tuple(kept)


def _tail(
    parts: Sequence[Part], series: str | None, tail: tuple[Any, ...], lengths: Mapping[str | None, int]
) -> tuple[Any, ...]:
    if series not in lengths:
        return tail
    sealed = sum(part.count for part in parts if part.series == series)
    return tail[: max(0, lengths[series] - sealed)]
