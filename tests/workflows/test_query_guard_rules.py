"""Which activations the guard answers itself: hand-made ones, told to an instance that begins what it is told to."""

from __future__ import annotations

from typing import Any, cast

import pytest
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.worker import WorkflowInstance

from workflows.query_guard import STARTED_OVER, QueryGuard


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
    """A guarded run whose history grows as told."""

    def __init__(self) -> None:
        self.instance = Instance()
        self.evicted: list[bool] = []
        self.guard = QueryGuard.of(cast("WorkflowInstance", self.instance), lambda: self.evicted.append(True))

    def told(self, length: int, *ends: int, begins: tuple[int, ...] = (), signals: int = 0) -> bool:
        """Tell of the ends of local activities and of signals in a task; return whether the task goes on."""
        self.instance.beginning = begins
        act = WorkflowActivation(run_id="run", history_length=length)
        act.timestamp.FromNanoseconds(length)
        for seq in ends:
            job = act.jobs.add().resolve_activity
            job.seq, job.is_local = seq, True
        for _ in range(signals):
            act.jobs.add().signal_workflow.signal_name = "message"
        return self._goes_on(act)

    def asked(self, length: int) -> bool:
        """Ask a query."""
        act = WorkflowActivation(run_id="run", history_length=length, is_replaying=True)
        act.jobs.add().query_workflow.query_type = "state"
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
