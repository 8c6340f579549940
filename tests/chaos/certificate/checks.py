"""What must hold of a run that was struck. Each check returns what is wrong, one readable line each."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isclose
from pathlib import Path
from typing import Any, Final, cast

from holdfast.core.agent.state import AgentState
from holdfast.core.conversation.attempt_tally import DEATHS_MAX, WORKER_LOST
from holdfast.core.session.session_state import MESSAGE_ID
from holdfast.core.wire.event_envelope import NumberedEvent, from_dict, to_dict
from holdfast.core.wire.execution_events import AgentExecutionCompleted, AgentExecutionFailed, AnyObserved
from holdfast.core.wire.session_events import SessionEvent
from holdfast.testing import assert_every_call_answered, assert_within_budget
from holdfast.testing.comparison import TIMES, differences
from holdfast.testing.ledger import Ledger, idempotency_key
from holdfast.testing.openai_server import RequestRecord
from holdfast.testing.script import conversation_key
from tests.chaos.certificate.baseline import Baseline, effects
from tests.chaos.certificate.catalogue import asker
from tests.chaos.certificate.histories import Progress
from tests.chaos.certificate.scene import Scene
from tests.mcp.places import noted

UNEQUAL: Final = TIMES | {"paused_seconds", "mcp_processes"}
"""What may differ between any two runs."""

LOST: Final = frozenset({"cost", "next_input_max", "overhead", "overhead_cost", "partial_response", "usage"})
"""What may differ after a fault: what the lost attempts used, and the text that went with them.

The usage of each answer is compared all the same, and `_usage_problems` judges the sums.
"""

ANSWER: Final = "inference_response"

SHOWN_MAX: Final = 6
CENTS: Final = 1e-9
UNKNOWN: Final = "OutcomeUnknown"
ENDS: Final = (AgentExecutionCompleted, AgentExecutionFailed)
LATE_SECONDS_MAX: Final = 3.0
"""How much later than it began a model call may reach an endpoint of a busy machine."""

_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_SECONDS: Final = re.compile(r"after [0-9.]+ s")
_NEW_PROCESS: Final = re.compile(r"\[the MCP server '[^']+' runs in another process [^\]]*\]\\n")
"""What a model is told of an MCP server that died with its worker, as JSON has it."""
_COMMAND: Final = r"one\ntwo\n", r"one\n"
"""The workspace's file where its command has run, and where it has not: its outcome may be unknown, too."""
_WRITE: Final = "replaced a.txt", "made a.txt"
"""What a write says that has begun again after the first one was lost behind its effect, and what it says else."""
_OF_UNKNOWN: Final = frozenset({"workspace", "mcp_processes"})
"""What a call leaves that may not have run, or not have said which process answered."""


@dataclass(frozen=True, slots=True)
class Strike:
    """One fault that met a run: when (`at` is the clock's), and how far its histories were."""

    at: float
    progress: Progress


@dataclass(frozen=True, slots=True)
class Seen:
    """All that is known of a run when it has ended."""

    scene: Scene
    baseline: Baseline
    states: tuple[AgentState, ...]
    strikes: tuple[Strike, ...]
    scheduled_calls: Mapping[str, float]
    """When each tool call was scheduled, by its idempotency key."""
    stopped_early: bool
    """Whether a stop was recorded between an answer and the workflow task that took it: the run ends without it."""
    requests: tuple[RequestRecord, ...]
    clock_offset: float
    """`time.time()` less `time.monotonic()`."""
    ledger: Path
    mcp_ledger: Path
    watched: Mapping[str, Sequence[AnyObserved]]
    """What a watcher was told while the run was struck, by execution."""
    read_again: Mapping[str, Sequence[AnyObserved]]
    """What another one was told after its end."""
    session_events: Sequence[tuple[int, str]]
    """Of a session: the sequences of its own events, with their Temporal runs."""
    sink_file: Path | None


def problems(seen: Seen) -> list[str]:
    """Return everything that is wrong."""
    return [
        *_state_problems(seen),
        *_effect_problems(seen),
        *_repeated_calls(seen),
        *_usage_problems(seen),
        *_budget_problems(seen),
        *_event_problems(seen),
        *(sink_problems(seen.sink_file) if seen.sink_file else ()),
    ]


# --- the state


