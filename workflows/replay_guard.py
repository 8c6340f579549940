"""`ReplayGuard`: keeps the effects of queries on a worker out of a run's history. Knows nothing of agents.

A query can bring a worker to a state that no replay of the history reaches. The next commands would differ from a
replay's, and no worker could ever take the run up again. So the task that would write them is failed, and starts over
with the whole history. There are two ways (SDK core 1.35; `tests/workflows/test_replay_guard.py` shows both with bare
workflows):

* A worker that gets a query about a run that it does not hold replays the run to the end of its history: also beyond
  the last workflow task, to events that belong to the next task. The workflow's commands there are kept, and go out
  with the next task. If that one brings an update or a signal besides, the commands are in another order than in any
  replay, which gets everything at once. The worker does not say that it has gone beyond; it shows by the time, which is
  that of an earlier task, or by the next task, which begins too few events later.
* A query that comes with a workflow task ends that task as soon as it is answered, and does not wait for the local
  activities of the task. The marker of one that ends meanwhile is written with that task; the workflow learns its end
  with the next one, at another time and after other events. A replay goes by the marker. (What a replay then does at
  once must not be the answer to an update: `workflows.shielding.locally`.)

A run that has visibly gone beyond its last task is given up after the query. Else a next task that brings nothing more
would end without an activation: with the commands of a replay, but the run would keep the moments of an earlier task.

It does not show where the history that was read ends with the start of a task that is lost then, as when the server
dies before a worker has it: what was read looks like that task. A worker reads it also where it holds the run already:
a server that has just started sends queries with the whole history, and the worker goes on from what it has. So a run
that gets a query without a task, and has had no task since (DOUBT_SECONDS), is looked up, once per task: if that is not
recorded as completed, the run is given up.

A task's first failure is reported, and the server gives it again at once; after a further one in a row it waits for the
task's timeout, 10 s. Local activities whose markers are not written yet run again, as after a crash. A run that is
watched may be asked something before each of these attempts, and would never get on. So for a while after a failure
(EVICTIONS_MAX) the worker gives up a run that it has read for a query: the next attempt comes with the whole history.
A task that comes with the whole history goes on. So to start over once more, it takes more queries than that before the
next attempt; and each further start in a row, until a task is recorded, doubles their number (DOUBLINGS_MAX).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, cast

from temporalio.bridge.proto.workflow_activation import WorkflowActivation, WorkflowActivationJob
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.worker import WorkflowInstance

STARTED_OVER: Final = "a query made this task's commands differ from a replay's; the task starts over"
TOO_OFTEN: Final = "run %s: its task has started over %d times in a row after queries; ask it less often"
LOGGER: Final = logging.getLogger(__name__)

TASK_EVENTS: Final = 3
"""From one task's start to the next's there are at least so many events: completed, scheduled, started."""

TIMES_MAX: Final = 8
"""How many tasks of a run are remembered: those that failed since its last completed one are few."""

RUNS_MAX: Final = 20_000
"""Of how many runs a worker remembers them, half a kilobyte each."""


OLD_TIMES_MAX: Final = 3
"""How often in a row a run's task starts over because its time is an earlier one's; then the server's clock stands."""


EVICTIONS_MAX: Final = 100
"""How often, at most, a query has a run given up after one of its tasks has started over once."""

DOUBLINGS_MAX: Final = 10
"""How often that number doubles as a run's task starts over in a row: to 10,000 queries a second between attempts."""

REFUSALS_MAX: Final = 5
"""After how many starts in a row of one run's task the log warns: the attempts are 10 s apart, so it is held up."""


DOUBT_SECONDS: Final = 1.0
"""How long after a query without a task the run is looked up, if no task has come since.

A task that is under way then has long ended on this worker. A lost one is given again after its timeout alone, 10 s.
"""

