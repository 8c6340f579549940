"""Which activations the guard answers itself: hand-made ones, told to an instance that begins what it is told to."""

from __future__ import annotations

from typing import Any, cast

import pytest
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.worker import WorkflowInstance

from workflows.replay_guard import (
    DIRECT_QUERY,
    DOUBLINGS_MAX,
    EVICTIONS_MAX,
    OLD_TIMES_MAX,
    REFUSALS_MAX,
    RUNS_MAX,
    STARTED_OVER,
    TIMES_MAX,
    TOO_OFTEN,
    Doubt,
    ReplayGuard,
    TaskMemory,
)


class Instance:
    """Begins the local activities `beginning` in its next activation."""

    def __init__(self) -> None:
        self.beginning: tuple[int, ...] = ()
        self.activations = 0

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        self.activations += 1
        completion = WorkflowActivationCompletion(run_id=act.run_id)
        completion.successful.SetInParent()
        for seq in self.beginning:
            completion.successful.commands.add().schedule_local_activity.seq = seq
        self.beginning = ()
        return completion


class Run:
    """A guarded run whose history grows as told; `evicted_and_back` on the same worker, or another one."""

    def __init__(self) -> None:
        self.memory = TaskMemory()
        self.evicted: list[bool] = []
        self.given_up: list[str] = []
        self.doubts: list[Doubt] = []
        self.evicted_and_back()

    def evicted_and_back(self, *, elsewhere: bool = False) -> None:
        """Begin anew with an instance that knows nothing."""
        self.instance = Instance()
        instance = cast("WorkflowInstance", self.instance)
        memory = TaskMemory() if elsewhere else self.memory
        memory.give_up, memory.look_up = self.given_up.append, self.doubts.append
        self.guard = ReplayGuard.of(instance, memory, "workflow", "run", lambda: self.evicted.append(True))

    def told(
        self,
        length: int,
        *ends: int,
        begins: tuple[int, ...] = (),
        signals: int = 0,
        updates: int = 0,
        at: int | None = None,
        replaying: bool = False,
    ) -> bool:
        """Tell of the ends of local activities, signals and updates in a task; return whether the task goes on.

        Its time is `at`, by default its own.
        """
        self.instance.beginning = begins
        act = WorkflowActivation(run_id="run", history_length=length, is_replaying=replaying)
        act.timestamp.FromNanoseconds(length if at is None else at)
        for seq in ends:
            job = act.jobs.add().resolve_activity
            job.seq, job.is_local = seq, True
        for _ in range(signals):
            act.jobs.add().signal_workflow.signal_name = "message"
        for _ in range(updates):
            act.jobs.add().do_update.name = "approval"
        return self._goes_on(act)

    def asked(self, length: int, *, with_task: bool = False) -> bool:
        """Ask a query, which comes by itself or `with_task`."""
        act = WorkflowActivation(run_id="run", history_length=length, is_replaying=True)
        job = act.jobs.add().query_workflow
        job.query_type, job.query_id = "state", "0" if with_task else DIRECT_QUERY
        return self._goes_on(act)

    def _goes_on(self, act: WorkflowActivation) -> bool:
        before = self.instance.activations
        completion = self.guard.activate(act)
        if completion.WhichOneof("status") == "failed":
            assert completion.failed.failure.message == STARTED_OVER
            assert self.instance.activations == before, "the workflow has not seen it"
            return False
        return True


def test_an_end_in_a_later_task_with_a_query_in_between_starts_it_over() -> None:
    run = Run()
    assert run.told(3, begins=(1,))
    assert run.asked(3)
    assert not run.told(8, 1)


@pytest.mark.parametrize("signals", [0, 1])
def test_beside_other_news_or_alone(signals: int) -> None:
    run = Run()
    assert run.told(3, begins=(1,))
    assert run.asked(3)
    assert run.told(8, signals=1), "news alone change nothing"
    assert not run.told(8, 1, signals=signals)


def test_without_a_query_an_end_may_come_in_a_later_task() -> None:
    run = Run()
    assert run.told(3, begins=(1,))
    assert run.told(8, 1), "the SDK gives a long one further tasks"


def test_an_end_in_its_own_task_goes_on() -> None:
    run = Run()
    assert run.told(3, begins=(1,))
    assert run.told(3, 1, begins=(2,))
    assert run.told(3, 2)
    assert run.asked(3)
    assert run.told(8, begins=(3,))
    assert run.told(8, 3), "the query came when none was under way"


def test_a_query_is_nothing_to_what_began_after_it() -> None:
    run = Run()
    assert run.told(3, begins=(1, 2))
    assert run.asked(3)
    assert run.told(3, 1)
    assert run.told(3, 2, begins=(3,))
    assert run.told(8, 3)


def test_an_eviction_is_told_and_always_goes_through() -> None:
    run = Run()
    assert run.told(3, begins=(1,))
    assert run.asked(3)
    act: Any = WorkflowActivation(run_id="run")
    act.jobs.add().remove_from_cache.SetInParent()
    run.guard.activate(act)
    assert run.evicted == [True]
    assert [each.is_idle() for each in run.doubts] == [False], "what has left the cache is not looked up"


