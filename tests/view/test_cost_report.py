"""A run's cost by agent and model: its own steps, its subagents', and what is left; the total is the run's own."""

from __future__ import annotations

import pytest

from holdfast.core.agent.definition import LLM, AgentDefinition, FallbackRoute
from holdfast.core.agent.state import AgentState
from holdfast.core.base.usage import Prices, Usage
from holdfast.core.conversation.steps import ErrorRecord
from holdfast.view.cost_report import ELSEWHERE, CostReport, of_execution, to_dict
from holdfast.view.run_view import run_view
from tests.core.building import Run, call, handoff, spawn

PRICES = Prices(input_usd=3, output_usd=15, cached_usd=0.3, cache_write_usd=3.75)
USED = Usage(
    input_tokens=10_000, output_tokens=1_000, cached_tokens=8_000, cache_write_tokens=1_500, reasoning_tokens=600
)
COST = 0.0015 + 0.0024 + 0.005625 + 0.015
AWAY = ErrorRecord(type="ProviderUnavailable", message="we are moving house", source="model")
HELPER = AgentDefinition(name="helper")


def report_of(state: AgentState, *children: CostReport, agent: str = "tester") -> CostReport:
    return of_execution(state, run_view(state, agent), children)


def child_run() -> AgentState:
    return Run(llm=LLM(model="small", prices=PRICES)).begin().answer("found", usage=USED).state


def test_the_parts_of_every_step_and_of_its_failed_attempts_are_added_up_by_model() -> None:
    run = Run(llm=LLM(model="big", prices=PRICES)).begin()
    run.answer("", call("a"), usage=USED, wasted=USED).returns("a").answer("done", usage=USED)
    report = report_of(run.state)
    (line,) = report.lines
    assert (line.agent, line.model, line.calls, line.usage) == ("tester", "big", 2, USED + USED + USED)
    assert (report.usage, report.cost) == (run.state.usage, run.state.cost)
    assert report.cost == pytest.approx(3 * COST)


def test_a_subagents_runs_have_lines_of_their_own_and_the_total_is_what_the_run_itself_says() -> None:
    child = child_run()
    run = Run(llm=LLM(model="big", prices=PRICES), subagents=[HELPER]).begin().answer("", spawn("s"), usage=USED)
    run.child("s", usage=child.usage, cost=child.cost).answer("done", usage=USED)
    report = report_of(run.state, report_of(child, agent="helper"))
    lines = {(each.model, each.calls) for each in report.lines}
    assert lines == {("big", 2), ("small", 1)}
    assert sum(each.cost for each in report.lines) == pytest.approx(run.state.cost)
    assert sum((each.usage for each in report.lines), Usage()) == run.state.usage == report.usage
    assert report.executions == 2


def test_what_no_step_explains_is_a_line_of_its_own() -> None:
    run = Run(llm=LLM(model="big", prices=PRICES), subagents=[HELPER]).begin().answer("", spawn("s"), usage=USED)
    run.child("s", usage=USED, cost=0.5).answer("done", usage=USED)
    report = report_of(run.state)
    assert (report.lines[0].agent, report.lines[0].usage) == (ELSEWHERE, USED)
    assert report.lines[0].cost == pytest.approx(0.5)
    assert sum(each.cost for each in report.lines) == pytest.approx(report.cost)
    unread = of_execution(None, run_view(run.state, "tester"))
    assert [(each.agent, each.usage) for each in unread.lines] == [(ELSEWHERE, run.state.usage)]


def test_after_a_handoff_the_lines_are_the_other_agents() -> None:
    run = Run(llm=LLM(model="big", prices=PRICES), handoffs=[HELPER]).begin()
    run.answer("", handoff("h"), usage=USED)
    run.hands_over()
    run.answer("done", usage=USED)
    assert {each.agent for each in report_of(run.state).lines} == {"tester", "helper"}


def test_a_model_without_a_price_is_named() -> None:
    run = Run(llm=LLM(model="nobodys")).begin().answer("done", usage=USED)
    report = report_of(run.state)
    assert (report.cost, report.unpriced, report.lines[0].unpriced) == (0, ("nobodys",), True)
    told = to_dict(report)
    assert told["models"][0] == {name: value for name, value in told["lines"][0].items() if name != "agent"}
    assert told["lines"][0]["usage"]["cached_tokens"] == 8_000


def test_the_reports_of_several_executions_add_up() -> None:
    one = report_of(child_run())
    both = one + one
    assert (both.executions, both.usage, both.cost) == (2, one.usage + one.usage, 2 * one.cost)
    assert [each.calls for each in both.lines] == [2]


def test_the_failed_attempts_of_a_model_that_another_stood_in_for_are_its_own() -> None:
    routes = LLM(model="big", prices=PRICES, fallback=(FallbackRoute(model="gone"), FallbackRoute(model="nobodys")))
    run = Run(llm=routes).begin().model_fails(AWAY, wasted=USED).model_fails(AWAY)
    run.answer("done", usage=Usage(input_tokens=100, output_tokens=20), wasted=Usage(input_tokens=7))
    report = report_of(run.state)
    assert [(each.model, each.calls, each.usage.total_tokens, each.unpriced) for each in report.lines] == [
        ("big", 0, USED.total_tokens, False),
        ("nobodys", 1, 127, True),
    ]
    assert [each.cost for each in report.lines] == [pytest.approx(COST), 0]
    assert sum((each.usage for each in report.lines), Usage()) == run.state.usage
