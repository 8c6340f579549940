"""What the Web UI's "Current details" show of a run and of a session, from their states alone."""

from __future__ import annotations

import pytest

from holdfast import AgentDefinition, ExecutionBudget
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.policies import ApprovalRule
from holdfast.core.base.bounds import DETAILS_BYTES_MAX, DETAILS_LISTED_MAX, DETAILS_STEPS_MAX, DETAILS_WORDS_CHARS_MAX
from holdfast.core.conversation.input_requests import InputAnswer, InputRequest
from holdfast.core.conversation.markdown_escaping import GAP
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.conversation.steps import ErrorRecord
from holdfast.core.loop.events import Event, InputAnswered, InputNeeded
from tests.core.building import DEFINITION, Run, call, handoff, hook_at, moment, spawn
from tests.core.sessions import begin, execution_id, finish, running, said, session, told
from tests.rendering import HOSTILE, STEERING, assert_tame, rows
from workflows.execution.current_details import execution_details
from workflows.session.current_details import session_details

ASK = (ApprovalRule(tools=("add",)),)
LONG = "\U0001f600|" * 40_000


class Unchecked(Run):
    """A long run: the rules it keeps are looked at elsewhere."""

    def _fed(self, event: Event) -> None:
        self.state, self.commands = self.loop.step(self.state, event)


def plain(told: str) -> str:
    """The story without what keeps columns apart."""
    return told.replace(GAP, "")


def story(run: Run) -> str:
    return plain(execution_details(run.state, "tester"))


def lines(run: Run) -> list[str]:
    return story(run).splitlines()


def begins(run: Run, start: str) -> bool:
    return any(line.startswith(start) for line in lines(run))


def test_what_a_server_asks_is_shown_with_the_command_that_answers_and_nothing_of_its_state() -> None:
    run = Run().begin().answer("", call("a"))
    link = InputRequest(key="page", message="Allow | it", url="https://example.com/consent")
    run.feed(InputNeeded("a", "theatre", (link,), 3600, started_at=moment(2), at=moment(2)))
    assert "**Waiting for an answer**" in lines(run)
    (row,) = (line for line in lines(run) if line.startswith("| `add(1)` | `a` |"))
    assert "https://example.com/consent" in row
    assert f"`holdfast answer {run.state.running.execution_id}` gives it." in lines(run)
    run.feed(InputAnswered("a", InputAnswer(), at=moment(3)))
    assert "**Waiting for an answer**" not in lines(run)
    assert begins(run, "- `add(1)`: running")


def test_a_call_that_waits_for_a_person_is_told_with_its_id_until_it_is_decided_about() -> None:
    run = Run(approvals=ASK).begin().answer("", call("a"), call("b", "echo"))
    (waiting,) = (line for line in lines(run) if line.startswith("| `add(1)` | `a` |"))
    assert call("a").digest[:12] in waiting
    assert waiting.endswith("| never |")
    assert f"`holdfast approve {run.state.running.execution_id}` lets it run; `holdfast deny` does not." in lines(run)
    assert begins(run, "- `echo(1)`: running since 12:00:02Z")
    run.decide("a")
    assert "**Waiting for approval**" not in lines(run)
    assert begins(run, "- `add(1)`: running")
    assert "**Answer**\n\n```text\ndone\n```\n" in story(run.returns("a").returns("b").answer("done"))


def test_where_several_wait_the_command_says_that_one_is_to_be_named() -> None:
    run = Run(approvals=ASK).begin().answer("", *(call(f"c{n}") for n in range(DETAILS_LISTED_MAX + 2)))
    assert f"`holdfast approve {run.state.running.execution_id} CALL` lets it run" in story(run)
    assert "(2 more wait.)" in lines(run)