DIRECT_QUERY: Final = "legacy_query"
"""The id of a query that came by itself (SDK core 1.35); one that came with a task has another."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """A run whose latest task on this worker the server may never have recorded: a query may have read its start."""

    workflow_id: str
    run_id: str
    started_id: int
    """The event with which that task began."""
    is_idle: Callable[[], bool]
    """Whether no task has come since; then it can still be given up in time."""


class RunTasks:
    """A run's latest tasks on this worker."""

    def __init__(self) -> None:
        self.evictions_left = 0
        """After how many further queries the run is given up."""
        self.old_times = 0
        """How many in a row have started over because of an old time."""
        self.refusals = 0
        """How many in a row have started over, for whatever reason."""
        self._refused_length = 0
        self._lengths: dict[int, int] = {}

    @property
    def times(self) -> tuple[int, ...]:
        """When they began, in nanoseconds."""
        return tuple(self._lengths)

    def refuse(self, length: int) -> None:
        """Note that a task with so much history starts over."""
        self.evictions_left = EVICTIONS_MAX << min(self.refusals, DOUBLINGS_MAX)
        self.refusals += 1
        self._refused_length = length

    def recorded(self, length: int) -> None:
        """Note that a task with so much history is recorded; one beyond the last that started over ends their row."""
        if length > self._refused_length:
            self.refusals = 0

    def began(self, time: int, length: int) -> None:
        """Remember a task, with the length of its history."""
        self._lengths.setdefault(time, length)
        if len(self._lengths) > TIMES_MAX:
            del self._lengths[next(iter(self._lengths))]

    def is_beyond(self, time: int, length: int) -> bool:
        """Return whether a task that began at `time` had less history; one that a worker gets twice has the same."""
        return self._lengths.get(time, length) < length


class TaskMemory:
    """What a worker remembers of each run's latest tasks, beyond the run's stay in its cache."""

    def __init__(self) -> None:
        self._runs: dict[str, RunTasks] = {}
        self.give_up: Callable[[str], None] | None = None
        """Has the worker remove a run from its cache; set once there is a worker."""
        self.look_up: Callable[[Doubt], None] | None = None
        """Has the worker look up, later, whether a run's task is recorded, and else give the run up."""

    def of(self, run_id: str) -> RunTasks:
        """Return a run's tasks; the run that came into the cache longest ago is forgotten when there are too many."""
        tasks = self._runs.pop(run_id, None)
        self._runs[run_id] = tasks = RunTasks() if tasks is None else tasks
        if len(self._runs) > RUNS_MAX:
            del self._runs[next(iter(self._runs))]
        return tasks


