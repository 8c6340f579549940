"""The demo's proof: it counts what really ran, and does not let anything pass that fails to add up."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from examples.repo_detective.evidence import keys_after_first_step, under_way, weigh
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.execution_state import call_name, named_id
from holdfast.core.agent.state import AgentState
from holdfast.core.tools.tools import tool
from holdfast.local import LocalDriver
from holdfast.testing.ledger import Entry
from holdfast.testing.script import call, say
from holdfast.testing.scripted_model import ScriptedModel


@tool
def look() -> str:
    """Look."""
    return "seen"


@pytest.fixture
async def state() -> AgentState:
    """Return the end of a run that looked in its first step and in its second."""
    model = ScriptedModel([call("look"), call("look"), say("done")])
    return await LocalDriver(AgentDefinition(name="a", tools="all"), model=model, tools=[look]).execute("?")


def noted(phase: str, key: str, name: str = "look") -> Entry:
    return Entry(at=0, pid=1, kind="tool", name=name, phase=phase, key=key)


def asked(step: int, *phases: str) -> list[Entry]:
    detail = {"turn": step - 1}
    return [Entry(at=0, pid=1, kind="model", name="m", phase=phase, detail=detail) for phase in phases]


MODEL = [entry for step in (1, 2, 3) for entry in asked(step, "started", "finished")]


def keys(state: AgentState) -> tuple[str, str]:
    first, second = (step.tool_executions[0].id for step in state.steps[:2])
    return first, second


def problems(state: AgentState, entries: Sequence[Entry], cut: Sequence[Entry] = ()) -> tuple[str, ...]:
    return weigh(state, entries, cut, model_noted=True).problems


def test_a_run_with_one_call_cut_off_and_repeated_adds_up(state: AgentState) -> None:
    first, second = keys(state)
    cut = noted("started", second)
    tools = [noted("started", first), noted("finished", first), cut, noted("started", second), noted("failed", second)]
    evidence = weigh(state, [*tools, *MODEL], [cut], model_noted=True)
    assert evidence.problems == ()
    assert evidence.repeated == 0
    (count,) = evidence.tools
    assert (count.asked, count.started, count.finished, count.failed, count.cut) == (2, 3, 1, 1, 1)
    assert [(each.step, each.asked, each.answered) for each in evidence.model] == [(1, 1, 1), (2, 1, 1), (3, 1, 1)]


def test_what_does_not_add_up_is_said(state: AgentState) -> None:
    first, second = keys(state)
    whole = [noted(phase, key) for key in (first, second) for phase in ("started", "finished")]
    assert problems(state, [*whole, *MODEL]) == ()
    assert "began 2 times, ended 1 times" in problems(state, [*whole, noted("started", first), *MODEL])[0]
    assert "never ended in the ledger" in problems(state, [*whole[2:], *MODEL])[0]
    assert "does not know" in problems(state, [*whole, noted("started", "other"), *MODEL])[0]
    assert "asked 2 times" in problems(state, [*whole, *MODEL, *asked(2, "started", "finished")])[0]
    assert "asked for 2" in problems(state, [*whole, *MODEL[:4]])[0]


def test_a_call_that_ended_twice_is_counted_as_repeated(state: AgentState) -> None:
    first, second = keys(state)
    whole = [noted(phase, key) for key in (first, second, second) for phase in ("started", "finished")]
    assert weigh(state, whole, (), model_noted=False).repeated == 1


def test_a_call_is_under_way_from_its_beginning_to_its_end() -> None:
    first, second = noted("started", "a"), noted("started", "b")
    assert under_way([first, second]) == (first, second)
    assert under_way([first, second, noted("finished", "a")]) == (second,)
    assert under_way([first, noted("failed", "a"), first]) == (first,)


def test_the_calls_after_the_first_step_are_known_beforehand(state: AgentState) -> None:
    first, second = keys(state)
    found = keys_after_first_step(state.running.execution_id, 12)
    assert second in found
    assert first not in found
    assert named_id(state.running.execution_id, call_name(12, 63)) in found