def test_the_budget_is_told_as_bars() -> None:
    budget = ExecutionBudget(max_steps=4, max_tokens=1_200, max_seconds=10, max_cost=1)
    run = Run(budget).begin()
    run.answer("", call("a"), after=2).returns("a").answer("", call("b"), cost=0.5)
    assert lines(run)[2:8] == [
        "|  | used | limit |  |",
        "| --- | ---: | ---: | --- |",
        "| steps | 1 | 4 | ██░░░░░░░░ 25 % |",
        "| tokens | 240 | 1,200 | ██░░░░░░░░ 20 % |",
        "| US dollars | > 0.5000 (unpriced: `the worker's model`) | 1 | █████░░░░░ 50 % |",
        "| time | 4 s | 10 s | ████░░░░░░ 40 % |",
    ]


def test_a_step_is_told_with_what_ran_how_it_ended_how_long_it_took_and_what_it_used() -> None:
    run = Run(approvals=ASK).begin().answer("", *(call(each) for each in "abc"), call("d", "echo"), call("e", "echo"))
    run.decide("a", "edit", arguments={"a": 9}).decide("b", "deny")
    run.expires("c").fails("d").returns("a")
    edited = "`add(9)` ✓ (edited by `ann`, asked `add(1)`)"
    done = f"| 1 | {edited}; `add(1)` ⊘ denied by `ann`; `add(1)` ⊘ expired; `echo(1)` ✗ `Boom`; `echo(1)`"
    assert f"{done} … | … |" in story(run)
    run.returns("e").answer("so be it")
    (first, second) = (line for line in lines(run) if line.startswith(("| 1 |", "| 2 |")))
    assert first.endswith("`echo(1)` ✓ | 7 s | 100 / 20 | ? |")
    assert second == "| 2 | says `so be it` | 1 s | 100 / 20 | ? |"
    assert "- `Boom`: `it broke`" in lines(run)


def test_steps_of_long_ago_are_told_together() -> None:
    run = Unchecked().begin()
    for n in range(60):
        run.answer("", call(f"c{n}")).returns(f"c{n}")
    steps = [line for line in lines(run) if line.startswith("|") and "echo" not in line][-DETAILS_STEPS_MAX - 1 :]
    assert steps[0] == "| 1 to 45 | (earlier steps) | 1 min 30 s | 4,500 / 900 | ? |"
    assert [line.split(" | ")[0] for line in steps[1:]] == [f"| {n}" for n in range(46, 61)]


@pytest.mark.parametrize(
    ("run", "told"),
    [
        (Run().begin(), "- the model call of step 1, since 12:00:01Z"),
        (Run(hooks=[hook_at("before_step")]).begin(), "- hooks at `before_step`"),
        (Run(hooks=[hook_at("before_tool")]).begin().answer("", call("a")), "- `add(1)`: hooks before it"),
        (Run(sequential=True).begin().answer("", call("a"), call("b")), "- `add(1)`: waits for the calls before it"),
    ],
)
def test_what_is_under_way_is_told(run: Run, told: str) -> None:
    assert told in lines(run)


def test_a_stop_is_told_with_who_asked_for_it_when_and_why() -> None:
    run = Run().begin().answer("", call("a")).says("and hurry").stop("enough | of it")
    assert lines(run)[0].startswith(
        "**stopped (user_requested)** · agent `tester` · the worker's model · 2025-01-01 12"
    )
    assert "Why: `enough ¦ of it`" in lines(run)
    assert "- user_requested by `me` at 12:00:04Z: `enough ¦ of it`" in lines(run)
    assert "⊘ cancelled" in story(run)


def test_messages_that_wait_and_subagents_are_told() -> None:
    run = Run(subagents=[DEFINITION.model_copy(update={"name": "helper"})]).begin().answer("", spawn("s"))
    run.says("and hurry")
    assert "- `and hurry`" in lines(run)
    assert begins(run, "- `helper` `look it up`: running, `")
    run.child("s")
    assert begins(run, "- `helper` `look it up`: succeeded, `")


def test_handoffs_are_told() -> None:
    helper = AgentDefinition(name="helper", handoffs=("tester",))
    run = (
        Run(handoffs=[helper]).begin().answer("", handoff("a", reason="a [bill](x)")).hands_over(handoffs=[DEFINITION])
    )
    run.answer("", handoff("b", "tester")).hands_over()
    told = story(run)
    assert "**Handoffs**\n\n- step 1: `tester` to `helper`: `a [bill](x)`\n- step 2: `helper` to `tester`\n" in told


