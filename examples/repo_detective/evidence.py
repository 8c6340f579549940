"""What the ledger proves about a run: how often each tool and the model were really at work. Prints nothing.

A tool call is known by its idempotency key, which is also the id of its record in the run's state. So the ledger,
which no part of Temporal writes, can be held against the state, which Temporal kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from holdfast import AgentState, Outcome, ToolExecution
from holdfast.testing import Entry, idempotency_key

ENDS = frozenset({"finished", "failed"})


NOT_RUN = (Outcome.BLOCKED, Outcome.DENIED, Outcome.CANCELLED)
CALLS_OF_A_STEP = 128
"""The most calls of one answer that are taken."""


@dataclass(frozen=True, slots=True)
class ToolCount:
    """How often one tool was asked for by the model, and how often it really began, ended, and was cut off."""

    name: str
    asked: int
    started: int
    finished: int
    failed: int
    cut: int


@dataclass(frozen=True, slots=True)
class ModelCount:
    """How often the model was asked in one step, and how often it answered."""

    step: int
    asked: int
    answered: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """The counts, and every way in which they do not add up.

    `repeated` are calls that ended and were begun again nevertheless: allowed, because the news of an end can be lost
    in a crash, but rare.
    """

    tools: tuple[ToolCount, ...]
    model: tuple[ModelCount, ...]
    repeated: int
    problems: tuple[str, ...]


def keys_after_first_step(execution_id: str, steps_max: int) -> frozenset[str]:
    """Return the keys of every tool call that the run can make in its second step or later."""
    steps, places = range(2, steps_max + 1), range(CALLS_OF_A_STEP)
    return frozenset(idempotency_key(execution_id, step, place) for step in steps for place in places)


def under_way(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Return the beginnings that no end has followed, one per call at the most: calls at work, or cut off."""
    begun: dict[str, Entry] = {}
    for entry in entries:
        if entry.phase == "started":
            begun[entry.key] = entry
        elif entry.phase in ENDS:
            begun.pop(entry.key, None)
    return tuple(begun.values())


def weigh(state: AgentState, entries: Sequence[Entry], cut: Sequence[Entry], *, model_noted: bool) -> Evidence:
    """Hold the ledger's `entries` against the run's final `state`.

    `cut` are the calls that were under way when the worker was killed. `model_noted` says whether the endpoint was
    ours and noted how often it was asked.
    """
    tools = [entry for entry in entries if entry.kind == "tool"]
    asked = {each.id: each for step in state.steps for each in step.tool_executions if each.outcome not in NOT_RUN}
    wanted = [each.call.name for each in asked.values()]
    names = sorted({*wanted, *(entry.name for entry in tools)})
    unknown = {entry.key for entry in tools} - asked.keys()
    problems = [f"the ledger has a call {key} that the run does not know" for key in sorted(unknown)]
    for execution in asked.values():
        problems += _call_problems(execution, tools, cut)
    model = _model_counts(entries) if model_noted else ()
    if model_noted:
        problems += _model_problems(model, state.step_count)
    ends = Counter(entry.key for entry in tools if entry.phase in ENDS)
    return Evidence(
        tools=tuple(_tool_count(name, wanted, tools, cut) for name in names),
        model=model,
        repeated=sum(count > 1 for count in ends.values()),
        problems=tuple(problems),
    )


def _call_problems(execution: ToolExecution, tools: Sequence[Entry], cut: Sequence[Entry]) -> list[str]:
    """Return what is wrong with one call: each of its beginnings has an end, or was cut off by the kill."""
    of_it = [entry for entry in tools if entry.key == execution.id]
    started = sum(entry.phase == "started" for entry in of_it)
    ended = sum(entry.phase in ENDS for entry in of_it)
    lost = sum(entry.key == execution.id for entry in cut)
    name = execution.call.name
    if started != ended + lost:
        return [f"a call of {name} began {started} times, ended {ended} times and was cut off {lost} times"]
    if not ended and execution.outcome is Outcome.SUCCEEDED:
        return [f"a call of {name} has a result in the run but never ended in the ledger"]
    return []


def _tool_count(name: str, asked: Sequence[str], tools: Sequence[Entry], cut: Sequence[Entry]) -> ToolCount:
    phases = Counter(entry.phase for entry in tools if entry.name == name)
    return ToolCount(
        name=name,
        asked=asked.count(name),
        started=phases["started"],
        finished=phases["finished"],
        failed=phases["failed"],
        cut=sum(entry.name == name for entry in cut),
    )


def _model_counts(entries: Sequence[Entry]) -> tuple[ModelCount, ...]:
    calls = [entry for entry in entries if entry.kind == "model"]
    phases = Counter((entry.detail.get("turn", -1) + 1, entry.phase) for entry in calls)
    steps = sorted({step for step, _ in phases})
    return tuple(ModelCount(step, phases[step, "started"], phases[step, "finished"]) for step in steps)


def _model_problems(model: Sequence[ModelCount], step_count: int) -> list[str]:
    problems = [
        f"the model was asked {each.asked} times and answered {each.answered} times in step {each.step}"
        for each in model
        if (each.asked, each.answered) != (1, 1)
    ]
    if len(model) != step_count:
        problems.append(f"the run has {step_count} steps, the model was asked for {len(model)}")
    return problems
