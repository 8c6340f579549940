"""The rules of an agent that are more than one value: answers' form, what the model sees, who must approve a call."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from holdfast.core.frozen import Frozen
from holdfast.core.limits import NAME_CHARS_MAX, SECONDS_MAX, TOOL_RESULT_CHARS_MAX

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$", max_length=NAME_CHARS_MAX)]
"""The name of an agent, a tool, a hook, a section: letters, digits, `_` and `-` (what OpenAI accepts for functions)."""

ErrorPolicy = Literal["recover", "fatal"]
"""`recover`: a tool's error goes back to the model, and a good answer after it is `completed`. `fatal`: a step with any
error is the last one, and the execution is `failed` (SPEC section 2)."""


class TextFormat(Frozen):
    """An answer in words: whatever the model says is fine."""

    type: Literal["text"] = "text"


class JsonObjectFormat(Frozen):
    """An answer that is some JSON object."""

    type: Literal["json_object"] = "json_object"


class JsonSchemaFormat(Frozen):
    """An answer that is JSON as `json_schema` says (a JSON Schema). `strict` asks the provider to hold to it itself."""

    type: Literal["json_schema"] = "json_schema"
    name: Name = "answer"
    json_schema: Mapping[str, JsonValue]
    strict: bool = False


ResponseFormat = Annotated[TextFormat | JsonObjectFormat | JsonSchemaFormat, Field(discriminator="type")]
"""What a final answer must be; it is validated here, whatever the provider promises."""


class SummaryPolicy(Frozen):
    """When old messages are replaced by a summary of them.

    Once a model call's input had more than `above_input_tokens` (the provider's own count), all but the latest
    `keep_messages` messages are moved to the section `buffer`, and the buffer is summarised into `summary`. A call is
    never parted from its results, so a few messages more may stay.
    """

    above_input_tokens: int = Field(gt=0)
    keep_messages: int = Field(default=20, ge=0)


class ContextPolicy(Frozen):
    """What the model is shown of the conversation (SPEC section 7).

    `view`: `current_trace` leaves out the steps that earlier executions took (their questions and final answers stay),
    `all` leaves out nothing. `sections` names the sections shown, in that order; all of them in their own order by
    default. `tool_output_chars_max` cuts every tool result. `compiler` names a function of the worker's that has the
    last word (`holdfast.core.compiling`).
    """

    view: Literal["current_trace", "all"] = "current_trace"
    sections: tuple[Name, ...] | None = None
    tool_output_chars_max: int | None = Field(default=None, ge=100, le=TOOL_RESULT_CHARS_MAX)
    compiler: Name | None = None
    summary: SummaryPolicy | None = None


class ApprovalRule(Frozen):
    """Tool calls that wait for a person: those of the tools that match one of `tools` (`*` and `?` stand for anything).

    Without a decision after `expires_seconds` the call counts as denied; none means that it waits for as long as the
    execution may.
    """

    tools: tuple[Annotated[str, Field(min_length=1, max_length=NAME_CHARS_MAX)], ...] = Field(min_length=1)
    expires_seconds: float | None = Field(default=None, gt=0, le=SECONDS_MAX)

    @property
    def expires(self) -> timedelta | None:
        """How long a decision is waited for."""
        return None if self.expires_seconds is None else timedelta(seconds=self.expires_seconds)
