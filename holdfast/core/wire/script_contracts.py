"""What the workflow and the activity that runs a script tell each other (docs/spec.md, 8.34)."""

from __future__ import annotations

from typing import Final

from pydantic import Field, JsonValue

from holdfast.core.base.call_digest import Digest
from holdfast.core.base.frozen import Frozen
from holdfast.core.base.json_values import JsonMap
from holdfast.core.conversation.steps import ErrorRecord, ToolExecution

ADVANCE_SCRIPT_ACTIVITY: Final = "advance_script"
"""The name of the activity that runs a script up to the calls that it waits for."""


class ScriptCall(Frozen):
    """A call that a script has made; `malformed` says what is wrong with its arguments, if anything is."""

    tool: str
    arguments: JsonMap = Field(default_factory=dict[str, JsonValue])
    malformed: str | None = None


class ScriptResult(Frozen):
    """A call of a script that has ended: with a value, or with the text of its error.

    `digest` is that of the call as the script made it; none from an older workflow.
    """

    tool: str
    digest: Digest | None = None
    value: JsonValue = None
    error: str | None = None

    @classmethod
    def of(cls, execution: ToolExecution) -> ScriptResult:
        """Return what a script sees of a call: its value, or what the model would see where it has failed."""
        digest = execution.asked_digest or execution.call.digest
        if execution.has_error:
            return cls(tool=execution.name, digest=digest, error=str(execution.answer.content))
        return cls(tool=execution.name, digest=digest, value=execution.value)


class ScriptRequest(Frozen):
    """A script, and its calls so far, all of which have ended. `tools` are what it may call, at most `calls_max` times.

    The request is a local activity's input, which no history has. `mcp` is the catalog with the tools of MCP servers.
    """

    code: JsonValue
    tools: tuple[str, ...]
    results: tuple[ScriptResult, ...] = ()
    calls_max: int
    mcp: Digest | None = None


class ScriptAdvance(Frozen):
    """How far a script has come: the `calls` that it waits for, or its end: an `error`, or else its `output`."""

    calls: tuple[ScriptCall, ...] = ()
    output: str = ""
    error: ErrorRecord | None = None
