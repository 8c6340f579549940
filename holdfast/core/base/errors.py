"""The errors a person can meet, as one tree. No other module of the core defines an exception.

    HoldfastError                       exit code
    ├── InvalidInput                    2    a value was refused before anything started
    │   ├── DefinitionInvalid                an agent's definition breaks a rule
    │   ├── StateInvalid                     a saved state cannot be read, or a state cannot be saved
    │   ├── UnknownAgent                     no definition has this name
    │   ├── UnknownTool                      the worker offers no tool of this name
    │   ├── UnknownHook                      the worker offers no hook of this name
    │   └── InvalidArguments                 a tool's arguments do not fit its schema
    ├── ExecutionFailed                 4    the run ended `failed`; `.state` holds what happened
    ├── ExecutionNotFound               5    the server knows no run with this id
    │   ├── AgentNotFound                    no agent of this id has ever been here
    │   └── RecordNotFound                   the record store knows no such execution of an agent
    ├── ServerUnavailable               6    Temporal does not answer, or refuses us
    │   └── ServerUnreachable                nothing answers at its address
    ├── Conflict                        7    something else holds what we need
    │   ├── ExecutionExists                  the id is taken by another run
    │   ├── PortTaken                        another program listens there
    │   ├── DataDirectoryInUse               another server owns the data directory
    │   ├── MessageRefused                   a run under way has no room for a message
    │   ├── DecisionRefused                  no call waits for this decision
    │   ├── StopRefused                      the run can only be stopped at once, not after its step
    │   ├── SessionClosed                    the session takes nothing any more
    │   └── SessionRefused                   the session cannot do now what was asked; the text says why
    ├── MissingPart                     8    an optional package or program is not installed
    ├── ModelFailure                    9    a model call brought no answer; `.kind`, `.again` and `.after` say more
    ├── CompilerFailed                  10   a compiler of the worker's did not give messages a model can be shown
    ├── AnswerInvalid                  11    an answer does not fit the type it is read as
    ├── StorageFailed                  12    large data kept outside the history could not be written or read
    │   ├── FormNewer                        a newer Holdfast wrote it, and this one cannot read its form
    │   ├── ObjectDamaged                    it is not what was written
    │   └── ObjectMissing                    it is not there (any more)
    ├── PayloadRefused                  13   data is not encrypted as it should be, or not with a key that is here
    │
    │   defined outside the core, beside the code that raises them:
    ├── ToolExited                      1    a tool tried to end its process (`runtime.tool_runner`)
    ├── McpUnavailable                  6    an MCP server cannot be used: nothing was called (`mcp.errors`)
    │   └── McpAccessRefused                 it refuses our credentials: no retry mends that (`mcp.errors`)
    ├── McpCallFailed                   1    an MCP server or its tool reports an error (`mcp.errors`)
    ├── McpOutcomeUnknown               1    the answer of an MCP server was lost (`mcp.errors`)
    ├── WorkspaceUnavailable            6    a workspace cannot be used: nothing was begun (`workspace.backend`)
    ├── WorkspaceLost                   1    a workspace ended in the middle of a call (`workspace.backend`)
    ├── CallRefused                     1    an operation in a workspace was not carried out (`workspace.calls`)
    ├── InvalidResult                   1    a tool's result does not fit its return annotation (`runtime.tool_runner`)
    ├── ResourceFailed                  1    a resource of the tools could not be opened (`runtime.open_resources`)
    ├── TooManyThreads                  1    no thread is left for a sync tool or hook (`runtime.user_code`)
    ├── TranscriptMismatch              1    a worker's copy of a conversation is wrong (`activities.transcript_cache`)
    └── ResultsExhausted                1    a scripted tool has no result left (`testing.scripted_tools`)

docs/errors.md says of each when it comes and what to do. What a module raises and catches itself is no `HoldfastError`;
nor is what a sink raises, `Refused` and `Away` (`sinks.sink`).

Every message is one line: what happened, with which value, and what to do next. Each class is built from
that line alone (plus keyword details), so that it survives pickling and JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, ClassVar

from holdfast.core.base.usage import NOTHING_USED, Usage


class HoldfastError(Exception):
    """The root: whatever Holdfast raises on purpose.

    `exit_code` is what the command line returns for it (docs/cli.md lists them all).
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return self.message

    def to_dict(self) -> dict[str, Any]:
        """Return `{"type", "message"}`, the form used in JSON output."""
        return {"type": type(self).__name__, "message": self.message}


class InvalidInput(HoldfastError):
    """A value was refused; nothing was started."""

    exit_code = 2


