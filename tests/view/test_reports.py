"""Reports on a run as HTML, SVG, Markdown and JSON: complete, readable by parsers, and safe whatever was said."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from typing import Any, Literal
from uuid import uuid4
from xml.etree.ElementTree import Element, fromstring

import pytest

from docs.pictures import timeline as example
from holdfast.client.events_from_state import reconstructed
from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.state import AgentState
from holdfast.core.base.frozen import replace
from holdfast.core.base.safe_text import printable
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.amounts import counted, dollars
from holdfast.core.conversation.decision_text import decision_text
from holdfast.core.conversation.display_text import REPORTED_TEXT_CHARS_MAX, beginning
from holdfast.core.conversation.verdicts import Approval
from holdfast.core.wire import execution_events
from holdfast.testing.builders import a_call, a_state, a_step, assistant, user
from holdfast.view import html as page
from holdfast.view.html import to_html
from holdfast.view.html_elements import element, html_document, picture
from holdfast.view.markdown import fenced, plain, to_markdown
from holdfast.view.report import Report, RunExport, reported, to_json_dict
from holdfast.view.run_view import RunView, subagent_calls
from holdfast.view.svg import WIDTH, drawn
from holdfast.view.timeline import TIMELINE_ROWS_MAX, Timeline, timeline
from tests.client.told import HOSTILE

SVG = "{http://www.w3.org/2000/svg}"
AT = datetime(2026, 11, 20, 12, tzinfo=UTC)


def parsed(text: str) -> Element:
    return fromstring(text)  # noqa: S314  # our own picture


class Page(HTMLParser):
    """A page read back: its tags with their attributes, and the text of each kind of element."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self._open.append(tag)
            self.text.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open:
            self.text[self._open[-1]][-1] += data


def hostile_state() -> AgentState:
    """Return the state of a run in which everything that was said is hostile."""
    state = a_state(conversation=(user(HOSTILE), assistant(HOSTILE)), steps=3)
    assert state.step_count == 3
    return state


def told_of(state: AgentState, *subagents: RunView, left_out: int = 0) -> Report:
    run = reported(state, f"lead {HOSTILE}", subagents)
    return Report(state, run, AT, events=[*reconstructed(state, "lead")], events_left_out=left_out)


def subagent(name: str, *below: RunView, after: float = 0.0) -> RunView:
    return RunView(
        execution_id=str(uuid4()),
        agent=name,
        status="completed",
        started_at=AT + timedelta(seconds=after),
        seconds=2.0,
        step_count=1,
        usage=Usage(input_tokens=10, output_tokens=2),
        why=HOSTILE,
        children=below,
    )


def test_a_page_has_all_of_the_run_and_nothing_that_was_said_is_markup() -> None:
    state = hostile_state()
    text = to_html(told_of(state, subagent(f"scout{HOSTILE}", subagent("below"))))
    read = Page(text)
    kinds = {tag for tag, _ in read.tags}
    assert kinds.isdisjoint({"script", "link", "img", "iframe", "a", "object", "form"})
    assert not any(name.startswith("on") or name in ("href", "src") for _, attrs in read.tags for name in attrs)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202e]", text)
    assert printable(HOSTILE) in read.text["pre"]
    assert any(printable(HOSTILE) in words for words in read.text["title"])
    assert any("below" in words for words in read.text["b"])
    [policy] = [attrs["content"] for _, attrs in read.tags if attrs.get("http-equiv") == "Content-Security-Policy"]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"
    assert "url(" not in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")


def test_a_pages_steps_open_and_tell_each_call() -> None:
    read = Page(to_html(told_of(hostile_state())))
    assert len([tag for tag, _ in read.tags if tag == "details"]) == 4, "three steps and the events"
    assert [words for words in read.text["b"] if words.startswith("step")] == ["step 1", "step 2", "step 3"]
    assert read.text["tr"] == [""] * len(told_of(hostile_state()).events)


def test_a_long_text_is_cut_and_says_so() -> None:
    state = a_state(conversation=(user("x" * (REPORTED_TEXT_CHARS_MAX + 5)),), steps=1)
    assert "5 of 4,005 characters are left out here; the JSON export has them" in to_html(told_of(state))
    assert "5 of 4,005 characters are left out here; the JSON export has them" in to_markdown(told_of(state))
    assert beginning("four", 4) == ("four", "")


def test_a_budget_is_drawn_as_a_bar() -> None:
    state = a_state(steps=3)
    limited = state.with_execution(state.updated_at, budget=state.budget.model_copy(update={"max_steps": 3}))
    [width] = [
        attrs["style"] for tag, attrs in Page(to_html(told_of(limited))).tags if tag == "span" and "style" in attrs
    ]
    assert width == "width:100%"
    assert ("dd", {"class": "meter full", "title": "100 % of the limit"}) in Page(to_html(told_of(limited))).tags


