"""What is said about the tasks of MCP servers: the extension `io.modelcontextprotocol/tasks` (SEP-2663) on the wire."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, NoReturn

from mcp.client import ClientExtension, ResultClaim
from mcp_types import ErrorData, Request, RequestParams, Result, ServerCapabilities
from pydantic import Field
from typing_extensions import override

from holdfast.core.conversation.attempt_tally import TaskId

TASKS: Final = "io.modelcontextprotocol/tasks"
"""The extension's identifier."""

POLL_SECONDS: Final = 1.0
"""The wait between two polls where the server names none."""

POLL_SECONDS_MIN: Final = 0.5
"""The shortest wait, whatever the server names: a poll is a request."""

POLL_SECONDS_MAX: Final = 60.0
"""The longest: a call may not look dead for minutes after its task has ended."""

Milliseconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Task(Result):
    """What every message about a task says."""

    task_id: TaskId
    status: Literal["working", "input_required", "completed", "failed", "cancelled"]
    status_message: str | None = None
    ttl_ms: Milliseconds | None = None
    poll_interval_ms: Milliseconds | None = None

    @property
    def poll_seconds(self) -> float:
        """How long the server wants to be left alone, within our bounds."""
        named = POLL_SECONDS if self.poll_interval_ms is None else self.poll_interval_ms / 1000
        return min(max(named, POLL_SECONDS_MIN), POLL_SECONDS_MAX)


class CreatedTask(Task):
    """What a call is answered with that the server makes a task of."""

    result_type: Literal["task"] = "task"


class TaskState(Task):
    """What a poll is answered with: `result` of a completed task, `error` of a failed one, its open questions."""

    result: dict[str, Any] | None = None
    error: ErrorData | None = None
    input_requests: dict[str, dict[str, Any]] | None = None


class TaskParams(RequestParams):
    """Which task a request is about."""

    task_id: str


class GetTask(Request[TaskParams, Literal["tasks/get"]]):
    """Asks how far a task is."""

    method: Literal["tasks/get"] = "tasks/get"
    params: TaskParams
    name_param = "taskId"  # the SDK sends it as the header `Mcp-Name`


class CancelTask(Request[TaskParams, Literal["tasks/cancel"]]):
    """Asks the server to end a task; it need not."""

    method: Literal["tasks/cancel"] = "tasks/cancel"
    params: TaskParams
    name_param = "taskId"


class UpdateParams(TaskParams):
    """Answers to a task's questions, by the question's key."""

    input_responses: dict[str, dict[str, Any]]


class UpdateTask(Request[UpdateParams, Literal["tasks/update"]]):
    """Answers a task's questions."""

    method: Literal["tasks/update"] = "tasks/update"
    params: UpdateParams
    name_param = "taskId"


class TasksExtension(ClientExtension):
    """Says to a server that it may make a task of a call, and has the SDK read such an answer."""

    identifier = TASKS

    @override
    def claims(self) -> Sequence[ResultClaim[Any]]:
        return (ResultClaim(result_type="task", model=CreatedTask, resolve=_resolved),)


def makes_tasks(capabilities: ServerCapabilities) -> bool:
    """Return whether a server says that it can make a task of a call."""
    return TASKS in (capabilities.extensions or {})


async def _resolved(created: CreatedTask, _context: object) -> NoReturn:
    raise AssertionError(f"the SDK polls no task itself: calls claim it ({created.status})")