def test_what_a_query_has_read_beyond_the_last_task_starts_the_next_one_over() -> None:
    run = Run()
    assert run.told(3, signals=1, replaying=True)
    assert run.told(6, signals=1, at=3), "the query sees it"
    assert run.asked(6)
    assert not run.told(15, updates=1)


@pytest.mark.parametrize("signals", [0, 1])
def test_so_it_does_where_the_last_task_has_failed(signals: int) -> None:
    """The time beyond it is then the failed one's, which no replay has shown."""
    run = Run()
    assert run.told(3, begins=(1,))
    assert run.asked(3)
    assert not run.told(8, 1, signals=signals), "this task fails"
    run.evicted_and_back()
    assert run.told(3, signals=1, replaying=True)
    assert run.told(12, signals=1, at=8), "the query sees it"
    assert run.asked(12)
    assert not run.told(21, updates=1)


def test_so_it_does_where_the_first_task_has_failed() -> None:
    run = Run()
    assert run.told(3, begins=(1,))
    assert run.asked(3)
    assert not run.told(8, 1, signals=1)
    run.evicted_and_back()
    assert run.told(10, signals=1, at=8)
    assert not run.told(21, updates=1)


def test_a_task_that_failed_on_another_worker_shows_by_the_next_one_that_begins_too_soon() -> None:
    run = Run()
    run.evicted_and_back(elsewhere=True)
    assert run.told(3, signals=1, replaying=True)
    assert run.told(9, signals=1, at=6), "beyond a task that failed at 6"
    assert run.asked(9)
    assert not run.told(11, updates=1), "a task at 9 would have left 10 (completed), 11 (scheduled) and 12 (started)"


def test_tasks_in_a_row_go_on() -> None:
    run = Run()
    assert run.told(3, signals=1)
    assert run.told(6, signals=1)
    assert run.asked(6)
    assert run.told(9, updates=1, signals=1)
    assert run.told(12, updates=1)


def test_the_task_of_a_refused_update_leaves_no_events() -> None:
    run = Run()
    assert run.told(3, signals=1)
    assert run.told(7, updates=1, at=20), "refused: its two events are taken back"
    assert run.told(8, signals=1, at=30)


def test_a_task_after_an_eviction_goes_on() -> None:
    run = Run()
    assert run.told(3, signals=1)
    assert run.told(6, signals=1)
    run.evicted_and_back()
    assert run.told(3, signals=1, replaying=True)
    assert run.told(6, signals=1, replaying=True)
    assert run.told(9, signals=1)


def test_a_task_that_the_worker_gets_twice_goes_on() -> None:
    """As after a refusal that was too large to be sent: the server does not know the task's completion."""
    run = Run()
    assert run.told(3, signals=1)
    assert run.told(7, updates=1)
    run.evicted_and_back()
    assert run.told(3, signals=1, replaying=True)
    assert run.told(7, updates=1)
    assert run.told(15, signals=1)


def test_a_worker_forgets_the_run_that_came_longest_ago() -> None:
    memory = TaskMemory()
    memory.of("first").began(1, 3)
    memory.of("second").began(2, 3)
    assert memory.of("first").times == (1,), "it is the latest now"
    for number in range(RUNS_MAX - 1):
        memory.of(f"run {number}")
    assert memory.of("first").times == (1,)
    assert memory.of("second").times == ()


def test_of_a_run_the_latest_tasks_are_remembered() -> None:
    tasks = TaskMemory().of("run")
    for number in range(TIMES_MAX + 1):
        tasks.began(number, number)
    assert tasks.times == tuple(range(1, TIMES_MAX + 1))


def test_a_watched_run_gets_on_though_it_is_asked_before_each_attempt_at_its_task() -> None:
    run = Run()
    assert run.told(3, signals=1, replaying=True)
    assert run.told(9, signals=1, at=6), "beyond a task that failed on another worker"
    assert run.asked(9)
    assert run.given_up == [], "nothing has started over yet"
    assert not run.told(11, updates=1)
    run.evicted_and_back()
    assert run.told(3, signals=1, replaying=True)
    assert run.told(11, signals=1, at=6)
    assert run.asked(11)
    assert run.given_up == ["run"], "the next attempt comes with the whole history"
    run.evicted_and_back()
    assert run.told(3, signals=1, replaying=True)
    assert run.told(11, signals=1, updates=1)


def test_a_run_is_given_up_so_often_and_no_more() -> None:
    run = Run()
    assert run.told(3, begins=(1,))
    assert run.asked(3)
    assert not run.told(8, 1, signals=1)
    for _ in range(EVICTIONS_MAX + 1):
        run.evicted_and_back()
        assert run.told(3, signals=1, replaying=True)
        assert run.asked(3)
    assert len(run.given_up) == EVICTIONS_MAX


def test_a_run_that_goes_on_here_is_kept() -> None:
    run = Run()
    assert run.told(3, begins=(1,))
    assert run.asked(3)
    assert not run.told(8, 1, signals=1)
    run.evicted_and_back()
    assert run.told(8, signals=1)
    assert run.told(14, signals=1)
    assert run.asked(14)
    assert run.given_up == []


