"""Counts the attempts of a tool call: its own failures, lost ones, and workers that died during it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Final, Self

from pydantic import Field, ValidationError

from holdfast.core.base.frozen import Frozen, is_none, replace

WORKER_LOST: Final = "WorkerLost"
"""The type of the failure of a call whose worker died: its guardian reports it, and the call is begun anew at once."""

POSTPONED: Final = "Postponed"
"""The type of the failure of an attempt that was put off: others go first, or its run may have been stopped."""

LOST_SECONDS_MAX: Final = 600.0
"""How long a call is begun again after losses of its workers, whatever number of attempts it may take itself."""

LOSSES_MIN: Final = 10
"""A call is not given up before this many losses: a night without a worker counts as one."""

LOST_ATTEMPTS_MAX: Final = 1_000
"""The server's limit of attempts beyond the call's own; the time limit comes long before it."""

DEATHS_MAX: Final = 2
"""How many workers a tool call may kill before it fails for good."""


TASK_ID_CHARS_MAX: Final = 500
"""The longest id of a task: it travels with each heartbeat."""

TaskId = Annotated[str, Field(min_length=1, max_length=TASK_ID_CHARS_MAX)]
"""The id that an MCP server gives a task."""


class McpTask(Frozen):
    """The task that an MCP server made of a call, and when, by the clock of the Temporal server."""

    id: TaskId
    created_at: datetime


class ToolAttempts(Frozen):
    """What an attempt of a tool call leaves for the next one; it travels in the details of heartbeats.

    Only an attempt that failed or timed out by the tool's own doing counts towards `attempts_max`. Attempts whose
    worker was lost are bounded by time.
    """

    own: int = Field(default=0, ge=0)
    """Attempts that the tool itself failed, or did not end in time."""
    postponed: int = Field(default=0, ge=0)
    """Attempts that were put off: it was not the call's turn, or its run did not answer."""
    deaths: int = Field(default=0, ge=0)
    """Workers that died while the call had begun."""
    blamed: bool = False
    """Whether it must have caused the last of these deaths: it ran alone, or had just begun."""
    task: McpTask | None = Field(default=None, exclude_if=is_none)
    """The task under way that the next attempt takes up."""

    @classmethod
    def after(cls, heartbeat_details: Sequence[Any]) -> Self:
        """Return what the last heartbeat of the attempt before left; nothing for one that left none."""
        try:
            return cls.model_validate(heartbeat_details[0]) if heartbeat_details else cls()
        except ValidationError:  # not ours
            return cls()

    @property
    def suspect(self) -> bool:
        """Whether it may have killed a worker: such calls begin one at a time, so that the culprit is found."""
        return self.deaths > 0

    @property
    def fatal(self) -> bool:
        """Whether it is known to kill its workers: it is not begun again."""
        return self.blamed and self.deaths >= DEATHS_MAX

    def after_failure(self) -> Self:
        """Return the same after an attempt that counts; a task ended with it."""
        return replace(self, own=self.own + 1, task=None)

    def after_postponement(self) -> Self:
        """Return the same after an attempt that was not begun."""
        return replace(self, postponed=self.postponed + 1)

    def after_death(self, *, blamed: bool) -> Self:
        """Return the same after the death of the worker in which the call had begun."""
        return replace(self, deaths=self.deaths + 1, blamed=blamed)

    def lost(self, attempt: int) -> int:
        """Return how many attempts before that one ended with their worker, whatever became of it."""
        return max(0, attempt - 1 - self.own - self.postponed)


def lost_for_good(losses: int, seconds: float) -> bool:
    """Return whether a call is given up that was lost `losses` times and first scheduled `seconds` ago."""
    return losses >= LOSSES_MIN and seconds > LOST_SECONDS_MAX
