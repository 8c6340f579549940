"""The timeline of a run: model calls, tool calls, waits and subagents, each with its times.

From steps alone a step is one bar; with the run's events model calls and waits for a person have bars of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Literal

from holdfast.core.agent.execution_state import call_name, named_id
from holdfast.core.conversation.amounts import counted, token_count, tokens_in_and_out
from holdfast.core.conversation.steps import Outcome
from holdfast.core.wire.execution_events import (
    AnyObserved,
    ApprovalRequested,
    ApprovalResolved,
    InferenceRequestStarted,
    InferenceResponseReceived,
)
from holdfast.view.run_view import CallView, RunView, StepView

TIMELINE_ROWS_MAX: Final = 400
"""The most rows of a timeline's picture, each some 20 px high: beyond it nobody scrolls; the tables have all."""

Kind = Literal["step", "model", "tool", "failed", "blocked", "approval", "subagent", "under_way"]
"""What a bar stands for, which decides its colour."""


@dataclass(frozen=True, slots=True)
class Bar:
    """Something that took its time: from when, until when (none: it is under way), and what to say about it."""

    kind: Kind
    began: datetime
    ended: datetime | None
    about: str


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the picture: what it is about, how deep it stands below others, and its bars."""

    label: str
    depth: int
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """All of it, from `began` to `ended`; `left_out` says how many rows there are beyond TIMELINE_ROWS_MAX."""

    began: datetime
    ended: datetime
    rows: tuple[Row, ...]
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Span:
    """From when until when something went on, as events told it; none while it is under way."""

    began: datetime
    ended: datetime | None


def timeline(run: RunView, events: Sequence[AnyObserved] = ()) -> Timeline:
    """Return the timeline of a run that has begun; what is under way lasts until its latest moment.

    A subagent stands below the call that began it, one whose call is not known at the end.
    """
    models, waits = _spans(events)
    spawned = {each.execution_id: each for each in run.children}
    rows: list[Row] = []
    for step in run.steps:
        rows += _step(step, models.get(step.number))
        for place, call in enumerate(step.calls):
            rows.append(Row(call.tool, 1, tuple(_call(call, waits.get(call.id)))))
            child = spawned.pop(named_id(run.execution_id, call_name(step.number, place)), None)
            rows += [] if child is None else _subagent(child, 2)
    for child in spawned.values():
        rows += _subagent(child, 0)
    visible = tuple(rows[:TIMELINE_ROWS_MAX])
    ends = (moment for row in visible for bar in row.bars for moment in (bar.began, bar.ended) if moment is not None)
    began = run.started_at or min(ends)
    ended = max([run.completed_at or _after(began, run.seconds or 0.0), *ends])
    return Timeline(began, ended, visible, max(0, len(rows) - TIMELINE_ROWS_MAX))


def _step(step: StepView, model: Span | None) -> Iterator[Row]:
    if step.started_at is None:
        return
    about = f"step {step.number}: {step.model or 'model'}, {tokens_in_and_out(step.usage)}"
    bars = [Bar("step", step.started_at, step.completed_at, about)]
    if model is not None:
        bars.append(Bar("model", model.began, model.ended, f"model call of {about}"))
    elif not step.calls:
        bars.append(Bar("model", step.started_at, step.completed_at, f"model call of {about}"))
    yield Row(f"step {step.number}", 0, tuple(bars))


def _call(call: CallView, wait: Span | None) -> Iterator[Bar]:
    decided = call.approval
    if wait is not None:
        by = f", {decided.decision} by {decided.by or 'nobody'}" if decided else ""
        yield Bar("approval", wait.began, wait.ended, f"{call.tool} waits for a person{by}")
    if call.started_at is not None:
        # a call's own time begins after the wait for it
        began = max(call.started_at, wait.ended) if wait is not None and wait.ended is not None else call.started_at
        if wait is None or wait.ended is not None:
            yield Bar(_kind(call), began, call.completed_at, f"{call.tool}: {call.outcome}")


def _kind(call: CallView) -> Kind:
    if call.completed_at is None:
        return "under_way"
    if call.outcome == Outcome.FAILED:
        return "failed"
    return "tool" if call.outcome == Outcome.SUCCEEDED else "blocked"


def _subagent(each: RunView, depth: int) -> Iterator[Row]:
    if each.started_at is not None:
        steps = "" if each.step_count is None else f", {counted(each.step_count, 'step')}"
        about = f"subagent {each.agent}: {each.status}{steps}, {token_count(each.usage)} tokens"
        ended = None if each.seconds is None else _after(each.started_at, each.seconds)
        yield Row(f"↳ {each.agent}", depth, (Bar("subagent", each.started_at, ended, about),))
    for below in each.children:
        yield from _subagent(below, depth + 1)


def _after(began: datetime, seconds: float) -> datetime:
    return began + timedelta(seconds=seconds)


def _spans(events: Iterable[AnyObserved]) -> tuple[dict[int, Span], dict[str, Span]]:
    """Return when models were asked and had answered, by step, and when calls waited for a person, by call."""
    models, waits = dict[int, Span](), dict[str, Span]()
    for event in events:
        match event:
            case InferenceRequestStarted():
                models[event.step_number] = Span(event.at, None)
            case InferenceResponseReceived() if event.step_number in models:
                models[event.step_number] = replace(models[event.step_number], ended=event.at)
            case ApprovalRequested():
                waits[event.call.id] = Span(event.at, None)
            case ApprovalResolved() if event.call_id in waits:
                waits[event.call_id] = replace(waits[event.call_id], ended=event.at)
            case _:
                pass
    return models, waits
