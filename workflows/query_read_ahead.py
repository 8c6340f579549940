"""Keeps what a query has read ahead out of a run's history. Knows nothing of agents.

A query can make a worker run ahead of the history, so that its commands would differ from those of a replay. Such a
task is failed, before anything of it is written, and begins anew.

A worker that is asked a query about a run it does not hold takes the run up to the end of its history: also beyond the
last workflow task, to what that task's successor is still to be told. What the workflow does there is kept, and goes
out with the next task. When that one brings an update or a signal besides, the commands are in another order than in
any replay, which is told of everything at once (SDK core 1.35; `tests/workflows/test_query_read_ahead.py` shows it
with a bare workflow): the run could never be taken up again. So the task is failed before anything of it is written;
the server gives it again at once, and the worker begins with the whole history.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.worker import WorkflowInstance

READ_AHEAD: Final = "a query read this run ahead of its history; the task is taken up anew, nothing is lost"


class ReadAhead(Exception):
    """Fails a workflow task that would go on from a state which only a query was to see."""


class OrderedInstance:
    """A workflow's instance; in all but `activate` it is the one that it was made of."""

    def __init__(self, instance: WorkflowInstance, on_eviction: Callable[[], None] | None = None) -> None:
        self._instance = instance
        self._on_eviction = on_eviction
        self._time = self._length = 0
        self._ahead = False

    @classmethod
    def of(cls, instance: WorkflowInstance, on_eviction: Callable[[], None] | None = None) -> WorkflowInstance:
        """Return the instance, guarded; `on_eviction` is called when it leaves the worker's cache."""
        return cast("WorkflowInstance", cls(instance, on_eviction))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # whatever the SDK asks of an instance
        return getattr(self._instance, name)

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        """Let the workflow take in what has happened, unless a query has led it further than its history goes.

        A task's time is that of its beginning. What is taken in after the last task has no task of its own: it has
        that one's time, and more history.
        """
        if any(job.HasField("remove_from_cache") for job in act.jobs):
            if self._on_eviction is not None:
                self._on_eviction()
            return self._instance.activate(act)
        if any(job.HasField("query_workflow") for job in act.jobs):
            return self._instance.activate(act)
        if self._ahead:
            raise ReadAhead(READ_AHEAD)
        time, length = act.timestamp.ToNanoseconds(), act.history_length
        self._ahead = not act.is_replaying and time == self._time and length > self._length > 0
        self._time, self._length = time, length
        return self._instance.activate(act)
