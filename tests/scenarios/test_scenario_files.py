"""The scenario files themselves: strict to read, enough of them, and unable to pass whatever happens."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest
import yaml
from pydantic import ValidationError

from holdfast.core.agent.hooks import Trigger
from holdfast.core.agent.state import AgentState
from holdfast.core.conversation.steps import Outcome
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.wire.execution_events import Observed
from holdfast.testing.openai_server import FakeOpenAI, RequestRecord
from tests.scenarios.driving import locally
from tests.scenarios.expected import Expected, disappointments
from tests.scenarios.hooks import HOOKS
from tests.scenarios.scenario import CASES, load

SCENARIOS_MIN = 40
SHORTEST = """
name: An answer at once
covers: [SPEC 6]
script: [{text: "42"}]
expect: {ends: [completed, completed], steps: 1}
"""
Ended = tuple[AgentState, tuple[RequestRecord, ...], list[str]]
STEP = ("AgentExecutionStarted", "AgentStepStarted", "InferenceRequestStarted", "InferenceResponseReceived")
TWO_CALLS = ("ToolCallStarted", "ToolCallStarted", "ToolCallCompleted", "ToolCallCompleted")
ENDED = ("AgentExecutionStopped", "AgentExecutionCompleted")
ARCHIVED = ("AgentStepCompleted", "TokenUsageReported", "ContinuationEvaluated")
ALL_OF_IT = {
    "ends": ("completed", "completed"),
    "final": "anyway",
    "steps": 2,
    "messages": ("user", "assistant", "tool", "tool", "assistant"),
    "answers": ({"starts_with": "Error (Lookup", "contains": "nothing", "matches": "there$", "length": 34}, "3"),
    "outcomes": ("failed", "succeeded"),
    "errors": ("LookupError: nothing there",),
    "signals": (),
    "tokens": 240,
    "cost_usd": 0,
    "warnings": ({"contains": "its cost counts as 0"},),
    "observed": (*STEP, *TWO_CALLS, *ARCHIVED, "AgentStepStarted", *STEP[2:], *ARCHIVED, *ENDED),
    "metadata": {"agent": "scenario"},
    "shown": ({"request": 2, "messages": 5, "last": {"length": 1}, "anywhere": {"contains": "Be brief."}},),
}
OTHERWISE = {
    "ends": ("completed", "finish_reason"),
    "final": "",
    "steps": 1,
    "messages": 4,
    "answers": ({"length_max": 33}, "3"),
    "outcomes": ("succeeded", "succeeded"),
    "errors": (),
    "signals": ("error",),
    "tokens": 241,
    "cost_usd": 0.1,
    "warnings": ("no price",),
    "observed": ("AgentExecutionStarted",),
    "metadata": {"agent": "another"},
    "shown": ({"request": 2, "output_tokens_max": 5},),
}


@pytest.fixture
async def ended() -> Ended:
    """What a run with a tool that raises and one that answers leaves behind."""
    scenario = load(CASES / "a_tool_that_raises.yaml")
    async with FakeOpenAI(scenario.turns) as endpoint:
        state, observed = await locally(scenario, endpoint, str(uuid4()), str(uuid4()))
        return state, tuple(endpoint.requests), observed


@pytest.mark.slow
def test_there_are_enough_scenarios_and_each_shows_something_else() -> None:
    scenarios = [load(path) for path in CASES.glob("*.yaml")]
    assert len(scenarios) >= SCENARIOS_MIN
    assert len({scenario.name for scenario in scenarios}) == len(scenarios)


@pytest.mark.slow
def test_every_reason_outcome_and_hook_place_is_met_by_some_scenario() -> None:
    scenarios = [load(path) for path in CASES.glob("*.yaml")]
    triggers = {hook.name: hook.traits.trigger for hook in HOOKS}
    assert {scenario.expect.ends[1] for scenario in scenarios} == set(StopReason)
    assert {outcome for scenario in scenarios for outcome in scenario.expect.outcomes or ()} == set(Outcome)
    assert {triggers[name] for scenario in scenarios for name in scenario.agent.hooks or ()} == set(Trigger)


ELSEWHERE = {
    *("McpToolsChanged", "InputRequested", "InputResolved"),  # of MCP servers: tests/workflows/test_mcp_catalogs.py
    *("TodosChanged", "AnswerJudged", "AgentWentBack"),  # of capabilities: tests/local/test_listeners.py
}
"""What scenarios do not have."""


def test_every_kind_of_observable_event_is_told_by_some_scenario() -> None:
    told = {name for path in CASES.glob("*.yaml") for name in load(path).expect.observed or ()}
    assert told | ELSEWHERE == {kind.__name__ for kind in Observed.__subclasses__()}


async def test_a_run_that_is_as_expected_disappoints_nobody(
    ended: Ended,
) -> None:
    assert disappointments(Expected.model_validate(ALL_OF_IT), *ended) == []


@pytest.mark.parametrize("field", OTHERWISE)
async def test_every_expectation_can_be_disappointed(field: str, ended: Ended) -> None:
    expected = Expected.model_validate({**ALL_OF_IT, field: OTHERWISE[field]})
    found = disappointments(expected, *ended)
    assert len(found) == 1
    assert field in found[0]


@pytest.mark.parametrize(
    "verb",
    [{"is": "4"}, {"starts_with": "4"}, {"contains": "4"}, {"matches": "^.$."}, {"length": 2}, {"length_max": 0}],
)
async def test_every_verb_can_be_disappointed(verb: dict[str, object], ended: Ended) -> None:
    expected = Expected.model_validate({"ends": ("completed", "completed"), "answers": ({"contains": "Error"}, verb)})
    assert len(disappointments(expected, *ended)) == 1


async def test_an_answer_too_few_or_too_many_is_noticed(ended: Ended) -> None:
    for answers in [({"length": 34},), ({"length": 34}, {"is": "3", "repeat": 2})]:
        expected = Expected.model_validate({"ends": ("completed", "completed"), "answers": answers})
        assert len(disappointments(expected, *ended)) == 1


def test_the_shortest_scenario_is_read(tmp_path: Path) -> None:
    (tmp_path / "case.yaml").write_text(SHORTEST)
    scenario = load(tmp_path / "case.yaml")
    assert (scenario.agent.name, scenario.agent.hooks, scenario.turns[0].text) == ("scenario", (), "42")


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("steps: 1", "stpes: 1", "expect.stpes"),
        (", steps: 1", "", "expect something besides"),
        ("steps: 1", "answers: [{}]", "say at least one of is, starts_with"),
        ("steps: 1", "shown: [{request: 1}]", "say what the request shows"),
        ("completed, completed", "completed, whatever", "expect.ends.1"),
        ("{text:", "{txt:", "script.0.txt"),
        ("SPEC 6", "SPEC 66", "covers.0"),
        ("script:", "agent: {tols: []}\nscript:", "agent.tols"),
        ("script:", "outside: [{when: the model is asked, do: panic}]\nscript:", "outside.0"),
    ],
)
def test_a_mistake_in_a_file_is_refused_with_its_place(tmp_path: Path, before: str, after: str, told: str) -> None:
    (tmp_path / "case.yaml").write_text(SHORTEST.replace(before, after))
    with pytest.raises(ValidationError, match=told):
        load(tmp_path / "case.yaml")


def test_a_field_given_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "case.yaml").write_text(SHORTEST + "name: Once more\n")
    with pytest.raises(yaml.YAMLError, match="twice"):
        load(tmp_path / "case.yaml")
