"""`ToolContext`: what a tool may know about the call it serves, and what it may report while it runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol, Self

from pydantic import JsonValue

from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.typed_metadata import MetadataT, metadata_as
from holdfast.core.conversation.attachments import Attachment
from holdfast.core.conversation.messages import Message
from holdfast.core.tools.call_context import NO_LIMITS, BudgetLeft, CallContext
from holdfast.core.tools.workspace_profile import WorkspaceUse


class FilePath(Protocol):
    """The path of a file, such as a `pathlib.Path`."""

    def __fspath__(self) -> str:
        """Return the path as a text."""
        ...


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

    def attach(self, content: bytes | str | FilePath, name: str | None, media_type: str | None) -> Attachment:
        """Take a file. Raises InvalidInput for one that cannot be kept."""
        ...


class _NoReporter:
    """The reporter of a context that belongs to no call, such as one that a test makes: takes everything."""

    def progress(self, text: str, fraction: float | None) -> None:
        """Do nothing."""

    def log(self, message: str, fields: Mapping[str, object]) -> None:
        """Do nothing."""

    def set_metadata(self, changes: Mapping[str, JsonValue]) -> None:
        """Do nothing."""

    def attach(self, content: object, name: object, media_type: object) -> Attachment:  # noqa: ARG002
        """Refuse: there is no result that a file could belong to."""
        raise InvalidInput("this context belongs to no call, so nothing can be attached; run the tool by a driver")


NO_REPORTER: Final[CallReporter] = _NoReporter()


class Conversation(Protocol):
    """Reads the conversation of the run that a call belongs to, from any event loop."""

    async def page(self, start: int) -> Sequence[Message]:
        """Return messages from place `start` on, as many as fit; none behind the last. Raises StorageFailed."""
        ...


class _NoConversation:
    """The conversation of a context that belongs to no call: empty."""

    async def page(self, start: int) -> Sequence[Message]:  # noqa: ARG002  # a Conversation
        """Return nothing."""
        return ()


NO_CONVERSATION: Final[Conversation] = _NoConversation()


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
    workspace: WorkspaceUse | None = field(default=None, repr=False)
    """The run's workspace, for the tools that work in it."""
    reporter: CallReporter = field(default=NO_REPORTER, repr=False, compare=False)
    """Where reports go; set by us."""
    conversation: Conversation = field(default=NO_CONVERSATION, repr=False, compare=False)
    """Where messages come from; set by us."""

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

    def attach(
        self, content: bytes | str | FilePath, *, name: str | None = None, media_type: str | None = None
    ) -> Attachment:
        """Add a file to the result of this call, and return what the record has of it.

        Its bytes go to the record store when the call ends well; history, events and the conversation have its name,
        type, size and digest. The model reads these, and sees a picture where `context.images` of its agent is true.

        Args:
            content: the bytes, or the path of a file, which is read now.
            name: what the file is called; that of the path by default.
            media_type: such as `image/png`; by default what the name says.

        Raises InvalidInput for a file over 16 MB, for more than 16 files or 32 MB in one call, for what is no file, and
        for a name or a type that cannot be kept.
        """
        return self.reporter.attach(content, name, media_type)

    async def messages(self) -> AsyncGenerator[Message, None]:
        """Yield the conversation, message by message, as the model had been sent it when it asked for this call.

        It is read page by page as you go on, and is not part of the call's input. For async tools that are not
        `local`. Raises StorageFailed where the run cannot be asked, InvalidInput in a `local` tool.
        """
        start = 0
        while page := await self.conversation.page(start):
            for message in page:
                yield message
            start += len(page)
