"""What a tool returned, as the bounded text that the model sees, and `StopRun`, which ends the run."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from pydantic import Field, JsonValue, TypeAdapter
from pydantic_core import to_json

from holdfast.core.base.bounds import REASON_CHARS_MAX, TOOL_RESULT_BYTES_MAX, TOOL_RESULT_CHARS_MAX, WORD_CHARS_MAX
from holdfast.core.base.call_digest import Digest
from holdfast.core.base.frozen import Frozen, is_none, replace
from holdfast.core.base.json_parsing import read_json
from holdfast.core.base.json_values import JsonMap
from holdfast.core.base.safe_text import clamped, encodable
from holdfast.core.base.truncation import shortened
from holdfast.core.conversation.attachments import Attachments
from holdfast.core.conversation.steps import ResultType
from holdfast.core.conversation.stop_reasons import StopContext

_STOP_CONTEXT: Final = TypeAdapter[Mapping[str, JsonValue]](StopContext)


@dataclass(frozen=True, slots=True)
class StopRun:
    """Returned by a tool to end the run with this step: its result for the model, and why the run is to stop.

    `context` goes with the stop signal, a small JSON object; one that is too large or not JSON is left out.
    """

    result: object
    reason: str
    context: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])


class ToolReply(Frozen):
    """A tool's result as the bounded text the model sees, and why the tool asks to stop, if it does."""

    text: str
    result_type: ResultType = "text"
    """`json` only for a whole result: what was cut is no JSON any more."""
    stop: str | None = Field(default=None, max_length=REASON_CHARS_MAX)
    stop_context: StopContext = Field(default_factory=dict[str, JsonValue])
    metadata: JsonMap = Field(default_factory=dict[str, JsonValue])
    """Changes of the agent's metadata; the loop checks them."""
    structured: str | None = None
    """The JSON of the value, where the text says it in other words."""
    attachments: Attachments = ()
    """The files that the store has of it."""
    mcp_process: str = Field(default="", max_length=WORD_CHARS_MAX)
    """The id of the MCP server's process that answered; empty where it remembers nothing, and for other tools."""
    workspace: Digest | None = Field(default=None, exclude_if=is_none)
    """The snapshot of the workspace's files that the call has left."""


def reply_of(value: object) -> ToolReply:
    """Return the reply for a tool's return value."""
    whole = whole_text(value)
    return reply_with(bounded_result(whole), value, whole)


def reply_with(text: str, value: object, whole: str) -> ToolReply:
    """Return `text`, the part of the `whole` that the model sees, as the reply of a tool that returned `value`.

    A StopRun asks to stop the run; a ToolReply is the reply itself, but for its text. Never raises.
    """
    if isinstance(value, ToolReply):
        return value if text == value.text else replace(value, text=text, result_type="text")
    result = value.result if isinstance(value, StopRun) else value
    result_type: ResultType = "json" if text == whole and not isinstance(result, str) and is_json(text) else "text"
    if not isinstance(value, StopRun):
        return ToolReply(text=text, result_type=result_type)
    stop, context = clamped(str(value.reason), REASON_CHARS_MAX), _fitting(value.context)
    return ToolReply(text=text, result_type=result_type, stop=stop, stop_context=context)


def with_files_and_structure(reply: ToolReply, fields: Mapping[str, object]) -> ToolReply:
    """Return the reply with the attachments and the structure that an activity's result has; what is wrong is none."""
    given = {name: fields[name] for name in ("structured", "attachments", "workspace") if fields.get(name)}
    if not given:
        return reply
    try:
        # as JSON, for a tuple comes as a list
        checked = ToolReply.model_validate_json(to_json({"text": "", **given}))
    except ValueError:
        return reply
    return replace(reply, structured=checked.structured, attachments=checked.attachments, workspace=checked.workspace)


def is_json(text: str) -> bool:
    """Return whether `text` is JSON that can be read wherever a state is: a bounded depth, finite numbers."""
    try:
        read_json(text)
    except ValueError:
        return False
    return True


def whole_text(value: object) -> str:
    """Return a tool's result as text, however long: text as it is, everything else as JSON.

    Never raises: the call has had its effect.
    """
    if isinstance(value, ToolReply):
        return encodable(value.text)
    return encodable(_as_text(value.result if isinstance(value, StopRun) else value))


def _fitting(context: object) -> Mapping[str, JsonValue]:
    try:
        return _STOP_CONTEXT.validate_python(context)
    except (ValueError, RecursionError) as error:
        return {"left_out": clamped(str(error), REASON_CHARS_MAX)}


def bounded_result(text: str) -> str:
    """Return a tool's result cut to the length that the model sees."""
    return shortened(text, TOOL_RESULT_BYTES_MAX, TOOL_RESULT_CHARS_MAX)


def _as_text(value: object) -> str:
    """Return `value` as text, whatever it is: the call has had its effect, so this must not fail any more."""
    if isinstance(value, str):
        return value
    try:
        return to_json(value, inf_nan_mode="strings").decode()
    except Exception:  # noqa: BLE001  # a serializer of the value's own class can raise anything
        with suppress(Exception):
            return repr(value)
    return f"(a {type(value).__name__} that cannot be shown)"