# --- the picture


def timeline_of(state: AgentState, *subagents: RunView) -> Timeline:
    told = told_of(state, *subagents)
    return timeline(told.run, told.events)


def bars(svg: Element) -> Iterator[tuple[str, str, float, float]]:
    """Yield each bar's colour, title, and from where to where it goes."""
    for rect in svg.iter(f"{SVG}rect"):
        title = rect.find(f"{SVG}title")
        if title is not None:
            x = float(rect.attrib["x"])
            yield rect.attrib["class"], title.text or "", x, x + float(rect.attrib["width"])


def test_a_picture_is_well_formed_and_has_a_titled_bar_for_everything() -> None:
    state = hostile_state()
    svg = parsed(picture(drawn(timeline_of(state, subagent(f"scout {HOSTILE}")))))
    drawn_bars = [*bars(svg)]
    calls = [call for step in state.steps for call in step.tool_executions]
    kinds = [kind for kind, *_ in drawn_bars]
    assert (kinds.count("step"), kinds.count("tool"), kinds.count("subagent")) == (3, len(calls), 1)
    assert all(0 <= began < ended <= WIDTH + 2 for _, _, began, ended in drawn_bars)
    assert any(printable(HOSTILE) in title for _, title, _, _ in drawn_bars)
    assert any("2 s" in title and "from 2026-11-20 12:00:00Z" in title for _, title, _, _ in drawn_bars)


def test_calls_side_by_side_stand_below_each_other_from_the_same_place() -> None:
    step = a_step(a_call("left", "call_1"), a_call("right", "call_2"))
    state = a_state(steps=1)
    done = state.running.step_executions[0]
    began = done.started_at
    both = tuple(
        each.model_copy(update={"started_at": began, "completed_at": began + timedelta(seconds=n + 1)})
        for n, each in enumerate(step.tool_executions)
    )
    changed = done.model_copy(
        update={
            "step": step.model_copy(update={"tool_executions": both[::-1]}),
            "completed_at": began + timedelta(seconds=4),
        }
    )
    log = type(state.running.step_executions)([changed])
    state = state.with_execution(state.updated_at, step_executions=log, completed_at=changed.completed_at)
    rows = timeline_of(state).rows
    assert [(row.label, row.depth) for row in rows] == [("step 1", 0), ("left", 1), ("right", 1)]
    left, right = rows[1].bars[0], rows[2].bars[0]
    assert left.began == right.began == began
    assert [(bar.ended - bar.began).total_seconds() for bar in (left, right) if bar.ended] == [1, 2]


def test_a_wait_for_a_person_has_a_bar_of_its_own() -> None:
    state = a_state(steps=2)
    call = state.steps[0].tool_executions[0]
    told = told_of(state)
    envelope: dict[str, Any] = {
        "agent_id": state.agent_id,
        "execution_id": state.running.execution_id,
        "parent_agent_id": None,
        "step_number": 1,
    }
    asked = execution_events.ApprovalRequested(
        **envelope, at=call.started_at, call=call.call, expires_at=None, digest=call.call.digest
    )
    decided = execution_events.ApprovalResolved(
        **envelope,
        at=call.started_at + (call.completed_at - call.started_at) / 2,
        call_id=call.call.id,
        decision="approve",
        by="ann",
        reason="",
        digest=call.call.digest,
        call=call.call,
        asked=None,
    )
    drawn_row = timeline(told.run, [asked, decided]).rows[1]
    assert [bar.kind for bar in drawn_row.bars] == ["approval", "tool"]
    assert drawn_row.bars[0].ended == drawn_row.bars[1].began == decided.at


def test_who_approved_a_call_and_the_limits_stand_in_the_markdown() -> None:
    state = a_state(steps=2, budget=ExecutionBudget(max_steps=9, max_cost=0.5))
    done = state.step_executions[0]
    call = done.step.tool_executions[0]
    at = done.started_at + timedelta(seconds=8.3)
    approval = Approval(decision="approve", by="Ada", at=at, digest=call.call.digest)
    step = replace(done.step, tool_executions=(replace(call, approval=approval), *done.step.tool_executions[1:]))
    log = type(state.running.step_executions)([replace(done, step=step), *state.step_executions[1:]])
    text = to_markdown(told_of(state.with_execution(state.updated_at, step_executions=log)))
    assert ", approved by Ada 8.3 s into the step" in text
    assert "| limits | 9 steps, 0.5 USD |" in text


@pytest.mark.parametrize(
    ("decision", "by", "told"),
    [
        ("deny", "", "denied by an unknown person 0 s into the step"),
        ("expired", "", "expired undecided 0 s into the step"),
    ],
)
def test_a_decision_without_a_name_is_told_as_such(decision: Literal["deny", "expired"], by: str, told: str) -> None:
    assert decision_text(Approval(decision=decision, by=by, at=AT, digest="0" * 64), {}, since=AT) == told