def _state_problems(seen: Seen) -> Iterator[str]:
    scene = seen.scene
    for state in seen.states:
        try:
            assert_every_call_answered(state)
        except AssertionError as error:
            yield f"transcript: {error}"
    if len(seen.states) != len(seen.baseline.states):
        yield f"{len(seen.states)} executions instead of {len(seen.baseline.states)}"
    if scene.session and goes_otherwise(seen):
        yield from _said_alike(seen.states, seen.baseline.states)
    unknown: list[str] = []  # those of a session's earlier executions, too: its later ones have its conversation
    for state, wanted in zip(seen.states, seen.baseline.states, strict=False):
        if goes_otherwise(seen):
            yield from _ended_alike(scene, state, wanted)
            continue
        unknown += [*unknown_calls(scene, state), *given_up(seen, state)]
        if unknown and not seen.strikes:
            yield f"the outcome of {unknown} is unknown though nothing happened"
        lost = LOST if seen.strikes else frozenset[str]()
        if _counts_as_a_whole(seen, state):
            lost = LOST | {"subagent_steps"}
        lines = differences(essence(state, unknown, lost), essence(wanted, unknown, lost), UNEQUAL)
        yield from lines[:SHOWN_MAX]


def goes_otherwise(seen: Seen) -> bool:
    """Return whether the run may rightly end otherwise than the undisturbed one; then less is compared.

    So it is where time ended it, where tokens of a lost attempt ended it, where a stop came earlier, or where a
    session's call was given up before its message came.
    """
    spent = seen.scene.spent and bool(seen.strikes) and _attempts_count(seen.states)
    return seen.scene.timed or spent or seen.stopped_early or _misses_its_message(seen)


def _attempts_count(states: Iterable[AgentState]) -> bool:
    """Return whether attempts without an answer count: more was used than the recorded answers report."""
    answers = (step.inference_response for state in states for step in state.steps)
    answered = sum(each.usage.total_tokens for each in answers if each)
    return sum(state.usage.total_tokens for state in states) > answered


def _misses_its_message(seen: Seen) -> bool:
    """Return whether a session's message came later, or never: the call that was to run until then was given up."""
    first, wanted = seen.states[0], seen.baseline.states[0]
    said = [each.text for each in seen.scene.deeds if each.do == "inject"]
    return any(_place_of(text, first) != _place_of(text, wanted) for text in said) and bool(given_up(seen, first))


def _place_of(text: str, state: AgentState) -> int | None:
    return next((place for place, each in enumerate(state.messages) if each.text == text), None)


def _ended_alike(scene: Scene, state: AgentState, wanted: AgentState) -> Iterator[str]:
    """Check a run that ended early: as the undisturbed one did, and with the beginning of its conversation."""
    end, other = ((each.status, each.stop_reason) for each in (state, wanted))
    if end != other:
        yield f"it ended as {end}"
    mine, theirs = ([(each.role, each.text) for each in one.messages if each.role != "tool"] for one in (state, wanted))
    if not scene.session and mine != theirs[: len(mine)]:
        yield f"the transcript {mine} is no beginning of {theirs}"


def _said_alike(states: Sequence[AgentState], wanted: Sequence[AgentState]) -> Iterator[str]:
    """Check a session whose message came later: its conversation has each message once, and the last one's answer."""
    mine, theirs = (Counter(each.text for each in one[-1].messages if each.role == "user") for one in (states, wanted))
    if mine != theirs:
        yield f"it was told {dict(mine)} instead of {dict(theirs)}"
    if states[-1].final_response != wanted[-1].final_response:
        yield f"its last answer is {states[-1].final_response!r} instead of {wanted[-1].final_response!r}"


def _counts_as_a_whole(seen: Seen, state: AgentState) -> bool:
    """Return whether a stopped subagent that did not report in time counts as all that it was allowed.

    A fault can keep it from that, and so can a machine that is busy for three seconds.
    """
    scene, allowed = seen.scene, seen.scene.budget.max_cost
    stopped = scene.subagents and any(each.do == "stop" for each in scene.deeds)
    return bool(stopped and allowed and state.cost >= allowed)


def unknown_calls(scene: Scene, state: AgentState) -> list[str]:
    """Return the calls whose outcome is unknown, as that of a tool that may never begin twice can be."""
    every = (each for step in state.steps for each in step.tool_executions)
    return [
        each.call.id for each in every if each.call.name in scene.once and each.error and each.error.type == UNKNOWN
    ]


def given_up(seen: Seen, state: AgentState) -> list[str]:
    """Return the calls that are not begun again, as the worker died twice while each of them ran.

    Only those that were struck so often after they had been scheduled: a worker can die before the tool notes anything.
    """
    calls: list[str] = []
    for step in state.steps:
        for index, execution in enumerate(step.tool_executions):
            if execution.error and execution.error.type == WORKER_LOST:
                key = idempotency_key(state.running.execution_id, step.number, index)
                scheduled_at = seen.scheduled_calls.get(key, inf)
                met = sum(strike.at >= scheduled_at for strike in seen.strikes)
                calls += [execution.call.id] if met >= DEATHS_MAX else []
    return calls


