"""Keeps what a query does to a worker out of a run's history. Knows nothing of agents.

A query can bring a worker to a state, or to an order of ends, that no replay of the history comes to: its next commands
would differ from those of every replay, and the run could never be taken up again. The task that would write them is
failed, before anything of it is written; the server gives it again at once, and the worker begins with the whole
history. There are two ways (SDK core 1.35; `tests/workflows/test_query_guard.py` shows both with bare workflows):

* A worker that is asked a query about a run it does not hold takes the run up to the end of its history: also beyond
  the last workflow task, to what that task's successor is still to be told. What the workflow does there is kept, and
  goes out with the next task. When that one brings an update or a signal besides, the commands are in another order
  than in any replay, which is told of everything at once.
* A query that comes with a workflow task ends that task as soon as it is answered, and does not wait for the local
  activities that the task has begun. One that ends meanwhile is recorded with that task, and told with the next one's
  news, behind it; a replay tells of it before, and what follows comes in another order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.worker import WorkflowInstance

TAKEN_UP_ANEW: Final = "a query came between this run and its history; the task is taken up anew, nothing is lost"


class QueryInterfered(Exception):
    """Fails a workflow task whose commands would be those of no replay."""


class QueryGuard:
    """A workflow's instance; in all but `activate` it is the one that it was made of."""

    def __init__(self, instance: WorkflowInstance, on_eviction: Callable[[], None] | None = None) -> None:
        self._instance = instance
        self._on_eviction = on_eviction
        self._time = self._length = 0
        self._ahead = False
        self._local: dict[int, int] = {}
        """The local activities under way, each with the length of the history in the task that has begun it."""
        self._asked_meanwhile = False

    @classmethod
    def of(cls, instance: WorkflowInstance, on_eviction: Callable[[], None] | None = None) -> WorkflowInstance:
        """Return the instance, guarded; `on_eviction` is called when it leaves the worker's cache."""
        return cast("WorkflowInstance", cls(instance, on_eviction))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # whatever the SDK asks of an instance
        return getattr(self._instance, name)

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        """Let the workflow take in what has happened, unless a query has come between it and its history."""
        if any(job.HasField("remove_from_cache") for job in act.jobs):
            if self._on_eviction is not None:
                self._on_eviction()
            return self._instance.activate(act)
        if any(job.HasField("query_workflow") for job in act.jobs):
            self._asked_meanwhile = bool(self._local)
            return self._instance.activate(act)
        if self._ahead or self._ended_late(act):
            raise QueryInterfered(TAKEN_UP_ANEW)
        # A task's time is that of its beginning. What is taken in after the last task has no task of its own: it has
        # that one's time, and more history.
        time, length = act.timestamp.ToNanoseconds(), act.history_length
        self._ahead = not act.is_replaying and time == self._time and length > self._length > 0
        self._time, self._length = time, length
        completion = self._instance.activate(act)
        self._note_local(act, completion)
        return completion

    def _ended_late(self, act: WorkflowActivation) -> bool:
        """Return whether a local activity's end is told in a later task, beside other news, with a query in between.

        Told alone it comes where a replay tells it, too.
        """
        late = (self._local.get(seq, act.history_length) != act.history_length for seq in _local_ends(act))
        return self._asked_meanwhile and len(act.jobs) > 1 and any(late)

    def _note_local(self, act: WorkflowActivation, completion: WorkflowActivationCompletion) -> None:
        for seq in _local_ends(act):
            self._local.pop(seq, None)
        for command in completion.successful.commands:
            if command.HasField("schedule_local_activity"):
                self._local[command.schedule_local_activity.seq] = act.history_length
        self._asked_meanwhile = self._asked_meanwhile and bool(self._local)


def _local_ends(act: WorkflowActivation) -> list[int]:
    return [
        job.resolve_activity.seq
        for job in act.jobs
        if job.HasField("resolve_activity") and job.resolve_activity.is_local
    ]
