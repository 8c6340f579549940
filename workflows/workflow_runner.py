"""The workflow runner: maps workflow types to classes, `AgentExecution:clerk` to `AgentExecution`.

The SDK finds a workflow by its whole type, and types that end with an agent's name cannot be registered in advance: any
client may bring a new name. So the SDK passes unknown types to this runner, which looks at their prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Protocol, runtime_checkable
from weakref import WeakValueDictionary

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.converter import PayloadConverter
from temporalio.exceptions import ApplicationError
from temporalio.worker import UnsandboxedWorkflowRunner, WorkflowInstance, WorkflowInstanceDetails

from holdfast.core.wire.contracts import AGENT_EXECUTION
from holdfast.core.wire.session_contracts import AGENT_SESSION
from holdfast.core.wire.workflow_ids import base_type
from workflows.execution.agent_execution import AgentExecution
from workflows.replay_guard import ReplayGuard, TaskMemory
from workflows.session.agent_session import AgentSession

SERVED: Final[dict[str, type]] = {AGENT_EXECUTION: AgentExecution, AGENT_SESSION: AgentSession}


@workflow.defn(dynamic=True)
class NamedByAgent:
    """Stands for every unregistered type; it is never instantiated."""

    @workflow.run
    async def run(self, args: Sequence[RawValue]) -> None:
        """Never called."""
        raise NotImplementedError


class CacheObserver(Protocol):
    """Observes which runs are in a worker's cache."""

    def cache_run(self, workflow_id: str, run_id: str) -> None:
        """Note that a run entered the cache; called by the worker's event loop."""

    def evict_run(self, run_id: str) -> None:
        """Note that a run left the cache; called by a thread of the worker."""


@runtime_checkable
class WorkflowAware(Protocol):
    """A payload converter that decodes some payloads differently within a workflow."""

    def for_workflow(self) -> PayloadConverter:
        """Return the converter for workflows."""
        ...


@dataclass(frozen=True)
class AgentWorkflowRunner(UnsandboxedWorkflowRunner):
    """Runs the workflow of a type with an agent's name, without the SDK's sandbox.

    The sandbox costs 1.1 to 1.4 ms of CPU per step, and guards against what our workflows never do:
    `tests/test_architecture.py` keeps clocks, randomness, I/O, threads and the environment out of their modules, and
    recorded histories are replayed.
    """

    observer: CacheObserver | None = None
    memory: TaskMemory = field(default_factory=TaskMemory, compare=False, repr=False)
    _instances: WeakValueDictionary[str, WorkflowInstance] = field(
        default_factory=WeakValueDictionary[str, WorkflowInstance], compare=False, repr=False
    )

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """Return the workflow that serves the run's type.

        Raises ApplicationError for a foreign type: the run waits for a worker that knows it.
        """
        if det.defn.cls is not NamedByAgent:
            return self._observed(det)
        served = SERVED.get(base_type(det.info.workflow_type))
        if served is None:
            text = f"no workflow here is of the type {det.info.workflow_type!r}; there are {', '.join(SERVED)}"
            raise ApplicationError(text, type="NotFoundError")
        defn = workflow._Definition.must_from_class(served)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        return self._observed(replace(det, defn=defn))

    def execution(self, run_id: str) -> AgentExecution | None:
        """Return the execution of that Temporal run where it is in this worker's cache, to read what never changes.

        It may have gone on in a task that the server has not recorded.
        """
        held = getattr(self._instances.get(run_id), "_object", None)
        return held if isinstance(held, AgentExecution) else None

    def _observed(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        det = replace(det, payload_converter_factory=partial(_workflow_converter, det.payload_converter_factory))
        instance, workflow_id, run_id = super().create_instance(det), det.info.workflow_id, det.info.run_id
        self._instances[run_id] = instance
        if self.observer is not None:
            self.observer.cache_run(workflow_id, run_id)
        return ReplayGuard.of(instance, self.memory, workflow_id, run_id, partial(self._evicted, run_id))

    def _evicted(self, run_id: str) -> None:
        self._instances.pop(run_id, None)
        if self.observer is not None:
            self.observer.evict_run(run_id)


def _workflow_converter(make: Callable[[], PayloadConverter]) -> PayloadConverter:
    converter = make()
    ours = getattr(converter, "_inner_payload_converter", converter)  # the SDK wraps a data converter's own
    return ours.for_workflow() if isinstance(ours, WorkflowAware) else converter


WORKFLOWS: Final[tuple[type, ...]] = (*SERVED.values(), NamedByAgent)
"""The workflows to register with a worker or a Replayer, together with the runner."""
