"""All histories of a run or a session, followed from outside as they grow, whatever dies meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHistory
from temporalio.service import RPCError

from holdfast.client import Holdfast
from holdfast.core.agent.execution_state import model_step, named_id
from holdfast.core.wire.contracts import INFERENCE_ACTIVITY, MESSAGE_SIGNAL, STOP_SIGNAL
from holdfast.core.wire.workflow_ids import agent_in, kind_of

PAUSE_SECONDS: Final = 0.05
STARTED: Final = int(EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED)
SCHEDULED: Final = int(EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED)
COMPLETED: Final = int(EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED)
TASK_COMPLETED: Final = int(EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED)
SIGNALED: Final = int(EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED)
CHILD: Final = int(EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED)
CONTINUED: Final = int(EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW)


@dataclass(frozen=True, slots=True)
class Progress:
    """What the histories held at one moment: the events, the calls that had ended, the answers that agents had had."""

    at: float
    """`time.monotonic()`."""
    events: int
    ended_calls: frozenset[str]
    """The idempotency keys of the tool calls whose ends are recorded."""
    answers: Mapping[str, int]


@dataclass
class _Run:
    """One Temporal run of a workflow, as far as it was read."""

    agent: str = ""
    read: int = 0
    model_calls: set[int] = field(default_factory=set[int])
    tool_calls: dict[int, str] = field(default_factory=dict[int, str])
    has_new_answer: bool = False
    """Whether an answer is recorded, and no workflow task since that took it."""
    next_run: str | None = None


class Histories:
    """Follows a workflow and all that it starts."""

    def __init__(self, client: Holdfast) -> None:
        self._client = client
        self._events = 0
        self._read_events: dict[tuple[str, str], list[HistoryEvent]] = {}
        self._ended_calls: set[str] = set()
        self._answers: Counter[str] = Counter()
        self.scheduled_calls: dict[str, float] = {}
        """When each tool call was scheduled, by its idempotency key and the server's clock, which is this machine's."""
        self.stopped_early = False
        """Whether a stop was recorded between an answer and the workflow task that took it: signals are taken first."""
        self.has_message = asyncio.Event()
        """Set once a run has got a message that a session sends to the execution under way."""
        self.executions: list[str] = []
        """The ids of all runs that were seen, in the order in which they were started."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()

    @property
    def progress(self) -> Progress:
        """What was seen so far."""
        return Progress(time.monotonic(), self._events, frozenset(self._ended_calls), dict(self._answers))

    def follow(self, workflow_id: str) -> None:
        """Follow a workflow, which need not be there yet."""
        if workflow_id not in self._tasks:
            self._tasks[workflow_id] = asyncio.create_task(self._followed(workflow_id))

    async def reach(self, events: int) -> None:
        """Return once there are so many events."""
        while self._events < events:
            self._changed.clear()
            await self._changed.wait()

    async def end(self) -> None:
        """Return when everything has been read to its end."""
        while any(not task.done() for task in self._tasks.values()):
            await asyncio.gather(*self._tasks.values())

    def write(self, folder: Path, name: str) -> None:
        """Write each history as it was read into a file of its own, for a replay."""
        folder.mkdir(parents=True, exist_ok=True)
        for (workflow_id, run_id), events in self._read_events.items():
            history = WorkflowHistory(workflow_id, events)
            (folder / f"{name}-{workflow_id}-{run_id}.json").write_text(history.to_json(), encoding="utf-8")

    async def close(self) -> None:
        """Follow nothing any more."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _followed(self, workflow_id: str) -> None:
        run_id: str | None = None
        while run_id is None:
            try:
                described = await self._client.temporal.get_workflow_handle(workflow_id).describe()
            except RPCError:  # it is not there yet, or nobody answers
                await asyncio.sleep(PAUSE_SECONDS)
            else:
                run_id = described.raw_description.workflow_execution_info.first_run_id or described.run_id
        while run_id:
            run = _Run()
            while run.next_run is None:
                try:
                    await self._read(workflow_id, run_id, run)
                except RPCError:
                    await asyncio.sleep(PAUSE_SECONDS)
            run_id = run.next_run

    async def _read(self, workflow_id: str, run_id: str, run: _Run) -> None:
        handle = self._client.temporal.get_workflow_handle(workflow_id, run_id=run_id)
        next_run = ""
        async for event in handle.fetch_history_events(wait_new_event=True):
            if event.event_id > run.read:
                run.read = event.event_id
                self._read_events.setdefault((workflow_id, run_id), []).append(event)
                self._note(workflow_id, run, event)
            if event.event_type == CONTINUED:
                next_run = event.workflow_execution_continued_as_new_event_attributes.new_execution_run_id
        run.next_run = next_run

    def _note(self, workflow_id: str, run: _Run, event: HistoryEvent) -> None:
        self._events += 1
        if event.event_type == STARTED:
            workflow_type = event.workflow_execution_started_event_attributes.workflow_type.name
            run.agent = agent_in(workflow_type)
            if kind_of(workflow_type) == "run" and workflow_id not in self.executions:
                self.executions.append(workflow_id)
        elif event.event_type in (SCHEDULED, COMPLETED):
            self._note_call(workflow_id, run, event)
        elif event.event_type == TASK_COMPLETED:
            run.has_new_answer = False
        elif event.event_type == SIGNALED:
            signal = event.workflow_execution_signaled_event_attributes.signal_name
            self.stopped_early |= signal == STOP_SIGNAL and run.has_new_answer
            if signal == MESSAGE_SIGNAL:
                self.has_message.set()
        elif event.event_type == CHILD:
            self.follow(event.start_child_workflow_execution_initiated_event_attributes.workflow_id)
        self._changed.set()

    def _note_call(self, workflow_id: str, run: _Run, event: HistoryEvent) -> None:
        if event.event_type == SCHEDULED:
            call = event.activity_task_scheduled_event_attributes
            if call.activity_type.name == INFERENCE_ACTIVITY and model_step(call.activity_id) is not None:
                run.model_calls.add(event.event_id)
            elif call.activity_id.startswith("step-"):
                key = run.tool_calls[event.event_id] = named_id(workflow_id, call.activity_id)
                self.scheduled_calls[key] = event.event_time.ToNanoseconds() / 1e9
            return
        scheduled = event.activity_task_completed_event_attributes.scheduled_event_id
        if scheduled in run.model_calls:
            self._answers[run.agent] += 1
            run.has_new_answer = True
        elif scheduled in run.tool_calls:
            self._ended_calls.add(run.tool_calls[scheduled])