class ReplayGuard:
    """Wraps a workflow's instance, and changes nothing but `activate`."""

    def __init__(
        self,
        instance: WorkflowInstance,
        memory: TaskMemory,
        workflow_id: str,
        run_id: str,
        on_eviction: Callable[[], None] | None,
    ) -> None:
        self._instance = instance
        self._memory = memory
        self._workflow_id, self._run_id = workflow_id, run_id
        self._tasks = memory.of(run_id)
        self._on_eviction = on_eviction
        self._time = self._length = self._live_length = 0
        self._live = 0
        """How many activations were no replay: one at most where the run came into the cache for a query."""
        self._settled = 0
        """Up to this one none needs a look-up: it was looked up, or brought an update, which only a task does."""
        self._ahead = False
        self._local: dict[int, int] = {}
        """The local activities under way, each with the length of the history in the task that began it."""
        self._queried_during = frozenset[int]()
        """Those under way at the time of the last query."""

    @classmethod
    def of(
        cls,
        instance: WorkflowInstance,
        memory: TaskMemory,
        workflow_id: str,
        run_id: str,
        on_eviction: Callable[[], None] | None = None,
    ) -> WorkflowInstance:
        """Return the instance, guarded; `on_eviction` is called when it leaves the worker's cache.

        `memory` is the worker's.
        """
        return cast("WorkflowInstance", cls(instance, memory, workflow_id, run_id, on_eviction))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # whatever the SDK asks of an instance
        return getattr(self._instance, name)

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        """Pass the activation to the workflow, unless a query has put it out of step with its history."""
        # an eviction writes no commands, so nothing can differ from a replay
        if any(job.HasField("remove_from_cache") for job in act.jobs):
            self._live = 0  # no doubt about it is of interest any more
            if self._on_eviction is not None:
                self._on_eviction()
            return self._instance.activate(act)
        # the SDK delivers queries in an activation of their own
        if any(job.HasField("query_workflow") for job in act.jobs):
            self._queried_during = frozenset(self._local)
            answer = self._instance.activate(act)
            self._give_up_after_query(direct=any(job.query_workflow.query_id == DIRECT_QUERY for job in act.jobs))
            return answer
        self._live += not act.is_replaying
        if any(job.HasField("do_update") for job in act.jobs):
            self._settled = self._live
        if not self._is_in_step(act):
            self._tasks.refuse(act.history_length)
            if self._tasks.refusals % REFUSALS_MAX == 0:
                LOGGER.warning(TOO_OFTEN, act.run_id, self._tasks.refusals)
            return _started_over(act)
        completion = self._instance.activate(act)
        self._note_local(act, completion)
        return completion

    def _give_up_after_query(self, *, direct: bool) -> None:
        """Have the worker forget a run that a query has brought beyond its last task.

        Where that does not show, one of which a task has started over, if a query may have brought it here; others are
        looked up, where the query came without a task.
        """
        if self._memory.give_up is None:
            return
        if self._ahead:  # once per query that has read beyond
            self._memory.give_up(self._run_id)
        elif self._live <= 1 and self._tasks.evictions_left:
            self._tasks.evictions_left -= 1
            self._memory.give_up(self._run_id)
        elif direct and self._live != self._settled and self._memory.look_up is not None:
            self._settled = live = self._live
            self._memory.look_up(Doubt(self._workflow_id, self._run_id, self._length, lambda: self._live == live))

    def _is_in_step(self, act: WorkflowActivation) -> bool:
        """Return whether a replay would get this activation, and the one before it, in the same order and time."""
        tasks, ahead = self._tasks, self._ahead
        if ahead and tasks.old_times >= OLD_TIMES_MAX:
            LOGGER.warning("run %s: its tasks all have one time; does the server's clock stand?", act.run_id)
            ahead = False
        in_step = not (ahead or self._is_too_near(act) or self._ended_late(act))
        tasks.old_times += ahead
        # A task's time is that of its beginning, and only goes forward. An activation after the last task has no task
        # of its own: it has that one's time, also if that one failed, and more history.
        time, length = act.timestamp.ToNanoseconds(), act.history_length
        old, further = time == self._time or tasks.is_beyond(time, length), length > self._length
        self._ahead = not act.is_replaying and old and further
        self._time, self._length = time, length
        if act.is_replaying:
            tasks.recorded(length)
        else:
            if in_step and further:
                tasks.recorded(self._live_length)
            if further:  # within a task, ends of local activities move its time on
                tasks.began(time, length)
                tasks.old_times = tasks.old_times if old else 0
            if any(not job.HasField("do_update") for job in act.jobs):  # a refused update's task leaves no events
                self._live_length = length
        return in_step

    def _is_too_near(self, act: WorkflowActivation) -> bool:
        """Return whether the latest live activation cannot have been a task's, as this one follows it too closely."""
        return (
            not act.is_replaying and 0 < act.history_length - self._live_length < TASK_EVENTS and self._live_length > 0
        )

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


def _is_local_end(job: WorkflowActivationJob) -> bool:
    return job.HasField("resolve_activity") and job.resolve_activity.is_local


def _local_ends(act: WorkflowActivation) -> list[int]:
    return [job.resolve_activity.seq for job in act.jobs if _is_local_end(job)]
