"""`RunExport`: all that is known of a run as one JSON document, whose schema is docs/schema/run-export.json."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from pydantic import AwareDatetime, JsonValue

from holdfast.client.watch_events import to_dict
from holdfast.core.agent.state import AgentState
from holdfast.core.base.frozen import Frozen
from holdfast.core.wire.execution_events import AnyObserved
from holdfast.view.rows import RunSummary, StepRow, SubagentRow, messages_of, step_rows, summary_of


@dataclass(frozen=True, slots=True)
class Report:
    """All that is known of a run: what every form of a report is made of.

    `told_by` the server, or the record that was kept; `retold` says that its events are made up again from its state.
    `events_left_out` counts those beyond EXPORTED_EVENTS_MAX.
    """

    made_at: datetime
    told_by: Literal["server", "record"]
    state: AgentState
    summary: RunSummary
    steps: tuple[StepRow, ...]
    subagents: tuple[SubagentRow, ...]
    events: Sequence[AnyObserved]
    retold: bool = False
    events_left_out: int = 0


class RunExport(Frozen):
    """A run as `holdfast export` writes it as JSON. `format` is the version of this form."""

    format: Literal[1] = 1
    exported_at: AwareDatetime
    told_by: Literal["server", "record"]
    summary: RunSummary
    steps: tuple[StepRow, ...]
    messages: tuple[dict[str, JsonValue], ...]
    subagents: tuple[SubagentRow, ...]
    events: tuple[dict[str, JsonValue], ...]
    events_retold: bool
    events_left_out: int
    state: dict[str, JsonValue]


def report(  # all that is known
    state: AgentState,
    agent: str,
    made_at: datetime,
    *,
    told_by: Literal["server", "record"] = "server",
    subagents: Iterable[SubagentRow] = (),
    events: Sequence[AnyObserved] = (),
    retold: bool = False,
    events_left_out: int = 0,
) -> Report:
    """Return the report on the agent's execution; ValueError where it has none."""
    return Report(
        made_at=made_at,
        told_by=told_by,
        state=state,
        summary=summary_of(state, agent),
        steps=tuple(step_rows(state)),
        subagents=tuple(subagents),
        events=events,
        retold=retold,
        events_left_out=events_left_out,
    )


def to_json_dict(told: Report) -> dict[str, Any]:
    """Return the report as the JSON-ready data of a `RunExport`."""
    document = RunExport(
        exported_at=told.made_at,
        told_by=told.told_by,
        summary=told.summary,
        steps=told.steps,
        messages=tuple(messages_of(told.state)),
        subagents=told.subagents,
        events=tuple(map(to_dict, told.events)),
        events_retold=told.retold,
        events_left_out=told.events_left_out,
        state=told.state.to_dict(),
    )
    return document.model_dump(mode="json")
