"""The agent's own list: what its calls write, what is refused, and when it is shown to the agent again."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.agent.policies import ContextPolicy, SummaryPolicy
from holdfast.core.agent.state import AgentState
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.conversation.todos import TODO_CHARS_MAX, TODOS_MAX, Todo
from holdfast.core.loop.own_tools.todo_list import REMINDER
from holdfast.core.tools.tool_traits import ToolTraits
from holdfast.core.wire.branch_points import cut
from holdfast.core.wire.carry_over import SealedHistory, whole
from tests.core.building import Run, call

WRITES = ToolTraits(name="write_todos", loop="todo", required=("items",))
ADD, TELL = Todo(text="add", status="done"), Todo(text="tell")
BOTH = [{"text": "add", "status": "done"}, {"text": "tell"}]


def writing(items: Any = BOTH, id_: str = "a") -> ToolCall:  # noqa: ANN401  # also what does not fit
    return ToolCall(id=id_, name="write_todos", arguments={"items": items})


def run(**rules: Any) -> Run:  # noqa: ANN401  # Run's
    return Run(tools=("add", WRITES), **rules).begin()


def reminders(state: AgentState) -> list[str]:
    return [each.text for each in state.messages if each.text.startswith(REMINDER)]


def test_a_call_replaces_the_list_without_a_command_for_the_driver() -> None:
    agent = run().answer("", writing())
    assert agent.state.todos == (ADD, TELL)
    assert agent.answers == {"a": "written: 1 of 2 done"}
    assert AgentState.from_json(agent.state.to_json()).todos == (ADD, TELL)
    emptied = run().answer("", writing()).answer("", writing([], "b")).state
    assert emptied.todos == ()


def test_a_state_without_a_list_is_written_as_before_there_were_lists() -> None:
    assert b"todos" not in run().answer("done").state.to_json()


@pytest.mark.parametrize(
    ("items", "problem"),
    [
        ("everything", "items: Input should be a list"),
        ([{"text": "add", "status": "nearly"}], "items.0.status"),
        ([{"text": " "}], "items.0.text"),
        ([{"text": "x" * (TODO_CHARS_MAX + 1)}], f"at most {TODO_CHARS_MAX} characters"),
        ([{"text": "x"}] * (TODOS_MAX + 1), f"at most {TODOS_MAX} items"),
    ],
)
def test_a_list_that_does_not_fit_is_refused_and_the_old_one_stays(items: object, problem: str) -> None:
    agent = run().answer("", writing()).answer("", writing(items, "b"))
    assert agent.state.todos == (ADD, TELL)
    assert problem in agent.answers["b"]


def branched(state: AgentState, steps: int) -> AgentState:
    return whole(cut(SealedHistory().snapshot(state), state, steps), ())


def test_a_branch_has_the_list_of_its_point() -> None:
    agent = run().answer("", writing()).answer("", writing("none", "b")).answer("", writing([], "c")).answer("done")
    assert [branched(agent.state, steps).todos for steps in range(5)] == [(), (ADD, TELL), (ADD, TELL), (), ()]
    later = Run(tools=("add", WRITES))
    later.state = run().answer("", writing()).answer("done").state
    later.begin("and now?").answer("", writing([], "c")).answer("done")
    assert [branched(later.state, steps).todos for steps in range(3)] == [(ADD, TELL), (), ()]


def test_a_branch_of_a_run_recorded_without_the_list_that_it_began_with_has_one_that_nothing_changed() -> None:
    agent = run().answer("", writing()).answer("done")
    agent.begin("and now?").answer("", call("b"))
    agent.returns("b").answer("done")
    state = agent.state.with_execution(agent.tick(), todos_base=())
    assert branched(state, 1).todos == (ADD, TELL)


def test_a_summary_is_followed_by_the_list() -> None:
    policy = ContextPolicy(summary=SummaryPolicy(above_input_tokens=50, keep_messages=0))
    agent = run(context=policy).answer("", writing(), usage=Usage(input_tokens=100, output_tokens=1))
    assert reminders(agent.state) == []
    agent.summarises()
    assert reminders(agent.state) == [f"{REMINDER}\n[x] add\n[ ] tell"]


def test_the_next_execution_is_shown_what_is_left_to_do_and_nothing_when_all_is_done() -> None:
    agent = run().answer("", writing()).answer("later").begin("Go on.")
    assert reminders(agent.state) == [f"{REMINDER}\n[x] add\n[ ] tell"]
    agent.answer("", writing([{"text": "add", "status": "done"}], "b")).answer("done").begin("More.")
    assert len(reminders(agent.state)) == 1


def test_an_agent_that_cannot_write_it_is_not_shown_it() -> None:
    agent = run().answer("", writing()).answer("later")
    other = Run().begin()
    other.state = agent.state
    other.begin("Go on.")
    assert other.state.todos == (ADD, TELL)
    assert reminders(other.state) == []
