"""Model calls that are too long: what comes of them is the same in-process and on Temporal, down to the state."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from holdfast.client import Settings
from holdfast.testing.openai_server import FakeOpenAI
from tests.scenarios.driving import locally
from tests.scenarios.outcome import assert_ended_well, assert_the_same_state
from tests.scenarios.scenario import Scenario

TOO_LONG = "This model's maximum context length is 90 tokens, and the prompt has 120."
SUMMARY = {"summary": {"above_input_tokens": 100_000, "keep_messages": 20}}
ADDING = {"calls": [{"tool": "add", "arguments": {"a": 1, "b": 1}}]}
REFUSED = {"status": 400, "text": TOO_LONG}

RESCUED = Scenario.model_validate(
    {
        "name": "A model call that is too long for its endpoint is made once more after a summary",
        "covers": ["SPEC 7"],
        "agent": {"context": SUMMARY},
        "turn_by_turn": True,
        "script": [ADDING, REFUSED, {"text": "Somebody wants a sum."}, {"text": "2"}],
        "expect": {
            "ends": ["completed", "completed"],
            "final": "2",
            "steps": 2,
            "errors": [],
            "warnings": [
                {"contains": "no price is known"},
                {"contains": "no price is known"},
                {"contains": "older messages are summarised and it is made again"},
            ],
            "shown": [
                {"request": 2, "last": "2"},
                {"request": 4, "anywhere": {"contains": "Somebody wants a sum."}},
            ],
        },
    }
)
ONCE = Scenario.model_validate(
    {
        "name": "A model call that is too long after its summary, too, fails the run",
        "covers": ["SPEC 7"],
        "agent": {"context": SUMMARY},
        "turn_by_turn": True,
        "script": [ADDING, REFUSED, {"text": "Somebody wants a sum."}, REFUSED],
        "expect": {"ends": ["failed", "error"], "steps": 2, "errors": [{"contains": TOO_LONG}], "signals": ["error"]},
    }
)
HOPELESS = Scenario.model_validate(
    {
        "name": "A call that cannot fit into the known window is not made, and the error says by how much",
        "covers": ["SPEC 7"],
        "agent": {"llm": {"context_window": 10}, "system_prompt": "Answer each question with one number. " * 20},
        "script": [{"text": "2"}],
        "expect": {
            "ends": ["failed", "error"],
            "steps": 0,
            "errors": [
                {"matches": r"ContextTooLong: the next call has at least \d+ tokens, \d+ more than the context"}
            ],
            "signals": ["error"],
        },
    }
)
SCENARIOS = {each.name: each for each in (RESCUED, ONCE, HOPELESS)}


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
async def test_a_call_that_is_too_long_ends_as_it_must(scenario: Scenario) -> None:
    async with FakeOpenAI(scenario.plays) as endpoint:
        state, observed = await locally(scenario, endpoint, str(uuid4()), str(uuid4()))
    assert_ended_well(scenario, state, endpoint.requests, observed)
    assert len(endpoint.requests) == (0 if scenario is HOPELESS else 4)


@pytest.mark.temporal
@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
async def test_a_call_that_is_too_long_ends_equally_in_both_drivers(
    scenario: Scenario, settings: Settings, tmp_path: Path
) -> None:
    await assert_the_same_state(scenario, settings, tmp_path)