def essence(state: AgentState, unknown: Iterable[str], lost: frozenset[str]) -> dict[str, Any]:
    """Return the state as data, with ids by their order, without what `lost` attempts leave and `unknown` calls say."""
    unknown = frozenset(unknown)
    data = _stripped(state.to_dict(), unknown, lost | _OF_UNKNOWN if unknown else lost)
    names: dict[str, str] = {}
    text = _UUID.sub(lambda each: names.setdefault(each[0], f"id-{len(names)}"), json.dumps(data, sort_keys=True))
    text = _NEW_PROCESS.sub("", _SECONDS.sub("after some s", text))
    text = text.replace(*_WRITE) if lost else text
    return cast("dict[str, Any]", json.loads(text.replace(*_COMMAND) if unknown else text))


def _stripped(value: object, unknown: frozenset[str], lost: frozenset[str]) -> object:
    if isinstance(value, list):
        return [_stripped(each, unknown, lost) for each in cast("list[object]", value)]
    if not isinstance(value, dict):
        return value
    fields = cast("dict[str, object]", value)
    call = fields.get("call")
    if isinstance(call, dict) and "outcome" in fields and cast("dict[str, object]", call).get("id") in unknown:
        return {"id": fields["id"], "call": cast("object", call)}
    if fields.get("role") == "tool" and fields.get("tool_call_id") in unknown:
        return {"role": "tool", "tool_call_id": fields["tool_call_id"]}
    return {
        name: _stripped(each, unknown, lost - {"cost", "usage"} if name == ANSWER else lost)
        for name, each in fields.items()
        if name not in lost and name != MESSAGE_ID
    }


# --- effects


def _effect_problems(seen: Seen) -> Iterator[str]:
    scene, ledger = seen.scene, Ledger(seen.ledger)
    begun = Counter(each.key for each in ledger.entries(name="pay", phase="started"))
    yield from (f"a payment was begun {times} times" for times in begun.values() if times > 1)
    payments = Counter(line for line in noted(seen.mcp_ledger) if line.startswith("pay "))
    yield from (f"the MCP server got {line!r} {times} times" for line, times in payments.items() if times > 1)
    keys = defaultdict[str, set[str]](set)
    for each in ledger.entries():
        if "text" in each.detail:
            keys[f"{each.name} {each.detail['text']}"].add(each.key)
    yield from (f"{what} has {len(those)} keys" for what, those in keys.items() if len(those) > 1)
    done, wanted = effects(seen.ledger), seen.baseline.effects
    less = goes_otherwise(seen) or any(each.do == "stop" for each in scene.deeds)
    less = less or any(given_up(seen, state) for state in seen.states)
    if not (done <= wanted if less else done == wanted):
        yield f"the effects are {sorted(done)}, not {sorted(wanted)}"
    for strike in seen.strikes:
        again = [
            each
            for each in ledger.entries(phase="started")
            if each.key in strike.progress.ended_calls and each.at > strike.at
        ]
        yield from (f"{each.name} was begun again after its end had been recorded" for each in again)


def _repeated_calls(seen: Seen) -> Iterator[str]:
    """Return which model calls were made again though their answers had been recorded."""
    order = defaultdict[str, list[str]](list)
    for each in seen.requests:
        key = conversation_key(each.body)
        if key not in order[asker(each.body)]:
            order[asker(each.body)].append(key)
    for strike in seen.strikes:
        for agent, answers in strike.progress.answers.items():
            recorded = set(order[agent][:answers])
            again = [
                each
                for each in seen.requests
                if each.started_at > strike.progress.at and conversation_key(each.body) in recorded
            ]
            if again:
                yield f"{len(again)} answered model calls of {agent} were made again"
    allowed = len(seen.baseline.requests) + _in_flight_max(seen) * len(seen.strikes)
    if len(seen.requests) > allowed:
        yield f"the model was asked {len(seen.requests)} times, more than {allowed}"


def _in_flight_max(_: Seen) -> int:
    return 1  # in no scene more than one model call is under way at a time


# --- usage and budgets


def _usage_problems(seen: Seen) -> Iterator[str]:
    used = sum(state.usage.total_tokens for state in seen.states)
    estimated = sum(state.usage.estimated_tokens for state in seen.states)
    wanted = sum(state.usage.total_tokens - state.usage.estimated_tokens for state in seen.baseline.states)
    reported = used - estimated
    whole = any(_counts_as_a_whole(seen, state) for state in seen.states)
    billed = _billed(seen)
    at_most = goes_otherwise(seen) or whole
    # what a lost attempt had reported before it was lost counts as reported, too
    if reported > max(wanted, billed if seen.strikes else 0) or (reported < wanted and not at_most):
        yield f"{reported} tokens are counted as reported, not {wanted}"
    if used < billed:
        yield f"{used} tokens are counted, {billed} were billed"
    for state in seen.states:
        prices = state.llm.prices if state.llm else None
        if prices is None or (not whole and not isclose(state.cost, prices.cost(state.usage), abs_tol=CENTS)):
            yield f"the cost is {state.cost}, by the usage {prices and prices.cost(state.usage)}"
    steps = [state.running.steps_used for state in seen.states]
    if not at_most and steps != (expected := [state.running.steps_used for state in seen.baseline.states]):
        yield f"{steps} steps are counted, not {expected}"