def test_a_servers_clock_that_stands_does_not_hold_a_run_up_for_ever() -> None:
    run = Run()
    assert run.told(3, signals=1)
    passed: list[bool] = []
    for attempt in range(OLD_TIMES_MAX + 1):
        run.evicted_and_back()
        assert run.told(3, signals=1, replaying=True)
        assert run.told(8 + 3 * attempt, begins=(attempt,), signals=1, at=3), "a task as any other, at an old time"
        passed.append(run.told(8 + 3 * attempt, attempt, at=3))
    assert passed == [False] * OLD_TIMES_MAX + [True]
    assert run.told(30, signals=1)


@pytest.mark.parametrize(("refusals", "doublings"), [(1, 0), (2, 1), (4, 3), (DOUBLINGS_MAX + 5, DOUBLINGS_MAX)])
def test_each_start_in_a_row_doubles_how_many_queries_it_takes_for_another(refusals: int, doublings: int) -> None:
    run = Run()
    for number in range(refusals):
        begin_too_near(run, 9 + 5 * number)
    assert run.memory.of("run").evictions_left == EVICTIONS_MAX * 2**doublings


def begin_too_near(run: Run, length: int) -> None:
    """Have a task refused that begins too soon after what a query has read, beyond a task of another worker."""
    run.evicted_and_back()
    assert run.told(3, signals=1, replaying=True)
    assert run.told(length, signals=1, at=6)
    assert not run.told(length + 2, updates=1)


def test_a_run_whose_task_starts_over_again_and_again_is_told_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    run = Run()
    for number in range(REFUSALS_MAX):
        assert not caplog.records
        begin_too_near(run, 9 + 5 * number)
    assert [each.getMessage() for each in caplog.records] == [TOO_OFTEN % ("run", REFUSALS_MAX)]


def test_a_recorded_task_ends_the_row_of_those_that_started_over(caplog: pytest.LogCaptureFixture) -> None:
    run = Run()
    for number in range(2 * REFUSALS_MAX):
        begin_too_near(run, 9 + 10 * number)
        run.evicted_and_back()
        assert run.told(3, signals=1, replaying=True)
        assert run.told(14 + 10 * number, signals=1)
        assert run.told(17 + 10 * number, signals=1), "the task before this one is recorded"
    assert not caplog.records


def test_a_run_that_a_query_has_visibly_brought_beyond_its_last_task_is_given_up() -> None:
    run = Run()
    assert run.told(3, signals=1, replaying=True)
    assert run.asked(3)
    assert run.given_up == []
    run.evicted_and_back()
    assert run.told(3, signals=1, replaying=True)
    assert run.told(6, signals=1, at=3), "the query sees it"
    assert run.asked(6)
    assert run.given_up == ["run"], "the next task comes with the whole history"
    run.evicted_and_back()
    assert run.told(3, signals=1, replaying=True)
    assert run.told(7, signals=1)
    assert run.asked(7)
    assert run.given_up == ["run"]


def test_a_run_whose_latest_task_may_be_what_a_query_has_read_is_looked_up_once() -> None:
    run = Run()
    assert run.told(3, signals=1, replaying=True)
    assert run.told(15, signals=1), "a task of the worker's own, or one that was lost and that a query reads"
    assert run.asked(15)
    assert run.asked(15)
    [doubt] = run.doubts
    assert (doubt.workflow_id, doubt.run_id, doubt.started_id) == ("workflow", "run", 15)
    assert doubt.is_idle()
    assert run.told(19, signals=1), "here, too: a query may come with the whole history of a run that is held"
    assert not doubt.is_idle()
    assert run.asked(19)
    assert run.asked(19)
    [_, later] = run.doubts
    assert later.started_id == 19
    assert later.is_idle()
    run.evicted_and_back()
    assert run.given_up == []


def test_a_run_in_the_cache_no_more_is_of_no_interest() -> None:
    run = Run()
    assert run.told(3, signals=1)
    assert run.asked(3)
    act = WorkflowActivation(run_id="run")
    act.jobs.add().remove_from_cache.message = "full"
    run.guard.activate(act)
    [doubt] = run.doubts
    assert not doubt.is_idle()


def test_a_run_whose_tasks_are_all_recorded_or_that_was_asked_with_one_is_not_looked_up() -> None:
    run = Run()
    assert run.told(3, signals=1, replaying=True)
    assert run.asked(3), "nothing beyond its last task"
    assert run.told(7, signals=1)
    assert run.asked(7, with_task=True), "a query that came with the task"
    assert run.doubts == []


def test_an_update_comes_with_a_task_of_the_workers_own_and_is_not_looked_up() -> None:
    run = Run()
    assert run.told(3, signals=1, replaying=True)
    assert run.told(8, updates=1)
    assert run.asked(8), "the server knows nothing of the task of a refused update"
    assert run.told(8, updates=1, at=9)
    assert run.asked(8)
    assert run.doubts == []
    assert run.told(12, signals=1)
    assert run.asked(12)
    assert [each.started_id for each in run.doubts] == [12]
