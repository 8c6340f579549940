"""The lines beside activities, timers and children, from state and command alone."""

from __future__ import annotations

import ast
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast import ExecutionBudget
from holdfast.core.agent.definition import LLM
from holdfast.core.base.bounds import SUMMARY_LINE_CHARS_MAX
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.loop.commands import CallTool, RequestApproval, RunHooks
from holdfast.core.wire.session_contracts import Branch
from tests.core.building import AGENT_ID, START, Run, call, hook_at, moment
from tests.core.sessions import execution_id, finish, running
from tests.rendering import HOSTILE, STEERING, kinds
from workflows import summaries

TIMED = ExecutionBudget(max_seconds=600)


def test_a_model_call_is_told_by_its_step_its_model_what_it_answers_and_what_was_used() -> None:
    run = Run(llm=LLM(model="gpt-x")).begin()
    assert summaries.of_model_call(run.state, 1) == "step 1 · gpt-x"
    run.answer("", *(call(f"c{n}") for n in range(2))).returns("c0").returns("c1")
    assert summaries.of_model_call(run.state, 2) == "step 2 · gpt-x · after 2 calls · 120 tok so far"
    assert summaries.of_model_call(Run().begin().state, 1) == "step 1"


def test_a_time_limit_says_which_limit_it_is() -> None:
    assert summaries.of_time_limit(Run(TIMED).begin().state.running, moment(601)) == "budget: 10 min until 12:10:01Z"
    late = ExecutionBudget(max_seconds=600, deadline=START + timedelta(days=1))
    assert summaries.of_time_limit(Run(late).begin().state.running, moment(601)).startswith("budget: 10 min")
    soon = ExecutionBudget(max_seconds=600, deadline=moment(60))
    assert summaries.of_time_limit(Run(soon).begin().state.running, moment(60)) == "deadline 12:01:00Z"


def test_an_approval_says_what_waits_and_until_when() -> None:
    asked = RequestApproval(1, 0, ToolCall(id="a", name="pay", arguments={"amount": 5}), moment(60), 1)
    assert summaries.of_approval(asked, moment(60), START) == "approval of pay(5) until 12:01:00Z"


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (summaries.of_summary(3), "step 3 · summary of older messages"),
        (summaries.of_grace(0), "grace: what was cancelled tells its end (model call)"),
        (summaries.of_grace(2), "grace: what was cancelled tells its end (2 subagents)"),
        (summaries.of_record(Run().begin().answer("done").state), "record: completed, 1 step"),
        (summaries.of_record(Run().begin().stop().state), "record: stopped (user_requested), 0 steps"),
        (summaries.of_finding(AGENT_ID), f"what is kept of agent {AGENT_ID}"),
        (summaries.of_idle(600), "idle: leaves the server after 10 min without a message"),
        (summaries.of_keeping(running("queue", "two")), "session kept: 1 execution, 1 message waiting"),
        (summaries.of_keeping(finish(running())), "session kept: 1 execution"),
    ],
)
def test_other_lines_say_what_happens(told: str, expected: str) -> None:
    assert told == expected
    assert len(told) <= SUMMARY_LINE_CHARS_MAX


def test_a_place_to_go_back_to_is_told_by_its_execution_and_step() -> None:
    place = Branch(agent_id=AGENT_ID, execution_id=execution_id(1), steps=2)
    assert summaries.of_branch(place) == f"back to execution {execution_id(1)}, after 2 steps"


def test_hooks_are_told_by_their_place_and_names() -> None:
    run = Run(hooks=[hook_at("before_tool", "audit"), hook_at("before_tool", "limit")]).begin().answer("", call("a"))
    (command,) = run.wanted(RunHooks)
    assert summaries.of_hooks(command) == "step 1 · before_tool add: audit, limit"


@pytest.mark.parametrize("text", [HOSTILE, STEERING, "\U0001f600" * 9_000])
def test_hostile_words_stay_one_short_line(text: str) -> None:
    odd = ToolCall(id=text[:200], name=text[:60], arguments={text[:60]: text, "z": text})
    run = Run(llm=LLM(model=text[:200])).begin()
    for told in (
        summaries.of_tool_call(CallTool(1, 0, odd)),
        summaries.of_approval(RequestApproval(1, 0, odd, START, 1), START, START),
        summaries.of_model_call(run.state, 1),
    ):
        assert told.isprintable()
        assert len(told) <= SUMMARY_LINE_CHARS_MAX
        assert not {"link_open", "image", "html_inline"} & set(kinds(told))


def test_nothing_is_begun_without_its_line() -> None:
    begun = {
        **dict.fromkeys(("execute_activity", "start_activity", "execute_local_activity", "sleep"), "summary"),
        **dict.fromkeys(("start_child_workflow", "execute_child_workflow"), "static_summary"),
        "wait_condition": "timeout_summary",
    }
    found: list[str] = []
    for path in sorted(Path(summaries.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if ast.unparse(node.func.value) != "workflow" or node.func.attr not in begun:
                continue
            given = {each.arg for each in node.keywords}
            if node.func.attr == "wait_condition" and "timeout" not in given:
                continue  # no timer
            found.append(node.func.attr)
            assert begun[node.func.attr] in given, f"{path.name}:{node.lineno} {node.func.attr}"
    assert set(found) >= {
        "execute_activity",
        "execute_local_activity",
        "sleep",
        "start_child_workflow",
        "wait_condition",
    }
