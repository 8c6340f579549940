"""Branch points: an agent can continue from the end of an execution or of any of its steps. Reads and writes nothing.

A branch shares all sealed parts with its origin; only a cut within an execution makes a snapshot of its own, which
repeats no part. Side effects are not undone: what tools have done stays done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from holdfast.core.agent.state import AgentState
from holdfast.core.base.append_list import AppendList
from holdfast.core.base.call_digest import Digest
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.frozen import replace
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.amounts import counted, joined_models
from holdfast.core.conversation.handoffs import Handover
from holdfast.core.conversation.messages import DEFAULT_SECTION, Message
from holdfast.core.conversation.steps import AgentStep, StepExecution
from holdfast.core.conversation.todos import Todo, list_of_call
from holdfast.core.wire.carry_over import STEPS
from holdfast.core.wire.paging import without_bulk
from holdfast.core.wire.records import Part, Snapshot


def messages_before(state: AgentState) -> int:
    """Return how many messages from before the last execution the default section still has."""
    execution_id = state.running.execution_id
    places = (at for at, each in enumerate(state.messages) if each.metadata.get("execution_id") == execution_id)
    return next(places, len(state.messages))


def cut(snapshot: Snapshot, state: AgentState, steps: int) -> Snapshot:
    """Return the snapshot of `state` after so many steps of its execution; `snapshot` is that of `state`.

    After 0 steps it has the question alone. Calls stay with their answers. Raises InvalidInput for a place that does
    not exist, or whose messages were summarised since.
    """
    total = state.step_count
    if not 0 <= steps <= total:
        what = f"the run {state.running.execution_id} has {counted(total, 'step')}, so it cannot be continued"
        raise InvalidInput(f"{what} after step {steps}; give 0 to {total}, or no step for its end")
    if steps == total:
        return snapshot
    steps_before = state.running.step_executions.before(steps)
    lengths = {STEPS: steps, DEFAULT_SECTION: _length_after(state, steps)}
    usage, cost = sum((each.usage for each in steps_before), Usage()), sum(each.step.cost for each in steps_before)
    unpriced = joined_models((), (model for each in steps_before for model in each.step.unpriced))
    ended = steps_before[-1].completed_at if steps_before else state.running.started_at
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
        handoffs=tuple(each for each in state.running.handoffs if each.step_number <= steps),
        steps_back=tuple(each for each in state.running.steps_back if each.from_step <= steps),
        answer_due=False,
        error=None,
    )
    names = [section.name for section in snapshot.head.store.sections]
    tails = zip(names, snapshot.messages, strict=True)
    return replace(
        snapshot,
        head=replace(
            snapshot.head,
            execution=execution,
            handover=_handover_after(state, steps),
            workspace=_workspace_after(state, steps_before),
            todos=_todos_after(state, steps),
        ),
        parts=_parts(snapshot.parts, lengths),
        steps=_tail(snapshot.parts, STEPS, snapshot.steps, lengths),
        messages=tuple(_tail(snapshot.parts, name, tail, lengths) for name, tail in tails),
    )


def _handover_after(state: AgentState, steps: int) -> Handover | None:
    """Return which agent had the conversation after so many steps: the one that the next handoff was from."""
    undone = next((each for each in state.running.handoffs if each.step_number > steps), None)
    if undone is None or state.handover is None:
        return state.handover
    return replace(state.handover, agent=undone.from_agent)


def _workspace_after(state: AgentState, steps: Iterable[StepExecution]) -> Digest | None:
    """Return the snapshot of the workspace's files after these steps: the latest that a call of them has left."""
    left = [call.workspace for each in steps for call in each.step.tool_executions if call.workspace is not None]
    return left[-1] if left else state.running.workspace_base


def _todos_after(state: AgentState, steps: int) -> tuple[Todo, ...]:
    """Return the agent's list after so many steps: the latest that a call of them has made, or that of the beginning.

    A run recorded without that of its beginning has the list of its end where no call has changed it.
    """
    before: tuple[Todo, ...] | None = None
    changed_later = False
    for done in state.running.step_executions:
        for call in sorted(done.step.tool_executions, key=lambda each: each.completed_at):
            todos = None if call.has_error else list_of_call(call.name, call.args, call.result)
            if todos is not None and done.step.number <= steps:
                before = todos
            changed_later = changed_later or (todos is not None and done.step.number > steps)
    if before is not None:
        return before
    return state.running.todos_base if changed_later else state.todos


def _length_after(state: AgentState, steps: int) -> int:
    """Return how many messages the default section had at the end of that step."""
    done = [each.step for each in state.running.step_executions]
    spoke = [step for step in done[:steps] if step.output_messages]  # a step whose model call failed has no messages
    if spoke:
        return _end_of(state.messages, spoke[-1])
    after = next((step for step in done if step.output_messages), None)
    if after is None:
        return len(state.messages)
    return _end_of(state.messages, after) - len(after.output_messages)


def _end_of(messages: AppendList[Message], step: AgentStep) -> int:
    """Return the place after the last message of a step."""
    for at in range(len(messages) - 1, -1, -1):
        if messages[at].metadata.get("step_id") == step.id:
            return at + 1
    text = f"the messages of step {step.number} were summarised since, or left out"
    raise InvalidInput(f"{text}, so it cannot be continued from there; name a later step, or the run's end")


def _parts(parts: Sequence[Part], lengths: Mapping[str | None, int]) -> tuple[Part, ...]:
    """Return the parts within the lengths of their series; the last one may be cut."""
    remaining, result = dict(lengths), list[Part]()
    for part in parts:
        room = remaining.get(part.series, part.count)
        if room > 0:
            result.append(replace(part, count=min(room, part.count)))
        if part.series in remaining:
            remaining[part.series] -= part.count
    return tuple(result)


def _tail(
    parts: Sequence[Part], series: str | None, tail: tuple[Any, ...], lengths: Mapping[str | None, int]
) -> tuple[Any, ...]:
    if series not in lengths:
        return tail
    sealed = sum(part.count for part in parts if part.series == series)
    return tail[: max(0, lengths[series] - sealed)]
