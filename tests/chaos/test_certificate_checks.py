"""The certificate notices what it is for: each planted fault is told, and an undisturbed run passes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.state import AgentState
from holdfast.core.conversation.attempt_tally import WORKER_LOST
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.testing.ledger import Ledger, idempotency_key
from tests.chaos.certificate.baseline import baseline_of
from tests.chaos.certificate.catalogue import SCENES
from tests.chaos.certificate.certify import OVERTIME_RUNS_MAX, Plan, may_begin, share, trials
from tests.chaos.certificate.checks import Seen, Strike, goes_otherwise, problems
from tests.chaos.certificate.histories import Progress
from tests.chaos.certificate.report import Cell, Table, markdown, repeating
from tests.chaos.certificate.scene import Begun, Deed, Scene
from tests.chaos.certificate.trial import Outcome

pytestmark = pytest.mark.timeout(120)

PLAIN = SCENES["plain"]
EARLY = Progress(at=0, events=9, ended_calls=frozenset(), answers={})


async def seen_of(scene: Scene, tmp_path: Path) -> Seen:
    """Return what there is to see of a run that went as the baseline did."""
    baseline, again = [await baseline_of(scene, tmp_path / name) for name in ("baseline", "run")]
    [state] = again.states
    observed = {state.running.execution_id: again.observed}
    return Seen(
        scene=scene,
        baseline=baseline,
        states=again.states,
        strikes=(),
        scheduled_calls={},
        stopped_early=False,
        requests=again.requests,
        clock_offset=time.time() - time.monotonic(),
        ledger=tmp_path / "run" / "ledger.jsonl",
        mcp_ledger=tmp_path / "mcp",
        watched=observed,
        read_again=observed,
        session_events=(),
        sink_file=None,
    )


@pytest.fixture
async def seen(tmp_path: Path) -> Seen:
    return await seen_of(PLAIN, tmp_path)


def twice_paid(seen: Seen) -> Seen:
    [key] = {each.key for each in Ledger(seen.ledger).entries(name="pay")}
    Ledger(seen.ledger).append("tool", "pay", "started", key=key)
    return seen


def begun_after_its_end(seen: Seen) -> Seen:
    [key] = {each.key for each in Ledger(seen.ledger).entries(name="note")}
    strike = Strike(time.time() - 60, replace(EARLY, ended_calls=frozenset({key})))
    return replace(seen, strikes=(strike,))


def asked_again(seen: Seen) -> Seen:
    struck_at = seen.requests[-1].started_at + 1
    strike = Strike(time.time(), replace(EARLY, at=struck_at, answers={"noter": 1}))
    late = replace(seen.requests[0], started_at=struck_at + 1)
    return replace(seen, strikes=(strike,), requests=(*seen.requests, late))


def message_lost(seen: Seen) -> Seen:
    data = seen.states[0].to_dict()
    data["context"]["store"]["sections"][-1]["messages"][-1]["content"] = "do"
    return replace(seen, states=(AgentState.from_dict(data),))


def event_lost(seen: Seen) -> Seen:
    return replace(seen, read_again={each: events[:-1] for each, events in seen.read_again.items()})


def event_doubled(seen: Seen) -> Seen:
    return replace(seen, watched={each: (*events, events[-1]) for each, events in seen.watched.items()})


def billed_more(seen: Seen) -> Seen:
    return replace(seen, requests=(*seen.requests, replace(seen.requests[0], started_at=0)))


def allowed_less(seen: Seen) -> Seen:
    return replace(seen, scene=replace(seen.scene, budget=ExecutionBudget(max_tokens=359)))


def reported_more(seen: Seen) -> Seen:
    data = seen.states[0].to_dict()
    data["execution"]["usage"]["input_tokens"] += 100
    return replace(seen, states=(AgentState.from_dict(data),))


def numbers_left_out(seen: Seen) -> Seen:
    return replace(seen, session_events=((1, "run"), (3, "run")))


def keys_changed(seen: Seen) -> Seen:
    other = idempotency_key(seen.states[0].running.execution_id, 7, 0)
    Ledger(seen.ledger).append("tool", "note", "started", key=other, detail={"text": "one"})
    return seen


async def test_a_run_like_the_undisturbed_one_breaks_no_rule(seen: Seen) -> None:
    assert problems(seen) == []


@pytest.mark.parametrize(
    ("plant", "told"),
    [
        (twice_paid, "a payment was begun 2 times"),
        (begun_after_its_end, "note was begun again after its end had been recorded"),
        (asked_again, "1 answered model calls of noter were made again"),
        (message_lost, "messages"),
        (event_lost, "the run's last event is"),
        (event_doubled, "a watcher was told"),
        (reported_more, "460 tokens are counted as reported, not 360"),
        (billed_more, "360 tokens are counted, 480 were billed"),
        (allowed_less, "360 tokens were billed, the budget allows 359"),
        (numbers_left_out, "are numbered [1, 3]"),
        (keys_changed, "note one has 2 keys"),
    ],
)
async def test_a_planted_fault_is_told(seen: Seen, plant: Callable[[Seen], Seen], told: str) -> None:
    lines = problems(plant(seen))
    assert any(told in line for line in lines), lines


@pytest.mark.parametrize(
    ("name", "reason", "noted"),
    [("steps", StopReason.STEPS_LIMIT, 2), ("tokens", StopReason.TOKEN_LIMIT, 3)],
)
async def test_a_limit_ends_the_scene_that_is_about_it(
    tmp_path: Path, name: str, reason: StopReason, noted: int
) -> None:
    alone = await baseline_of(SCENES[name], tmp_path / "alone")
    assert [state.stop_reason for state in alone.states] == [reason]
    assert len(alone.effects) == noted


def note_given_up(seen: Seen) -> Seen:
    """Return the same where two workers died while the note was written, before the tool could say so."""
    state, key = seen.states[0], ""
    data = state.to_dict()
    for done in data["execution"]["step_executions"]:
        step = done["step"]
        for index, each in enumerate(step["tool_executions"]):
            if each["call"]["name"] == "note":
                key = idempotency_key(state.running.execution_id, step["number"], index)
                error = {"type": WORKER_LOST, "message": "the worker died 2 times", "source": "note"}
                each |= {"outcome": "failed", "result": None, "error": error}
    return replace(seen, states=(AgentState.from_dict(data),), scheduled_calls={key: 100.0})


@pytest.mark.parametrize(("struck_at", "is_told"), [((101.0, 102.0), False), ((99.0, 101.0), True), ((101.0,), True)])
async def test_a_call_may_be_given_up_that_was_struck_twice_since_it_was_scheduled(
    seen: Seen,
    struck_at: Sequence[float],
    is_told: bool,  # noqa: FBT001  # a case
) -> None:
    strikes = tuple(Strike(at, EARLY) for at in struck_at)
    lines = problems(replace(note_given_up(seen), strikes=strikes))
    assert any("tool_executions" in line for line in lines) is is_told, lines


@pytest.mark.parametrize("given_up", [True, False])
async def test_later_executions_of_a_session_are_told_that_a_call_was_given_up(
    seen: Seen,
    given_up: bool,  # noqa: FBT001  # a case
) -> None:
    first, later = note_given_up(seen) if given_up else seen, seen.states[0].to_dict()
    for each in later["context"]["store"]["sections"][-1]["messages"]:
        if each["role"] == "tool" and "one" in each["content"]:
            each["content"] = "Error (WorkerLost): the worker died 2 times"
    strikes = tuple(Strike(at, EARLY) for at in (101.0, 102.0))
    twice = replace(seen.baseline, states=seen.baseline.states * 2)
    states = (*first.states, AgentState.from_dict(later))
    lines = problems(replace(first, states=states, baseline=twice, strikes=strikes))
    assert any("messages[" in line for line in lines) is not given_up, lines


def with_message(seen: Seen, place: int) -> Seen:
    """Return the same where somebody says "also" at this place of the conversation."""
    data = seen.states[0].to_dict()
    messages = data["context"]["store"]["sections"][-1]["messages"]
    messages.insert(place, messages[0] | {"content": "also"})
    return replace(seen, states=(AgentState.from_dict(data),))


async def test_a_message_may_come_later_only_where_the_call_that_waits_for_it_was_given_up(seen: Seen) -> None:
    scene, wanted = replace(PLAIN, deeds=(Deed(Begun("note"), "inject", "also"),)), with_message(seen, 3)
    baseline = replace(seen.baseline, states=wanted.states)
    struck = replace(seen, scene=scene, baseline=baseline, strikes=(Strike(101.0, EARLY), Strike(102.0, EARLY)))
    assert goes_otherwise(with_message(note_given_up(struck), 5))
    assert goes_otherwise(note_given_up(struck)), "it never came"
    assert not goes_otherwise(with_message(note_given_up(struck), 3)), "it came in time"
    assert not goes_otherwise(with_message(struck, 5)), "nothing was given up"


def with_another_end(seen: Seen) -> Seen:
    """Return the same with another last answer."""
    data = seen.states[0].to_dict()
    data["execution"]["step_executions"][-1]["step"]["inference_response"]["text"] = "no"
    return replace(seen, states=(AgentState.from_dict(data),))


@pytest.mark.parametrize(
    ("places", "told"), [((5,), ""), ((), "it was told"), ((5, 5), "it was told"), ((7,), "its last answer")]
)
async def test_a_session_whose_message_comes_later_has_it_once_and_ends_with_the_same_answer(
    seen: Seen, places: Sequence[int], told: str
) -> None:
    wanted, came = with_message(seen, 3), note_given_up(seen)
    for place in places:
        came = with_message(came, place)
    if told == "its last answer":
        came = with_another_end(came)
    strikes = (Strike(101.0, EARLY), Strike(102.0, EARLY))
    scene = replace(PLAIN, deeds=(Deed(Begun("note"), "inject", "also"),), asks=("go", "and on"))
    lines = problems(replace(came, scene=scene, baseline=replace(seen.baseline, states=wanted.states), strikes=strikes))
    assert [line.startswith(told) for line in lines] == [True] * bool(told), lines


def shortened(seen: Seen, first_text: str = "") -> Seen:
    """Return the same without its last step, and with another first message if one is given."""
    data = seen.states[0].to_dict()
    messages = data["context"]["store"]["sections"][-1]["messages"]
    del messages[-1], data["execution"]["step_executions"][-1]
    messages[0]["content"] = first_text or messages[0]["content"]
    return replace(seen, states=(AgentState.from_dict(data),))


async def test_a_run_whose_stop_came_earlier_may_end_earlier_and_not_otherwise(seen: Seen) -> None:
    assert any("messages" in line for line in problems(shortened(seen)))
    assert problems(replace(shortened(seen), stopped_early=True)) == []
    [told] = problems(replace(shortened(seen, "no"), stopped_early=True))
    assert "is no beginning of" in told


def ended_a_step_earlier(seen: Seen, *, lost_tokens: int) -> Seen:
    """Return the same without its last step, and with the tokens of an attempt that nobody heard of again."""
    [state] = seen.states
    data, last = state.to_dict(), state.steps[-1].inference_response
    assert last is not None
    del data["context"]["store"]["sections"][-1]["messages"][-2:], data["execution"]["step_executions"][-1]
    usage = data["execution"]["usage"]
    usage["input_tokens"] += lost_tokens - last.usage.input_tokens
    usage["output_tokens"] -= last.usage.output_tokens
    usage["estimated_tokens"] += lost_tokens
    data["execution"]["cost"] += (lost_tokens - last.usage.input_tokens - 2 * last.usage.output_tokens) / 1e6  # PRICED
    strikes = (Strike(time.time(), EARLY),)
    return replace(seen, states=(AgentState.from_dict(data),), requests=seen.requests[:-1], strikes=strikes)


async def test_a_run_that_tokens_end_may_end_earlier_only_where_an_attempt_was_lost(tmp_path: Path) -> None:
    whole = await seen_of(SCENES["tokens"], tmp_path)
    assert problems(whole) == []
    billed = replace(whole, requests=(*whole.requests, *whole.requests[:1]))
    assert "960 tokens are counted, 1280 were billed" in problems(billed)
    assert any("messages" in line for line in problems(ended_a_step_earlier(whole, lost_tokens=0)))
    assert problems(ended_a_step_earlier(whole, lost_tokens=400)) == []


async def test_what_a_lost_attempt_had_reported_counts_as_reported(seen: Seen) -> None:
    early = replace(EARLY, at=seen.requests[-1].started_at + 1)
    struck = reported_more(replace(seen, strikes=(Strike(time.time(), early),)))
    assert any("are counted as reported" in line for line in problems(struck)), "nothing was billed for it"
    billed = billed_more(struck)
    assert not any("are counted as reported" in line for line in problems(billed))


async def test_an_event_told_with_another_moment_or_other_content_is_told(seen: Seen) -> None:
    [(id_, events)] = seen.read_again.items()
    later = replace(events[-1], at=events[-1].at + timedelta(seconds=5))
    moved = replace(seen, watched={id_: (*events[:-1], later)})
    assert any(".at: " in line for line in problems(moved))
    other = replace(seen, watched={id_: (*events[:-1], replace(events[-1], step_number=7))})
    assert any("step_number: 7 and 3" in line for line in problems(other))


async def test_a_sink_that_leaves_an_event_out_is_told(seen: Seen, tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    id_, at = seen.states[0].running.execution_id, "2026-01-01T00:00:00Z"
    step = {"kind": "AgentStepStarted", "agent_id": id_, "execution_id": id_, "parent_agent_id": None, "at": at}
    lines = [{"id": f"{id_}/{n}", "sequence": n, "version": 1, **step, "step_number": n} for n in (1, 3)]
    file.write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    [told] = problems(replace(seen, sink_file=file))
    assert "are numbered [1, 3]" in told


def test_every_event_has_its_strike_and_a_command_that_repeats_it() -> None:
    plan = Plan([PLAIN, SCENES["stream"]], ["worker"], seed=1, per_run=4)
    aims = {"plain": list[int](), "stream": list[int]()}
    for scene, some in trials(plan, "worker", {"plain": 10, "stream": 6}):
        assert len(some) <= 4
        aims[scene.name] += some
    assert {name: sorted(each) for name, each in aims.items()} == {"plain": [*range(1, 10)], "stream": [*range(1, 6)]}
    outcome = Outcome("plain", "worker", (3, 7), (3,), 1, 12, 0, ("broken",), 1.0)
    assert repeating(outcome, 5) == (
        "python -m tests.chaos.certificate --scenarios plain --faults worker --at 3,7 --seed 5 --per-run 2"
    )


def test_a_cell_without_a_strike_is_named_and_the_table_tells_strikes_and_places() -> None:
    table = Table([PLAIN, SCENES["stream"]], ["worker"], {"plain": 12, "stream": 7})
    table.cell("plain", "worker").note(Outcome("plain", "worker", (3, 7), (3, 8, 8), 0, 12, 1, (), 1.0))
    assert table.empty == ["stream under worker"]
    text = markdown(table, {"command": "`it`"})
    assert "| plain | 12 | 3 / 2 |" in text
    assert "| in all | 19 | 3 / 2 |" in text
    assert "* command: `it`" in text


def test_a_cell_that_no_strike_has_met_has_a_few_more_runs_when_time_is_up() -> None:
    missed = Cell(begun=OVERTIME_RUNS_MAX - 1)
    assert may_begin(missed, now=2, until=1)
    assert not may_begin(replace(missed, begun=OVERTIME_RUNS_MAX), now=2, until=1)
    assert not may_begin(replace(missed, hits=[3]), now=2, until=1)
    assert may_begin(replace(missed, hits=[3]), now=1, until=1)
    assert may_begin(replace(missed, hits=[3]), now=2, until=None)


def test_a_fault_gets_what_others_left_of_their_time_and_never_less_than_its_own() -> None:
    assert share(120, used=0, faults=4, left=4) == 30
    assert share(120, used=10, faults=4, left=3) == pytest.approx(110 / 3)
    assert share(120, used=119, faults=4, left=1) == 30
