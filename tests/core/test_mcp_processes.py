"""Which process of an MCP server answered last, and what the model is told when it is another one."""

from __future__ import annotations

from holdfast.core.base.bounds import TOOL_RESULT_CHARS_MAX
from holdfast.core.loop.events import ExecutionStarted, ToolReturned
from holdfast.core.loop.mcp_processes import ANEW
from holdfast.core.tools.tool_traits import ToolTraits
from tests.core.building import Run, call, moment

KEEPS = ToolTraits(name="remember", mcp="notes")
OTHER = ToolTraits(name="search", mcp="web")
NOTE = ANEW.format("notes")


def begun() -> Run:
    return Run(None, tools=[KEEPS, OTHER, "echo"]).begin()


def returned(run: Run, id_: str, process: str, result: str = "ok") -> None:
    at = run.tick()
    run.feed(ToolReturned(id_, result, started_at=at, at=at, result_type="json", mcp_process=process))


def results(run: Run) -> list[str | None]:
    return [each.result for each in run.state.steps[-1].tool_executions]


def test_the_first_answer_of_a_process_and_more_of_it_are_as_they_come() -> None:
    run = begun()
    for _ in range(2):
        run.answer("", call("a", "remember"))
        returned(run, "a", "one")
        assert results(run) == ["ok"]


def test_the_first_answer_of_another_process_says_so_and_those_beside_it_do_not() -> None:
    run = begun().answer("", call("a", "remember"))
    returned(run, "a", "one")
    run.answer("", call("a", "remember"), call("b", "remember"), call("c", "search"), call("d", "echo"))
    for id_ in "abcd":
        returned(run, id_, "two")
    assert results(run) == [f"{NOTE}\nok", "ok", "ok", "ok"]
    assert run.state.running.mcp_processes == {"notes": "two", "web": "two"}


def test_a_note_keeps_a_result_within_its_bound() -> None:
    run = begun().answer("", call("a", "remember"))
    returned(run, "a", "one")
    run.answer("", call("a", "remember"))
    returned(run, "a", "two", "x" * TOOL_RESULT_CHARS_MAX)
    [result] = results(run)
    assert str(result).startswith(NOTE)
    assert len(str(result)) <= TOOL_RESULT_CHARS_MAX


def test_an_agents_next_execution_knows_the_process_of_the_last_one() -> None:
    run = begun().answer("", call("a", "remember"))
    returned(run, "a", "one")
    run.answer("done")
    started = ExecutionStarted("00000000-0000-0000-0000-0000000000ff", (), run.state.running.budget, moment(900))
    state, _ = run.loop.step(run.state, started)
    assert state.running.mcp_processes == {"notes": "one"}
