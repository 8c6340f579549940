"""The rules of an agent that are more than one value: answers' form, what the model sees, who must approve a call."""

from __future__ import annotations

from collections.abc import Hashable
from datetime import timedelta
from typing import Annotated, Literal, Self, TypeVar

from pydantic import AfterValidator, Field, model_validator

from holdfast.core.frozen import Frozen
from holdfast.core.json_values import PortableMap
from holdfast.core.limits import NAME_CHARS_MAX, SECONDS_MAX, TOOL_RESULT_CHARS_MAX

HashableT = TypeVar("HashableT", bound=Hashable)

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$", max_length=NAME_CHARS_MAX)]
"""The name of an agent, a tool, a hook, a section: letters, digits, `_` and `-` (what OpenAI accepts for functions)."""


def distinct(values: tuple[HashableT, ...]) -> tuple[HashableT, ...]:
    """Return `values`; raises ValueError for one that is there twice, because the second one would mean nothing."""
    seen: set[HashableT] = set()
    for value in values:
        if value in seen:
            raise ValueError(f"{str(value)!r} stands there twice; keep one")
        seen.add(value)
    return values


Names = Annotated[tuple[Name, ...], AfterValidator(distinct)]
"""Names in an order that means something, none of them twice."""


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
    json_schema: PortableMap
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
    sections: Names | None = None
    tool_output_chars_max: int | None = Field(default=None, ge=100, le=TOOL_RESULT_CHARS_MAX)
    compiler: Name | None = None
    summary: SummaryPolicy | None = None

    @model_validator(mode="after")
    def _shows_its_summaries(self) -> Self:
        shown = self.sections
        if self.summary is not None and shown is not None and not {"summary", "buffer"} <= set(shown):
            raise ValueError(
                "with `summary`, `sections` must name `summary` and `buffer`, or the model forgets what is old"
            )
        return self


Pattern = Annotated[str, Field(pattern=r"^[A-Za-z0-9_*?-]+$", max_length=NAME_CHARS_MAX)]
"""Names of tools: `*` stands for any characters, `?` for one."""


class ApprovalRule(Frozen):
    """Tool calls that wait for a person: those of the tools that match one of `tools` (`*` and `?` stand for anything).

    A pattern holds what a name may hold, and `*` and `?`: any other character would match no tool and protect nothing.
    Without a decision after `expires_seconds` the call counts as denied; none means that it waits for as long as the
    execution may.
    """

    tools: Annotated[tuple[Pattern, ...], AfterValidator(distinct)] = Field(min_length=1)
    expires_seconds: float | None = Field(default=None, gt=0, le=SECONDS_MAX)

    @property
    def expires(self) -> timedelta | None:
        """How long a decision is waited for."""
        return None if self.expires_seconds is None else timedelta(seconds=self.expires_seconds)
