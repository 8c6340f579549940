"""`ToolContext`: what a tool may know about the call it serves, and what it may report while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol, Self

from pydantic import JsonValue

from holdfast.core.base.typed_metadata import MetadataT, metadata_as
from holdfast.core.tools.call_context import NO_LIMITS, BudgetLeft, CallContext


class CallReporter(Protocol):
    """Takes what a tool reports during one attempt, from any thread and any event loop; `runtime` has the real one."""

    def progress(self, text: str, fraction: float | None) -> None:
        """Take a progress report. Never raises."""
        ...

    def log(self, message: str, fields: Mapping[str, object]) -> None:
        """Write a line into the log. Never raises."""
        ...

    def set_metadata(self, changes: Mapping[str, JsonValue]) -> None:
        """Take changes of the agent's metadata. Raises InvalidInput for those that cannot be kept."""
        ...


class _NoReporter:
    """The reporter of a context that belongs to no call, such as one that a test makes: takes everything."""

    def progress(self, text: str, fraction: float | None) -> None:
        """Do nothing."""

    def log(self, message: str, fields: Mapping[str, object]) -> None:
        """Do nothing."""

    def set_metadata(self, changes: Mapping[str, JsonValue]) -> None:
        """Do nothing."""


NO_REPORTER: Final[CallReporter] = _NoReporter()


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool may know about the call it serves, and what it may report while it runs.

    Everything but `attempt` is as it stood when the call was asked for, and the same in every attempt. The methods work
    from sync tools, which run in threads, as from async ones, and return at once.

    Attributes:
        execution_id: the run's id, also its workflow's.
        idempotency_key: the same for every attempt of one call, also after a crash, a retry or a restart: hand it to
            whatever the tool changes.
        attempt: counts from 1.
        metadata: the agent's, with what its run was given.
        agent: the name of the agent's definition.
        agent_id: the agent's id; a session's, where the agent is one.
        parent_agent_id: the id of the agent that called it as a subagent; none for any other.
        step: the number of the step, from 1.
        call_id: the call's id within its step, as in events and approvals.
        deadline: when the run's time limit strikes; none without one.
        budget_left: what is left of each limit of the run.
        tenant: on whose account the run works; empty where nobody said.
    """

    execution_id: str
    idempotency_key: str
    attempt: int
    metadata: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    agent: str = ""
    agent_id: str = ""
    parent_agent_id: str | None = None
    step: int = 0
    call_id: str = ""
    deadline: datetime | None = None
    budget_left: BudgetLeft = NO_LIMITS
    tenant: str = ""
    reporter: CallReporter = field(default=NO_REPORTER, repr=False, compare=False)
    """Where reports go; set by us."""

    @classmethod
    def of(cls, call: CallContext, *, execution_id: str, idempotency_key: str, attempt: int) -> Self:
        """Return the context of an attempt of that call."""
        known = {name: getattr(call, name) for name in CallContext.model_fields}
        return cls(execution_id=execution_id, idempotency_key=idempotency_key, attempt=attempt, **known)

    def metadata_as(self, model: type[MetadataT]) -> MetadataT:
        """Return the metadata as a value of the pydantic model. Raises InvalidInput with what does not fit."""
        return metadata_as(self.metadata, model)

    def progress(self, text: str = "", *, fraction: float | None = None) -> None:
        """Report how far the call is, for people who watch it now; nothing of it is kept.

        On Temporal it travels with the call's heartbeats, at most a few times a second: `holdfast watch` and the Web UI
        show the latest report. A `local` tool has no heartbeats, and in-process nobody watches: there it does nothing.

        Args:
            text: what is being done, at most 500 characters.
            fraction: how much is done, from 0 to 1.
        """
        self.reporter.progress(text, fraction)

    def log(self, message: str, **fields: object) -> None:
        """Write a line into the log of the worker (logger `holdfast.tool`, level INFO), with the run's and call's ids.

        `fields` follow the message as `name=value`. No secrets: logs are read by many.
        """
        self.reporter.log(message, fields)

    def set_metadata(self, **values: JsonValue) -> None:
        """Change the agent's metadata when this call ends well; the value none removes an entry.

        The changes are recorded with the call's result. Hooks, later calls and compilers see them, `metadata` of this
        context does not. Those of an attempt that fails, or is cancelled, are dropped. Of calls that run at the
        same time, the one that ends last has the last word. Raises InvalidInput for what is no JSON, for a key of
        Holdfast's own, and for more than 16 KB in one call.
        """
        self.reporter.set_metadata(values)
