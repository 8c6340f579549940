"""A report on a run as one self-contained HTML page: no network, no script, light and dark.

The page is built as a tree of elements (`html_elements`): what models, tools and people said is text, never markup.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from holdfast.core.agent.budget import COST, LIMITS, SECONDS, STEPS, TOKENS, BudgetUse
from holdfast.core.conversation.amounts import (
    counted,
    dollars,
    duration,
    in_full,
    moment,
    token_count,
    tokens_in_and_out,
)
from holdfast.core.conversation.decision_text import APPROVAL, decision_text
from holdfast.core.conversation.display_text import beginning
from holdfast.core.conversation.messages import Message
from holdfast.core.conversation.steps import ErrorRecord
from holdfast.core.wire.execution_events import AnyObserved
from holdfast.view.html_elements import Content, Element, element, html_document, styled
from holdfast.view.report import Report
from holdfast.view.run_view import CallView, RunView, StepView
from holdfast.view.style_sheet import PAGE_STYLE
from holdfast.view.svg import drawn
from holdfast.view.timeline import timeline

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
"""What a browser may load for the page: nothing; and it runs no script, whatever may be in it."""

EVENTS_SHOWN_MAX: Final = 2_000
"""How many events the page lists; the JSON export has more."""


def to_html(report: Report) -> str:
    """Return the page."""
    run = report.run
    title = f"{run.agent or 'run'} · {run.status} · {run.execution_id[:8]}"
    picture = drawn(timeline(run, report.events))
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        styled(PAGE_STYLE),
    )
    main = element(
        "main",
        _header(report),
        _figures(run, report.state.budget_use),
        _text_section("Asked", run.task),
        _text_section("Answer", run.answer),
        _section("Todo", element("ul", *(element("li", each.line) for each in run.todos))) if run.todos else None,
        _section("Timeline", element("div", picture, class_="picture")),
        _section("Steps", (_step(each) for each in run.steps)) if run.steps else None,
        _section("Subagents", _subagents(run.children)) if run.children else None,
        _conversation(report),
        _events(report),
        element("footer", f"Exported {moment(report.made_at)} by holdfast export."),
    )
    return html_document(element("html", head, element("body", main), lang="en"))


# --- the head of the page


def _header(report: Report) -> Element:
    run = report.run
    return element(
        "header",
        element(
            "h1",
            run.agent or "run",
            " ",
            element("span", run.status.replace("_", " "), class_=f"status {run.status}"),
        ),
        element("p", run.why_stopped, class_="why") if run.why_stopped and run.status != "completed" else None,
        element("p", "run ", element("code", run.execution_id), " of agent ", element("code", run.agent_id)),
        (element("p", f"⚠ {warning}", class_="warning") for warning in run.warnings),
        element("p", "Read from its record: the server has forgotten the run.", class_="warning")
        if report.source == "record"
        else None,
    )


def _figures(run: RunView, use: BudgetUse) -> Element:
    """Return what was used of every limit, set or not: the time first."""
    prices = "more than that: some tokens have no price" if run.unpriced else "by known prices"
    texts = {
        SECONDS: ("took", duration(run.seconds), moment(run.started_at), ""),
        STEPS: ("steps", str(run.steps_used), "subagents' included", ""),
        TOKENS: ("tokens", token_count(run.usage), tokens_in_and_out(run.usage), ""),
        COST: ("cost", dollars(run.cost, run.unpriced), prices, " USD"),
    }
    figures: list[Element] = []
    for limit in sorted(LIMITS, key=lambda limit: limit is not SECONDS):
        used = limit.used(use)
        words_of = texts.get(limit) or (limit.unit, f"{used:,}", "", "")
        allowed = limit.of(run.budget)
        most = duration(allowed) if limit is SECONDS else in_full(allowed or 0) + words_of[3]
        figures.append(_figure(*words_of[:3], most, used, allowed))
    return element("dl", *figures, class_="figures")


def _figure(name: str, value: str, about: str, most: str, used: float, limit: float | None) -> Element:
    """Return a figure, and below it how much that is of its limit, which reads `most`, where there is one."""
    parts = [element("dt", name), element("dd", value, class_="value"), element("dd", about, class_="faint")]
    if limit:
        share = min(100.0, 100 * used / limit)
        full = "meter full" if used >= limit else "meter"
        bar = element("span", style=f"width:{share:.0f}%")
        parts += [
            element("dd", bar, class_=full, title=f"{share:.0f} % of the limit"),
            element("dd", f"{share:.0f} % of {most}", class_="faint"),
        ]
    return element("div", parts)


def _text_section(heading: str, text: str) -> Element | None:
    return _section(heading, _text(text)) if text else None


# --- steps and subagents


def _step(step: StepView) -> Element:
    """Return a step that opens: its line, what the model said, and its calls."""
    kind = step.kind.replace("_", " ")
    calls = counted(len(step.calls), "call")
    bad = [each.outcome for each in step.calls if each.outcome != "succeeded"]
    return element(
        "details",
        element(
            "summary",
            element("b", f"step {step.number}"),
            element("span", kind, class_=f"status {step.kind}"),
            element("span", ", ".join(call.tool for call in step.calls) or "no calls", class_="grow"),
            element("span", ", ".join(bad), class_="bad") if bad else None,
            element("span", calls, class_="faint") if len(step.calls) > 1 else None,
            element("span", tokens_in_and_out(step.usage), class_="faint"),
            _cost(step),
            element("span", duration(step.seconds)),
        ),
        element("p", f"{moment(step.started_at)}  {step.model}", class_="faint"),
        _text(step.text) if step.text.strip() else None,
        element("p", f"changed by the hook {step.revised_by}", class_="faint") if step.revised_by else None,
        element("p", step.call_changed, class_="faint") if step.call_changed else None,
        element("p", f"the provider ran {step.provider_ran}", class_="faint") if step.provider_ran else None,
        map(_error, step.errors),
        map(_call, step.calls),
    )


def _cost(step: StepView) -> Element | None:
    """Return what a step cost, where it cost anything or nobody knows."""
    if not step.cost and not step.unpriced:
        return None
    return element("span", dollars(step.cost, step.unpriced), class_="faint")


def _call(call: CallView) -> Element:
    arguments = json.dumps(dict(call.arguments), ensure_ascii=False, indent=1)
    decided = call.approval
    approval = None if decided is None else decision_text(decided, call.arguments)
    return element(
        "div",
        element(
            "p",
            element("b", call.tool),
            " ",
            element("span", call.outcome, class_=f"status {call.outcome}"),
            f" {duration(call.seconds)}",
            element("span", f" {approval}", class_="faint") if approval else None,
        ),
        _text(arguments) if call.arguments else None,
        _error(call.error) if call.error else None,
        _text(call.result) if call.result else None,
        (element("p", each.line, class_="faint") for each in call.attachments),
        class_="call",
    )


def _error(error: ErrorRecord) -> Element:
    return element("p", f"{error.source}: {error.type}: {error.message}", class_="bad")


def _subagents(rows: Sequence[RunView]) -> Element:
    """Return the tree of the runs below this one."""
    return element("ul", (element("li", _subagent(each)) for each in rows), class_="tree")


def _subagent(each: RunView) -> Iterator[Content]:
    steps = "" if each.step_count is None else f"{counted(each.step_count, 'step')}, "
    yield element("b", each.agent)
    yield " "
    yield element("span", each.status.replace("_", " "), class_=f"status {each.status}")
    spent = f"{tokens_in_and_out(each.usage)}, {dollars(each.cost, each.unpriced)}"
    yield f" {duration(each.seconds)}, {steps}{spent} "
    yield element("span", moment(each.started_at), " ", element("code", each.execution_id), class_="faint")
    if each.why:
        yield element("p", each.why, class_="why")
    if each.children:
        yield _subagents(each.children)


# --- the conversation and the events


def _conversation(report: Report) -> Element:
    sections = [section for section in report.state.store.sections if section.messages]
    messages = (
        _message(message, section.name if len(sections) > 1 else "")
        for section in sections
        for message in section.messages
    )
    return _section("Conversation", messages)


def _message(message: Message, section: str) -> Element:
    return element(
        "article",
        element("h3", message.role, element("small", f" {section}") if section else None),
        element("p", str(message.metadata[APPROVAL]), class_="faint") if APPROVAL in message.metadata else None,
        _text(message.shown_text) if message.shown_text else None,
        (_text(f"{call.name}({call.arguments_text})") for call in message.tool_calls),
        class_=f"said {message.role}",
    )


def _events(report: Report) -> Element | None:
    if not report.events:
        return None
    events, total = report.events[:EVENTS_SHOWN_MAX], len(report.events) + report.events_left_out
    note = f"{total:,} events" + (f", the first {len(events):,} of them" if len(events) < total else "")
    reconstructed = "; reconstructed from the run's state, for lack of a worker" if report.reconstructed else ""
    rows = (_event(each) for each in events)
    return _section("Events", element("details", element("summary", note + reconstructed), element("table", rows)))


def _event(event: AnyObserved) -> Element:
    return element(
        "tr",
        element("td", f"{event.at:%H:%M:%S.%f}"[:-3], class_="faint"),
        element("td", str(event.step_number), class_="faint"),
        element("td", event.kind),
    )


# --- pieces


def _section(heading: str, *content: Content | Iterable[Content]) -> Element:
    return element("section", element("h2", heading), *content)


def _text(text: str) -> Element:
    """Return a text as it was said; a long one is cut, which is said below it."""
    excerpt, left_out = beginning(text)
    return element("pre", excerpt, element("em", f"\n[{left_out}; the JSON export has them]") if left_out else None)
