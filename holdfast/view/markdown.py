"""A report on a run as Markdown: what was asked and answered, a table of the steps, the conversation, subagents."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from holdfast.core.agent.budget import LIMITS, SECONDS, ExecutionBudget
from holdfast.core.base.safe_text import printable
from holdfast.core.conversation.amounts import dollars, duration, in_full, moment, tokens_in_and_out
from holdfast.core.conversation.decision_text import APPROVAL, decision_text, marked
from holdfast.core.conversation.display_text import beginning
from holdfast.core.conversation.messages import Message
from holdfast.view.report import Report
from holdfast.view.run_view import CallView, RunView, StepView

SPECIAL: Final = re.compile(r"([\\`*_{}\[\]()<>#+!|~&-])")
"""What means something in Markdown, or begins HTML in it."""

CELL_CHARS_MAX: Final = 200
"""How much of a text one cell of a table shows."""


def to_markdown(report: Report) -> str:
    """Return the report. What models, tools and people said stands in fences and cannot become markup."""
    return "\n".join(_lines(report)).rstrip() + "\n"


def _lines(report: Report) -> Iterator[str]:
    run = report.run
    yield f"# Run of {plain(run.agent or 'an agent')}: {run.status}"
    yield ""
    yield from _table(("", ""), _facts(report))
    yield from _text("Asked", run.task)
    yield from _text("Answer", run.answer)
    if run.steps:
        yield "## Steps"
        yield ""
        headings = ("step", "what", "began", "took", "calls", "tokens", "cost")
        yield from _table(headings, map(_step, run.steps))
    if run.children:
        yield "## Subagents"
        yield ""
        yield from _subagents(run.children, 0)
        yield ""
    yield "## Conversation"
    yield ""
    for section in report.state.store.sections:
        for message in section.messages:
            yield from _message(message)
    yield f"*Exported {moment(report.made_at)}.*"


def _facts(report: Report) -> Iterator[tuple[str, str]]:
    run = report.run
    yield "run", f"`{run.execution_id}`"
    yield "agent", f"`{run.agent_id}`"
    yield "status", run.status + _why(run)
    yield "began", moment(run.started_at)
    yield "took", duration(run.seconds)
    yield "steps", str(run.step_count)
    yield "tokens", tokens_in_and_out(run.usage)
    yield "cost", plain(dollars(run.cost, run.unpriced))
    yield "limits", plain(_limits(run.budget))
    for todo in run.todos:
        yield "todo", plain(todo.line)
    for warning in run.warnings:
        yield "warning", plain(warning)
    if report.source == "record":
        yield "read from", "the record; the server has forgotten the run"


def _why(run: RunView) -> str:
    reason = ": ".join(filter(None, (run.stop_reason, plain(run.why))))
    return f" ({reason})" if reason else ""


def _step(step: StepView) -> tuple[str, ...]:
    deeds = [f"{plain(call.tool)} {call.outcome}{_took(call)}{_decided(call, step)}" for call in step.calls]
    calls = "; ".join(deeds + ([f"the provider ran {plain(step.provider_ran)}"] if step.provider_ran else []))
    kind = step.kind.replace("_", " ")
    elapsed = duration(step.seconds)
    return (
        str(step.number),
        kind,
        moment(step.started_at),
        elapsed,
        calls,
        tokens_in_and_out(step.usage),
        plain(dollars(step.cost, step.unpriced)),
    )


def _took(call: CallView) -> str:
    return "" if call.seconds is None else f" ({duration(call.seconds)})"


def _decided(call: CallView, step: StepView) -> str:
    if call.approval is None:
        return ""
    return f", {plain(decision_text(call.approval, call.arguments, since=step.started_at))}"


def _limits(budget: ExecutionBudget) -> str:
    allowed = ((limit, limit.of(budget)) for limit in LIMITS)
    limits = [
        duration(amount) if limit is SECONDS else f"{in_full(amount)} {limit.symbol or limit.unit}"
        for limit, amount in allowed
        if amount is not None
    ]
    limits += [] if budget.deadline is None else [f"until {moment(budget.deadline)}"]
    return ", ".join(limits) or "none"


def _subagents(rows: Iterable[RunView], depth: int) -> Iterator[str]:
    for each in rows:
        began = f"{moment(each.started_at)}, {duration(each.seconds)}"
        spent = f"{tokens_in_and_out(each.usage)}, {plain(dollars(each.cost, each.unpriced))}"
        yield f"{'  ' * depth}* {plain(each.agent)} `{each.execution_id}`: {plain(each.status)}, {began}, {spent}"
        yield from _subagents(each.children, depth + 1)


def _message(message: Message) -> Iterator[str]:
    yield f"### {message.role}"
    yield ""
    if APPROVAL in message.metadata:
        yield f"*{plain(str(message.metadata[APPROVAL]))}*"
        yield ""
    if message.shown_text:
        yield from fenced(message.shown_text)
    for call in message.tool_calls:
        yield f"calls {plain(call.name)}"
        yield ""
        yield from fenced(json.dumps(dict(call.arguments), ensure_ascii=False, indent=1), "json")


def _text(heading: str, text: str) -> Iterator[str]:
    if text:
        yield f"## {heading}"
        yield ""
        yield from fenced(text)


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(headings)} |"
    yield "|" + "---|" * len(headings)
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


def fenced(text: str, language: str = "") -> Iterator[str]:
    """Yield a text between fences that are longer than any in it; a long text is cut, which is said behind it."""
    excerpt, left_out = beginning(printable(text))
    longest = max((len(ticks) for ticks in re.findall(r"`+", excerpt)), default=0)
    fence = "`" * max(3, longest + 1)
    yield f"{fence}{language}"
    yield excerpt
    yield fence
    yield ""
    if left_out:
        yield f"*{left_out}; the JSON export has them.*"
        yield ""


def plain(text: str) -> str:
    """Return a text on one line that Markdown shows as it is."""
    flat = " ".join(printable(text).split())
    return SPECIAL.sub(r"\\\1", marked(flat, CELL_CHARS_MAX))