def _billed(seen: Seen) -> int:
    """Return the tokens reported by the answers that the endpoint sent whole."""
    answered = (each for each in seen.requests if each.outcome == "answered" and each.status == 200)
    return sum(sum(seen.scene.reported(each.body)) for each in answered)


def _budget_problems(seen: Seen) -> Iterator[str]:
    budget = seen.scene.budget
    for state in seen.states:
        if budget.max_tokens is not None and not seen.scene.timed:
            try:
                assert_within_budget(state)
            except AssertionError as error:
                yield f"budget: {error}"
    billed = _billed(seen)
    if budget.max_tokens is not None and billed > budget.max_tokens:
        yield f"{billed} tokens were billed, the budget allows {budget.max_tokens}"
    if seen.scene.timed and seen.states and (limit := seen.states[0].running.time_limit_at) is not None:
        late = [
            began
            for each in seen.requests
            if (began := each.started_at + seen.clock_offset - limit.timestamp()) > LATE_SECONDS_MAX
        ]
        yield from (f"a model call was made {seconds:.1f} s after the time limit" for seconds in late)


# --- events


def _event_problems(seen: Seen) -> Iterator[str]:
    for execution_id, again in seen.read_again.items():
        told = seen.watched.get(execution_id)
        if told is not None and (other := _other(told, again)):
            yield f"a watcher was told other events of the run than the next one: {other}"
        if not again or not isinstance(again[-1], ENDS):
            yield f"the run's last event is {type(again[-1]).__name__ if again else 'none'}"
        if sum(isinstance(each, ENDS) for each in again) > 1:
            yield "the run has ended twice, by its events"
    if not goes_otherwise(seen):
        names = [tuple(type(each).__name__ for each in events) for events in seen.read_again.values()]
        for mine, theirs in zip(names, seen.baseline.events, strict=False):
            same = Counter(mine) == Counter(theirs) if seen.scene.parallel else mine == theirs
            if not same:
                missing, more = Counter(theirs) - Counter(mine), Counter(mine) - Counter(theirs)
                yield f"other events than undisturbed: without {dict(missing)}, with {dict(more)}, or in another order"
    yield from sequence_problems("the session", seen.session_events)


def _other(told: Sequence[AnyObserved], again: Sequence[AnyObserved]) -> str:
    """Return the first place at which the two were told different things, moments included."""
    if len(told) != len(again):
        return f"{len(told)} and {len(again)}"
    for place, (one, other) in enumerate(zip(told, again, strict=True)):
        if one != other and (lines := _event_differences(_event(one), _event(other))):
            return f"number {place} ({type(one).__name__}): {lines[0]}"
    return ""


def _event_differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    return differences(one, other, ignoring=())


def _event(event: AnyObserved) -> dict[str, Any]:
    return to_dict(NumberedEvent(1, event))


def sequence_problems(whose: str, events: Iterable[tuple[int, str]]) -> Iterator[str]:
    """Check that the events of each stream are numbered from 1 on, without a gap."""
    streams = defaultdict[str, list[int]](list)
    for sequence, stream in events:
        streams[stream].append(sequence)
    for stream, sequences in streams.items():
        if sequences != [*range(1, len(sequences) + 1)]:
            yield f"the events of {whose} ({stream}) are numbered {sequences}"


def sink_problems(file: Path) -> Iterator[str]:
    """Check what a sink has delivered: each event under its id, equal where it came twice, no number missing."""
    first: dict[str, dict[str, Any]] = {}
    for line in file.read_bytes().splitlines() if file.exists() else ():
        data: dict[str, Any] = json.loads(line)
        if lines := _event_differences(first.setdefault(data["id"], data), data):
            yield f"the event {data['id']} was delivered twice, and not alike: {lines[0]}"
    numbered = [from_dict(data) for data in first.values()]
    streams = [
        each.event.temporal_run_id if isinstance(each.event, SessionEvent) else each.event.execution_id
        for each in numbered
    ]
    pairs = sorted(zip((each.sequence for each in numbered), streams, strict=True))
    yield from sequence_problems("the sink", pairs)


def delivered_ends(file: Path) -> int:
    """Return how many executions' ends a sink has delivered."""
    lines = file.read_bytes().splitlines() if file.exists() else []
    ids = {data["id"] for line in lines if (data := json.loads(line))["kind"] in {each.__name__ for each in ENDS}}
    return len(ids)
