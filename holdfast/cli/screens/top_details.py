"""The details pane of `holdfast top`: one row's limits, step, waiting calls and latest text. Asks nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Final

from rich.text import Text

from holdfast.cli.screens.output import short
from holdfast.cli.screens.progress_bars import Glyphs
from holdfast.cli.screens.top_columns import limits
from holdfast.core.base.bounds import LIVE_TEXT_CHARS_MAX
from holdfast.core.base.call_digest import short_digest
from holdfast.core.base.safe_text import printable
from holdfast.core.conversation.amounts import duration, moment
from holdfast.core.conversation.decision_text import decision_text
from holdfast.core.conversation.steps import CallStage
from holdfast.core.conversation.stop_reasons import StopReason

if TYPE_CHECKING:
    from holdfast.client.waiting_calls import WaitingCall
    from holdfast.view.run_view import StepView
    from holdfast.view.server_overview import Row

TEXT_LINES: Final = 12
"""How many lines of what the model said last are shown."""


def details(row: Row, now: datetime, glyphs: Glyphs, coming: str = "") -> Text:
    """Return all that is known of a row; `coming` is the end of an answer under way."""
    listed = row.listed
    lines = [Text.assemble((listed.kind, "bold"), f" {listed.id}", (f"  since {moment(row.started_at)}", "dim"))]
    labels = {"agent": listed.summary.agent, "tenant": listed.tenant, "parent": listed.parent}
    lines.append(Text("  ".join(f"{name} {short(value)}" for name, value in labels.items() if value), "dim"))
    if row.unread:
        lines.append(Text(short(row.unread), "yellow"))
    if row.run is not None:
        lines += [*limits(row, now, glyphs), *_step(row.step, now), *_waiting(row)]
        lines += _last_lines(coming or (row.step.text[-LIVE_TEXT_CHARS_MAX:] if row.step else ""))
        if row.run.stop_reason not in (None, StopReason.COMPLETED):
            lines.append(Text(f"stops: {short(row.run.why_stopped)}", "yellow"))
    return Text("\n").join(lines)


def call(waiting: WaitingCall) -> Text:
    """Return a call that waits, whole: what one is to decide about."""
    arguments = json.dumps(dict(waiting.arguments), indent=2, ensure_ascii=False)
    until = "" if waiting.expires_at is None else f"\nuntil {moment(waiting.expires_at)}"
    return Text.assemble(
        (printable(waiting.tool), "bold cyan"),
        f"\n{printable(arguments)}",
        (f"\ndigest {short_digest(waiting.digest)}, call {printable(waiting.call_id)}{until}", "dim"),
        (f"\nof {short(waiting.agent)}, run {waiting.execution_id}", "dim"),
    )


def _step(step: StepView | None, now: datetime) -> Iterator[Text]:
    if step is None:
        return
    since = None if step.completed_at else step.started_at
    yield Text.assemble(
        (f"step {step.number}", "bold"), "" if since is None else f"  {duration((now - since).total_seconds())}"
    )
    for each in step.calls:
        if each.outcome not in (CallStage.APPROVAL, CallStage.INPUT):
            called = short(f"{each.tool} {json.dumps(each.arguments, ensure_ascii=False, separators=(',', ':'))}")
            yield Text(f"  {each.outcome.replace('_', ' ')}: {called}", "" if each.is_open else "dim")
        if not each.is_open and each.approval is not None:
            yield Text(f"    {printable(decision_text(each.approval, each.arguments))}", "dim")


def _waiting(row: Row) -> Iterator[Text]:
    for each in row.waiting:
        if each.message is not None:
            yield Text(f"  {printable(each.tool)} waits for an answer: {short(each.message)}", "yellow")
            yield Text(f"    holdfast answer {each.execution_id} {printable(each.call_id)}", "yellow")
            continue
        arguments = short(json.dumps(dict(each.arguments), ensure_ascii=False))
        until = "" if each.expires_at is None else f", until {moment(each.expires_at)}"
        yield Text(f"  waits for approval{until}: {printable(each.tool)} {arguments}", "yellow")
        yield Text(f"    digest {short_digest(each.digest)}: a approves, d denies", "yellow")


def _last_lines(text: str) -> list[Text]:
    lines = [line for line in printable(text).splitlines() if line.strip()][-TEXT_LINES:]
    return [Text("says", "bold"), *map(Text, lines)] if lines else []