def test_a_picture_has_an_end_however_many_steps_there_are() -> None:
    state = a_state(steps=TIMELINE_ROWS_MAX + 10)
    told = timeline_of(state)
    assert len(told.rows) == TIMELINE_ROWS_MAX
    svg = picture(drawn(told))
    assert f"{told.left_out:,} further rows are not drawn" in svg
    assert told.left_out >= 10


@pytest.mark.parametrize("seconds", [0.0, 0.003, 0.9, 7.0, 59.0, 61.0, 3_000.0, 90_000.0, 9e7])
def test_the_axis_has_a_few_marks_whatever_the_time(seconds: float) -> None:
    svg = parsed(picture(drawn(Timeline(AT, AT + timedelta(seconds=seconds), ()))))
    marks = [each.text for each in svg.iter(f"{SVG}text")]
    assert 1 <= len(marks) <= 9
    assert marks[0] == "0"
    assert len(set(marks)) == len(marks)


def test_the_picture_of_the_docs_is_drawn_as_pictures_are_now() -> None:
    assert example.FILE.read_text(encoding="utf-8") == example.text(), "run `make diagrams`"


# --- Markdown and JSON


def test_markdown_keeps_what_was_said_in_fences() -> None:
    text = to_markdown(told_of(hostile_state(), subagent("scout")))
    outside = re.sub(r"^(`{3,})[a-z]*\n.*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL)
    assert "<script>" in text
    assert not re.search(r"(?<!\\)<", outside), "nothing outside begins HTML"
    assert "\x1b" not in text
    assert text.count(printable(HOSTILE)) >= 2
    assert "| 1 | tool execution |" in text


def test_a_fence_is_longer_than_any_in_its_text() -> None:
    assert next(iter(fenced("a ````` b"))) == "``````"
    assert plain("a|b *c*\n# <d>") == r"a\|b \*c\* \# \<d\>"


def test_the_json_document_is_read_back_as_it_was() -> None:
    state = hostile_state()
    document = to_json_dict(told_of(state))
    assert RunExport.model_validate_json(json.dumps(document)).model_dump(mode="json") == document
    assert document["format"] == 1
    assert AgentState.from_dict(document["state"]) == state
    assert [each["kind"] for each in document["events"]][::100_000] == ["AgentExecutionStarted"]
    assert [each["number"] for each in document["steps"]] == [1, 2, 3]
    assert document["messages"][0] == {**document["messages"][0], "section": "messages", "content": HOSTILE}


def test_an_agent_without_an_execution_has_no_report() -> None:
    with pytest.raises(ValueError, match="no execution"):
        reported(a_state(status="pending"), "lead")


def test_events_made_up_again_tell_every_step_and_the_end() -> None:
    for status in ("completed", "stopped", "failed"):
        state = a_state(status=status, steps=2)
        kinds = [each.kind for each in reconstructed(state, "lead")]
        assert kinds[0] == "AgentExecutionStarted"
        assert kinds.count("AgentStepCompleted") == kinds.count("TokenUsageReported") == state.step_count
        last = "AgentExecutionFailed" if status == "failed" else "AgentExecutionCompleted"
        assert kinds[-2:] == ["AgentExecutionStopped", last]
        times = [each.at for each in reconstructed(state, "lead")]
        assert times == sorted(times)
    assert [*reconstructed(a_state(status="pending"), "lead")] == []


def test_a_state_without_subagents_tells_of_none() -> None:
    assert [*subagent_calls(a_state(steps=2))] == []


# --- words and elements


def test_a_sum_that_is_not_all_says_so() -> None:
    assert dollars(0.5) == "0.5000 USD"
    assert dollars(0.5, ("m",)) == "> 0.5000 USD (unpriced: m)"


def test_texts_and_attributes_are_escaped() -> None:
    made = element("p", HOSTILE, element("b", "x"), HOSTILE, title=HOSTILE, class_=None)
    read = Page(html_document(made))
    assert read.tags == [("p", {"title": printable(HOSTILE)}), ("b", {})]
    assert read.text["p"] == [printable(HOSTILE) * 2]
    again = parsed(picture(made))
    assert (again.attrib, again.text) == ({"title": printable(HOSTILE)}, printable(HOSTILE))


def test_a_page_lists_so_many_events_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "EVENTS_SHOWN_MAX", 2)
    state = a_state(steps=2)
    text = to_html(told_of(state, left_out=7))
    total = len(told_of(state).events) + 7
    assert f"{total} events, the first 2 of them" in text


def test_one_is_not_many() -> None:
    assert [counted(number, "call") for number in (0, 1, 2, 1_000)] == ["0 calls", "1 call", "2 calls", "1,000 calls"]
    assert "1 step, " in to_html(told_of(hostile_state(), subagent("scout")))
