"""The Temporal server as Holdfast needs it: embedded, namespaces, doctor, codec server; and the worker as a process."""

from typing import TYPE_CHECKING

from holdfast.lazy_names import lazy_names

if TYPE_CHECKING:
    from holdfast.server.embedded import EmbeddedServer
    from holdfast.server.ports import refuse_taken
    from holdfast.server.worker_process import WorkerProcess, worker_command

__all__ = ["EmbeddedServer", "WorkerProcess", "refuse_taken", "worker_command"]

_PLACES = {
    "EmbeddedServer": "embedded",
    "WorkerProcess": "worker_process",
    "refuse_taken": "ports",
    "worker_command": "worker_process",
}

__getattr__ = lazy_names(__name__, _PLACES, {"temporalio": "temporal"}, "the embedded server")
