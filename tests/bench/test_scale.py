"""The pure parts of `bench.scale`: what /proc says, histories as times, formulas, and docs/scale.md as written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import cycle
from pathlib import Path

import pytest
from temporalio.api.history.v1 import HistoryEvent

from bench.scale import estimate
from bench.scale.bucket import folder_of
from bench.scale.crowd import most_at_once
from bench.scale.database import Held, grown
from bench.scale.figures import KINDS, Circumstances, Idle, Left, Measured, Memory, Settling, Throughput, Window
from bench.scale.page import CPU, PAGE, marks, sections, table, written
from bench.scale.process_trees import TICKS, ProcessFacts, parsed, processes, tree
from bench.scale.sizing import EXAMPLE, EXAMPLE_PRICES, Coefficients, cached_bytes, session_bytes, size
from bench.scale.step_times import Spread, spread, times_of
from bench.scale.throughput import QUIET_COMMITS_PER_SECOND, SETTLE_WINDOWS_MAX, per_step, settled
from holdfast.core.wire.contracts import INFERENCE_ACTIVITY


def test_a_process_whose_name_has_brackets_is_read() -> None:
    stat = f"7 (a) b (c) S 3 7 7 0 -1 0 0 0 0 0 {TICKS} {2 * TICKS} {3 * TICKS} {4 * TICKS} 20 0 1 0"
    assert parsed(stat) == ProcessFacts(parent=3, seconds=10.0)


def test_processes_that_end_meanwhile_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "12").mkdir()  # it has no `stat` any more
    (tmp_path / "13").mkdir()
    (tmp_path / "13" / "stat").write_text(f"13 (x) S 1 {' '.join('0' * 20)}")
    assert processes(tmp_path) == {13: ProcessFacts(1, 0.0)}


def test_a_tree_has_its_root_and_all_below_and_no_one_else() -> None:
    parents = {1: 0, 2: 1, 3: 2, 4: 1, 5: 0}
    assert sorted(tree(2, {pid: ProcessFacts(parent, 0) for pid, parent in parents.items()})) == [2, 3]


def event(number: int, seconds: float) -> HistoryEvent:
    made = HistoryEvent(event_id=number)
    made.event_time.FromNanoseconds(int(seconds * 1e9))
    return made


def scheduled(number: int, seconds: float, name: str) -> HistoryEvent:
    made = event(number, seconds)
    made.activity_task_scheduled_event_attributes.activity_type.name = name
    return made


def started(number: int, seconds: float, of: int) -> HistoryEvent:
    made = event(number, seconds)
    made.activity_task_started_event_attributes.scheduled_event_id = of
    return made


def test_a_step_lasts_from_one_model_call_to_the_next_and_a_task_waits_until_it_is_begun() -> None:
    task = event(2, 0.5)
    task.workflow_task_started_event_attributes.scheduled_event_id = 1
    history = [event(1, 0.0), task, scheduled(3, 1.0, INFERENCE_ACTIVITY), started(4, 1.25, 3)]
    history += [scheduled(5, 2.0, "read_page"), started(6, 2.5, 5), scheduled(7, 4.0, INFERENCE_ACTIVITY)]
    assert times_of(history) == ([3.0], [0.5], [0.25, 0.5])
    assert spread([]) == Spread(0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("spans", "most"),
    [([], 0), ([(0, 1), (1, 2)], 1), ([(0, 3), (1, 2), (1, 4)], 3), ([(0, 1), (5, 9), (6, 7)], 2)],
)
def test_the_most_runs_that_were_open_at_once_are_counted(spans: Sequence[tuple[float, float]], most: int) -> None:
    assert most_at_once(spans) == most


def test_tables_that_are_as_before_are_left_out() -> None:
    before = {"a": Held(1, 10), "b": Held(1, 10)}
    assert grown(before, {"a": Held(1, 10), "b": Held(3, 40), "c": Held(1, 5)}) == {"b": Held(2, 30), "c": Held(1, 5)}


def test_processor_time_is_told_per_step_without_what_a_cluster_takes_anyway() -> None:
    assert per_step({"history": 1.0}, {"history": 4.0, "workers": 0.5}, 10, {"history": 2.0, "workers": 1.0}) == {
        "history": 100.0,
        "workers": 0.0,
    }


async def settled_by(rates: Iterable[float]) -> Settling:
    following = iter(rates)

    async def commits_per_second() -> float:
        return next(following)

    return await settled(commits_per_second)


@pytest.mark.parametrize(
    ("rates", "needed"),
    [
        ([84.0, 60.0, 35.0, 17.0, 16.0, 99.0], 5),
        ([50.0, 50.0, 99.0], 2),
        ([50.0, 30.0, 50.0, 45.0, 99.0], 4),
        ([30.0, 0.1, QUIET_COMMITS_PER_SECOND * 0.9, 99.0], 3),
    ],
    ids=["falls", "steady from the start", "scatters", "quiet"],
)
async def test_a_cluster_has_settled_when_two_windows_in_a_row_are_alike(rates: list[float], needed: int) -> None:
    settling = await settled_by(rates)
    assert settling.settled
    assert list(settling.commits_per_second) == rates[:needed]


async def test_a_cluster_that_does_not_settle_is_measured_anyway_and_the_page_says_so() -> None:
    settling = await settled_by(cycle([80.0, 20.0]))
    assert not settling.settled
    assert len(settling.commits_per_second) == SETTLE_WINDOWS_MAX
    alone = WINDOW.model_copy(update={"cores": dict.fromkeys(CPU, 0.0), "settling": settling})
    assert f"(not steady within {settling.seconds:.0f} s)" in page_of(alone)
    assert "not steady" not in page_of(alone.model_copy(update={"settling": None}))


async def test_a_cluster_that_settles_in_the_last_window_has_settled() -> None:
    falling = [10.0 * 2 ** (SETTLE_WINDOWS_MAX - number) for number in range(SETTLE_WINDOWS_MAX - 1)]
    settling = await settled_by([*falling, falling[-1]])
    assert settling.settled
    assert len(settling.commits_per_second) == SETTLE_WINDOWS_MAX


def page_of(alone: Window) -> str:
    measured = Throughput(measured=IDLE.measured, cells=(), idle={16: alone})
    return sections(Measured(throughput=measured))["throughput"]


def test_an_object_belongs_to_the_first_folder_below_the_prefix() -> None:
    assert folder_of("objects/parts/ab/abcd") == folder_of("objects/parts/") == "parts"


WINDOW = Window(seconds=1, cores={}, commits_per_second=0, log_bytes_per_second=0)
LEFT = Left(
    name="sessions",
    count=10,
    steps=0,
    result_bytes=0,
    tables={
        "history_node": Held(20, 900),
        "timer_tasks": Held(99, 9_999),
        "visibility: executions_visibility": Held(10, 100),
    },
    objects={"records": (10, 50), "parts": (20, 150)},
    requests={"PUT": 30},
)
IDLE = Idle(
    measured=Circumstances(date="", command="", machine="", minutes=0, load=(0, 0)),
    left=LEFT,
    found_bytes=1,
    seconds=1,
    cached_runs=2_000,
    memory=tuple(Memory(sessions=each, workers=(100 + 3 * each, 200 + 5 * each)) for each in (500, 4_000, 5_000)),
    fresh_bytes=100,
    timers={},
    alone=WINDOW,
    waiting=WINDOW,
    events_before=1,
    events_after=1,
    woken=1,
    wake_ms=Spread(1, 2, 3),
)


def test_what_is_left_is_told_for_each_without_the_queues_of_what_is_to_be_done() -> None:
    assert (LEFT.bytes_each(), LEFT.rows_each(), LEFT.visibility_rows_each()) == (90, 3, 1)
    assert (LEFT.visibility_row_bytes(), session_bytes(IDLE)) == (10, 100)
    assert (LEFT.stored_each(), LEFT.requests_each("PUT"), LEFT.requests_each("GET")) == ((3, 20), 3, 0)


def test_a_cached_session_takes_what_a_worker_grew_by_for_each_that_it_keeps() -> None:
    assert cached_bytes(IDLE) == (20_150 - 100) / 2_000


EACH = dict[str, float](dict.fromkeys(KINDS, 1.0))
ONE = Coefficients(
    worker_ms=10.0,
    frontend_ms=10.0,
    history_ms=10.0,
    matching_ms=10.0,
    postgres_ms=10.0,
    commits=1.0,
    log_bytes=1.0,
    message_ms={role: 40.0 + place for place, role in enumerate(CPU)},
    message_commits=4.0,
    message_log_bytes=3.0,
    shard_commits=1.0,
    shard_cores=1.0,
    run_bytes=1.0,
    step_bytes=1.0,
    session_bytes=1.0,
    message_bytes=1.0,
    found=1.0,
    worker_bytes=1.0,
    cached_bytes=1.0,
    run_requests=EACH,
    step_requests=EACH,
    message_requests=EACH,
    run_stored=1.0,
    step_stored=1.0,
    message_stored=1.0,
)


def test_the_formulas_grow_with_the_load() -> None:
    found = size(EXAMPLE, EXAMPLE_PRICES, ONE)
    per_day = 1_000_000 * 5
    assert found.messages_per_second == pytest.approx(per_day / 86_400 * 3)
    assert found.worker_cores == pytest.approx(found.messages_per_second * (0.04 + 2 * 0.01) / 0.6)
    milliseconds = {role: ONE.message_ms[role] + 2 * 10 for role in ("frontend", "history", "matching", "PostgreSQL")}
    cores = {role: found.messages_per_second * each / 1_000 / 0.6 for role, each in milliseconds.items()}
    assert found.cores == pytest.approx(cores)
    assert found.log_megabytes_per_second == pytest.approx(found.messages_per_second * (3 + 2 * 1) / 1e6)
    assert found.shards == 2_048, "1,041.7 commits a second, one for a shard, and a power of two"
    assert found.requests_per_day["PUT"] == per_day * 3
    assert found.dollars_per_day == pytest.approx(per_day * 3 * (0.005 + 0.005 + 0.0004 + 0.0004) / 1_000)
    assert found.open_gb == pytest.approx(0.001)
    assert found.closed_gb == pytest.approx(per_day * 7 * 3 / 1e9)


def test_a_section_is_written_between_its_marks_and_a_page_without_them_is_refused() -> None:
    begin, end = marks("idle")
    page = f"before\n{begin}\nold\n{end}\nafter\n"
    assert written(page, {"idle": "new"}) == f"before\n{begin}\n\nnew\n\n{end}\nafter\n"
    with pytest.raises(ValueError, match="no place for 'crowd'"):
        written(page, {"crowd": "new"})


def test_a_table_has_a_row_for_each_line() -> None:
    assert table(("a", "b"), [("c", "1")]) == "| a | b |\n|---|---:|\n| c | 1 |"


def test_the_page_says_what_was_measured() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert written(page, sections(Measured.read())) == page, "write it with `python -m bench.scale --parts '' --write`"


def test_a_load_of_ones_own_is_calculated_as_the_example_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert estimate.main([]) == 0
    assert capsys.readouterr().out.strip() in PAGE.read_text(encoding="utf-8")
    assert estimate.main(["--sessions", "200000", "--messages-per-day", "2", "--steps", "4", "--peak", "5"]) == 0
    told = capsys.readouterr().out
    assert "| 200,000 sessions | calculated |" in told
    assert "| messages a second at the peak | 23 |" in told


@pytest.mark.parametrize(
    ("option", "text", "why"),
    [
        ("--busy", "60", "'60' is not a number from 0.01 to 1"),
        ("--steps", "0", "'0' is not a number from 1 to 1e+09"),
        ("--sessions", "none", "'none' is not a number from 1 to 1e+09"),
        ("--sessions", "1.9", "1.9 is not a whole number"),
        ("--peak", "nan", "'nan' is not a number from 1 to 1e+09"),
    ],
)
def test_a_load_that_cannot_be_is_refused(option: str, text: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        estimate.main([option, text])
    assert ended.value.code == 2
    assert f"argument {option}: {why}" in capsys.readouterr().err