class DefinitionInvalid(InvalidInput):
    """An agent's definition cannot be read or breaks a rule; the message lists every problem."""


class StateInvalid(InvalidInput):
    """A saved state cannot be read, or a state cannot be saved; the message names the first bad fields."""


class UnknownAgent(InvalidInput):
    """No definition has the name; the message gives the nearest one."""


class UnknownTool(InvalidInput):
    """A definition names a tool that the worker does not offer; the message gives the nearest one."""


class UnknownHook(InvalidInput):
    """A definition names a hook that the worker does not offer; the message gives the nearest one."""


class InvalidArguments(InvalidInput):
    """A tool's arguments do not fit its schema; the model is told which and why."""


class ExecutionFailed(HoldfastError):
    """A run ended `failed`. `state` is its final state as JSON-ready data, where it could be read."""

    exit_code = 4

    def __init__(self, message: str, state: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.state = state

    def __reduce__(self) -> tuple[type[ExecutionFailed], tuple[str, dict[str, Any] | None]]:
        return type(self), (self.message, self.state)


class ModelFailure(HoldfastError):
    """A model call brought no answer. `kind` names the failure, `again` says whether asking again can help.

    `after` is the wait that the endpoint asked for, if it did; `usage` is what the failed call used, as far as the
    endpoint said. `free` is true when the endpoint has done no work that anybody bills: it refused the request.
    """

    exit_code = 9

    def __init__(
        self,
        message: str,
        *,
        kind: str = "ModelFailure",
        again: bool = False,
        after: timedelta | None = None,
        usage: Usage = NOTHING_USED,
        free: bool = False,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.again = again
        self.after = after
        self.usage = usage
        self.free = free

    def __reduce__(self) -> tuple[Callable[..., ModelFailure], tuple[str]]:
        details = partial(
            type(self), kind=self.kind, again=self.again, after=self.after, usage=self.usage, free=self.free
        )
        return details, (self.message,)


class AnswerInvalid(HoldfastError):
    """An answer does not fit the type it is read as; the message lists the first problems, each with its field."""

    exit_code = 11


class ExecutionNotFound(HoldfastError):
    """The server knows no run with this id."""

    exit_code = 5


class AgentNotFound(ExecutionNotFound):
    """No agent of this id has ever had a session here, and none was defined to begin one."""


class RecordNotFound(ExecutionNotFound):
    """The record store has no record of this execution, or it is another agent's; the message names the place."""


class ServerUnavailable(HoldfastError):
    """The Temporal server does not answer, or does not let us in."""

    exit_code = 6


class ServerUnreachable(ServerUnavailable):
    """Nothing answers at the Temporal server's address: it is away, or the address is wrong."""


class Conflict(HoldfastError):
    """Something else holds what we need."""

    exit_code = 7


class ExecutionExists(Conflict):
    """The chosen execution id belongs to another run."""


class PortTaken(Conflict):
    """Another program listens on the port."""


class DataDirectoryInUse(Conflict):
    """Another embedded server owns the data directory."""


class MessageRefused(Conflict):
    """A run under way cannot keep a message beside those that wait for its next step: it was not accepted."""


class DecisionRefused(Conflict):
    """The tool call does not wait for a decision (any more), or not for this one: nothing was decided."""


class StopRefused(Conflict):
    """A run cannot be told to stop after its step, only at once; nothing was changed."""


class SessionClosed(Conflict):
    """The agent's session was closed and takes nothing any more; its records stay, and it can be forked."""


class SessionRefused(Conflict):
    """The agent's session cannot do now what was asked, and nothing was changed; the message says why."""


class MissingPart(HoldfastError):
    """An optional package or program is needed and not installed."""

    exit_code = 8


class CompilerFailed(HoldfastError):
    """A custom compiler raised, or gave what no provider takes; the message names it."""

    exit_code = 10


class StorageFailed(HoldfastError):
    """Large data kept outside Temporal's history could not be written or read; the message names the place."""

    exit_code = 12


class ObjectMissing(StorageFailed):
    """The place has no such object: it was deleted, or another place was meant."""


class FormNewer(StorageFailed):
    """A newer Holdfast has stored it, in a form that this one cannot read; nothing of it was used or changed."""


class ObjectDamaged(StorageFailed):
    """An object of the record store is not what was written: to read it again gives the same."""


class PayloadRefused(HoldfastError):
    """Data of Temporal's, or of the store's, is not encrypted as it should be, or not with a key that is here.

    Nothing of it was used; the message names the key, or what stands in its place, and never content.
    """

    exit_code = 13
