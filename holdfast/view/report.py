"""`Report`: everything known about a run, and its JSON document (docs/schema/run-export.json)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, Literal

from pydantic import AwareDatetime, JsonValue

from holdfast.client.holdfast import Holdfast
from holdfast.client.run_source import RunSource, Source
from holdfast.client.watch_events import to_dict
from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.state import AgentState
from holdfast.core.base.errors import ExecutionNotFound, InvalidInput
from holdfast.core.base.frozen import Frozen
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.messages import Message
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.wire.execution_events import AnyObserved
from holdfast.core.wire.execution_record import question_of
from holdfast.view.run_tree import tree
from holdfast.view.run_view import RunView, StepView, run_view, step_views, subagent_calls

EXPORTED_EVENTS_MAX: Final = 100_000
"""The most events that an exported run has, the first ones; a run of a thousand steps has ten thousand or so."""


@dataclass(frozen=True, slots=True)
class Report:
    """All that is known of a run, which has its steps and, as its children, its subagents' runs.

    `source` is the server or the record; `reconstructed` says that the events were derived from the state.
    `events_left_out` counts those beyond EXPORTED_EVENTS_MAX.
    """

    state: AgentState
    run: RunView
    made_at: datetime
    source: Source = "server"
    events: Sequence[AnyObserved] = ()
    reconstructed: bool = False
    events_left_out: int = 0


async def read_report(holdfast: Holdfast, execution_id: str) -> Report:
    """Return the report on a run, under way or ended, also on one that the server has forgotten.

    Raises InvalidInput, ExecutionNotFound, ServerUnavailable where it is under way and no worker answers.
    """
    source = await RunSource.find(holdfast, execution_id)
    state = await source.whole()
    if state.execution is None:
        raise InvalidInput(f"run {source.execution_id} has not begun yet; export it in a moment")
    available = await source.has_events()
    events, left_out = await _events(source) if available else (await source.reconstructed_events(), 0)
    run = reported(state, source.agent, await _subagents(source, state))
    made_at = datetime.now(UTC)
    return Report(state, run, made_at, source.source, events, reconstructed=not available, events_left_out=left_out)


def reported(state: AgentState, agent: str, subagents: Sequence[RunView] = ()) -> RunView:
    """Return the agent's execution with all that a report says of it; ValueError where it has none."""
    run = run_view(state, agent)
    return replace(run, task=question_of(state), steps=tuple(step_views(state)), children=tuple(subagents))


async def _events(source: RunSource) -> tuple[list[AnyObserved], int]:
    """Return the events so far, and how many there are beyond EXPORTED_EVENTS_MAX."""
    collected: list[AnyObserved] = []
    left_out = 0
    async with aclosing(source.events()) as events:
        async for event in events:
            if len(collected) < EXPORTED_EVENTS_MAX:
                collected.append(event)
            else:
                left_out += 1
    return collected, left_out


async def _subagents(source: RunSource, state: AgentState) -> tuple[RunView, ...]:
    """Return the runs below; where the server has forgotten them, what the run's own state knows of them."""
    listed: tuple[RunView, ...] = ()
    with suppress(ExecutionNotFound):
        listed = (await tree(source.holdfast, source.execution_id)).children
    ids = {each.execution_id for each in listed}
    return (*listed, *(each for each in subagent_calls(state) if each.execution_id not in ids))


# --- as JSON


class RunSummary(Frozen):
    """What one wants to know of a run first."""

    execution_id: str
    agent_id: str
    parent_agent_id: str | None
    agent: str
    task: str
    status: ExecutionStatus
    stop_reason: StopReason | None
    why: str
    answer: str
    started_at: AwareDatetime
    completed_at: AwareDatetime | None
    seconds: float
    seconds_used: float
    """How many of them count toward `max_seconds`."""
    step_count: int
    steps_used: int
    usage: Usage
    cost: float
    unpriced: tuple[str, ...]
    budget: ExecutionBudget
    warnings: tuple[str, ...]


class SubagentRow(Frozen):
    """The run of a subagent, and below it those that it has started itself."""

    execution_id: str
    agent: str
    status: str
    started_at: AwareDatetime | None
    seconds: float | None
    steps: int | None
    usage: Usage
    cost: float
    unpriced: tuple[str, ...]
    why: str
    subagents: tuple[SubagentRow, ...] = ()


class RunExport(Frozen):
    """A run as `holdfast export` writes it as JSON. `format` is the version of this form."""

    format: Literal[1] = 1
    exported_at: AwareDatetime
    told_by: Source
    summary: RunSummary
    steps: tuple[StepView, ...]
    messages: tuple[dict[str, JsonValue], ...]
    subagents: tuple[SubagentRow, ...]
    events: tuple[dict[str, JsonValue], ...]
    events_retold: bool
    events_left_out: int
    state: dict[str, JsonValue]


def to_json_dict(report: Report) -> dict[str, Any]:
    """Return the report as the JSON-ready data of a `RunExport`."""
    seconds_used = report.run.seconds_used(report.state.updated_at)
    document = RunExport(
        exported_at=report.made_at,
        told_by=report.source,
        summary=RunSummary(**_fields(RunSummary, report.run), seconds_used=seconds_used),
        steps=report.run.steps,
        messages=tuple(
            message_data(section.name, each) for section in report.state.store.sections for each in section.messages
        ),
        subagents=tuple(map(_subagent, report.run.children)),
        events=tuple(map(to_dict, report.events)),
        events_retold=report.reconstructed,
        events_left_out=report.events_left_out,
        state=report.state.to_dict(),
    )
    return document.model_dump(mode="json")


def message_data(section: str, message: Message) -> dict[str, JsonValue]:
    """Return a message as JSON-ready data, with the section it stands in and without its provider's items."""
    return {"section": section, **message.model_dump(mode="json", exclude={"items"})}


def _subagent(run: RunView) -> SubagentRow:
    below = tuple(map(_subagent, run.children))
    return SubagentRow(**_fields(SubagentRow, run), steps=run.step_count, subagents=below)


def _fields(shape: type[Frozen], run: RunView) -> dict[str, Any]:
    """Return what a run and the shape call by the same name."""
    own = set(shape.model_fields) & set(RunView.__dataclass_fields__) - {"steps"}
    return {name: getattr(run, name) for name in own}
