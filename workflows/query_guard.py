"""`QueryGuard`: keeps the effects of queries on a worker out of a run's history. Knows nothing of agents.

A query can bring a worker to a state that no replay of the history reaches. The next commands would differ from a
replay's, and no worker could ever take the run up again. So the task that would write them is failed, and starts over
with the whole history. There are two ways (SDK core 1.35; `tests/workflows/test_query_guard.py` shows both with bare
workflows):

* A worker that gets a query about a run that it does not hold replays the run to the end of its history: also beyond
  the last workflow task, to events that belong to the next task. The workflow's commands there are kept, and go out
  with the next task. If that one brings an update or a signal besides, the commands are in another order than in any
  replay, which gets everything at once.
* A query that comes with a workflow task ends that task as soon as it is answered, and does not wait for the local
  activities of the task. The marker of one that ends meanwhile is written with that task; the workflow learns its end
  with the next one, at another time and after other events. A replay goes by the marker.

A task's first failure is reported, and the server gives it again at once; after a further one in a row it waits for the
task's timeout, 10 s. Local activities whose markers are not written yet run again, as after a crash.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, cast

from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.worker import WorkflowInstance

STARTED_OVER: Final = "a query made this task's commands differ from a replay's; the task starts over"
LOGGER: Final = logging.getLogger(__name__)


class QueryGuard:
    """Wraps a workflow's instance, and changes nothing but `activate`."""

    def __init__(self, instance: WorkflowInstance, on_eviction: Callable[[], None] | None = None) -> None:
        self._instance = instance
        self._on_eviction = on_eviction
        self._time = self._length = 0
        self._ahead = False
        self._local: dict[int, int] = {}
        """The local activities under way, each with the length of the history in the task that began it."""
        self._queried_during = frozenset[int]()
        """Those under way at the time of the last query."""

    @classmethod
    def of(cls, instance: WorkflowInstance, on_eviction: Callable[[], None] | None = None) -> WorkflowInstance:
        """Return the instance, guarded; `on_eviction` is called when it leaves the worker's cache."""
        return cast("WorkflowInstance", cls(instance, on_eviction))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # whatever the SDK asks of an instance
        return getattr(self._instance, name)

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        """Pass the activation to the workflow, unless a query has put it out of step with its history."""
        # an eviction writes no commands, so nothing can differ from a replay
        if any(job.HasField("remove_from_cache") for job in act.jobs):
            if self._on_eviction is not None:
                self._on_eviction()
            return self._instance.activate(act)
        # the SDK delivers queries in an activation of their own
        if any(job.HasField("query_workflow") for job in act.jobs):
            self._queried_during = frozenset(self._local)
            return self._instance.activate(act)
        if self._ahead or self._ended_late(act):
            return _started_over(act)
        # A task's time is that of its beginning, and only goes forward. An activation after the last task has no task
        # of its own: it has that one's time, and more history.
        time, length = act.timestamp.ToNanoseconds(), act.history_length
        self._ahead = not act.is_replaying and time == self._time and length > self._length > 0
        self._time, self._length = time, length
        completion = self._instance.activate(act)
        self._note_local(act, completion)
        return completion

    def _ended_late(self, act: WorkflowActivation) -> bool:
        """Return whether a local activity's end arrives in a later task, with a query in between."""
        ends = self._queried_during.intersection(_local_ends(act))
        return any(self._local.get(seq) != act.history_length for seq in ends)

    def _note_local(self, act: WorkflowActivation, completion: WorkflowActivationCompletion) -> None:
        for seq in _local_ends(act):
            self._local.pop(seq, None)
        for command in completion.successful.commands:
            if command.HasField("schedule_local_activity"):
                self._local[command.schedule_local_activity.seq] = act.history_length


def _started_over(act: WorkflowActivation) -> WorkflowActivationCompletion:
    """Return the answer that fails the task; raising would have the SDK log a traceback."""
    LOGGER.info("run %s: %s", act.run_id, STARTED_OVER)
    completion = WorkflowActivationCompletion(run_id=act.run_id)
    completion.failed.failure.message = STARTED_OVER
    completion.failed.failure.application_failure_info.SetInParent()
    return completion


def _local_ends(act: WorkflowActivation) -> list[int]:
    return [
        job.resolve_activity.seq
        for job in act.jobs
        if job.HasField("resolve_activity") and job.resolve_activity.is_local
    ]