def test_a_failed_run_tells_its_error() -> None:
    run = Run().begin().model_fails(ErrorRecord(type="ModelRefused", message="no such key", source="model"))
    assert lines(run)[0].startswith("**failed (error)** · ")
    assert "- `ModelRefused`: `no such key`" in lines(run)


def test_an_agent_without_an_execution_has_no_story_yet() -> None:
    assert story(Run()) == "**pending** · agent `tester`"


def hostile_run(text: str) -> Run:
    """A run in which everybody says `text`, wherever they can."""
    words = text[:DETAILS_WORDS_CHARS_MAX]
    error = ErrorRecord(type=words, message=text[:500], source=words)
    helper = DEFINITION.model_copy(update={"name": "helper"})
    run = Unchecked(approvals=ASK, subagents=[helper]).begin(text[:9_000])
    for n in range(DETAILS_STEPS_MAX + 2):
        odd = ToolCall(id=f"{words[:30]}{n}", name=words, arguments={words: text[:300], "z": [text[:300]]})
        calls = [
            ToolCall(id=f"c{n}-{m}", name="echo", arguments={words: text[:300], "z": text[:300]}) for m in range(9)
        ]
        run.answer(text[:300], odd, *calls, spawn(f"s{n}", task=text[:300]))
        for each in calls:
            run.fails(each.id, error) if n % 2 else run.returns(each.id, text[:300])
        run.child(f"s{n}", text[:300])
    run.says(text[:300]).says(text[:300])
    waiting = [ToolCall(id=f"{words[:20]}{m}", name="add", arguments={"a": text[:300]}) for m in range(12)]
    return run.answer("", *waiting)


@pytest.mark.parametrize("text", [HOSTILE, STEERING, LONG, "\\" * 400, "|" * 400, "`" * 400])
def test_hostile_words_break_no_table_make_no_link_and_have_a_bound(text: str) -> None:
    run = hostile_run(text)
    waiting = story(run)
    run.stop(text[:990])
    stopped = story(run)
    for each in (waiting, stopped):
        assert_tame(each)
        assert len(each.encode()) <= DETAILS_BYTES_MAX
    assert [len(table) for table in rows(waiting)] == [5, DETAILS_LISTED_MAX + 1, DETAILS_STEPS_MAX + 3]
    answered = Run().begin().answer(text[:20_000])
    assert_tame(story(answered))


def hostile_session(text: str) -> str:
    many = [said(f"m{n}", text[:2_000], "inject" if n < 2 else "queue") for n in range(90)]
    return session_details(told(running("queue", *many)))


def test_a_session_tells_what_it_does_what_waits_and_how_its_executions_ended() -> None:
    state = begin(told(finish(running()), "second"))[0]
    first, second = execution_id(1), execution_id(2)
    text = plain(session_details(told(state, said("third", "| row"), "fourth")))
    assert text.startswith("**running** · agent `tester` · 2 executions · 11 tokens · 0.5000 USD · ")
    assert f"**Under way**: execution 2, `{second}`" in text
    assert "**Waiting**: 2\n\n1. `¦ row`\n2. `hello`" in text
    assert f"| `{second}` | 1 | running |\n| `{first}` | 1 | completed |" in text
    assert "| a message while it runs | queue |" in text
    assert_tame(text)
    ended = plain(session_details(finish(state, ExecutionStatus.STOPPED, kept=False)))
    assert f"| `{second}` | 1 | stopped (user_requested) |\n| `{first}` | 1 | ended |" in ended
    assert "**Said to executions that left nothing**\n\n- `hello`" in ended


@pytest.mark.parametrize("text", [HOSTILE, STEERING, LONG])
def test_hostile_words_are_words_in_a_session_too(text: str) -> None:
    made = hostile_session(text)
    assert_tame(made)
    assert len(made.encode()) <= DETAILS_BYTES_MAX


def test_a_new_session_tells_its_settings() -> None:
    assert_tame(made := session_details(session()))
    assert made.startswith("**idle** · agent `tester` · 0 executions")
