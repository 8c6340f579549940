"""`Verdict`: a person's decision about a tool call that waits for approval, the same under every driver.

`Approval` is the decision as it is stored with the call.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import AwareDatetime, Field, model_validator

from holdfast.core.base.bounds import REASON_CHARS_MAX, SOURCE_CHARS_MAX
from holdfast.core.base.call_digest import Digest
from holdfast.core.base.frozen import Frozen, is_none
from holdfast.core.base.json_values import ShallowMap

Decision = Literal["approve", "deny", "edit"]
"""Run the call, do not, or run it with other arguments."""


class Verdict(Frozen):
    """A decision about one call: `by` whom, why (the model sees `reason`), and with `edit` which `arguments`.

    `digest` is that of the call as the person saw it (`ToolCall.digest`); with it, the decision counts for no other
    call.
    """

    decision: Decision
    by: str = Field(default="", max_length=SOURCE_CHARS_MAX)
    reason: str = Field(default="", max_length=REASON_CHARS_MAX)
    arguments: ShallowMap | None = None
    digest: Digest | None = None
    tool_digest: Digest | None = Field(default=None, exclude_if=is_none)
    """That of an MCP tool's description as the person saw it; with it, the decision counts for no other version."""

    @model_validator(mode="after")
    def _has_arguments_to_edit(self) -> Self:
        if (self.arguments is None) == (self.decision == "edit"):
            raise ValueError("`edit` needs the `arguments` that the call is to run with, and nothing else takes any")
        return self


class Approval(Frozen):
    """A decision about a call: what, by whom, when, and why; `expired` means that nobody decided in time.

    `digest` is that of the call as it was decided: with `edit` that of the arguments put in place; `asked` are then
    those that the person was asked about.
    """

    decision: Decision | Literal["expired"]
    by: str = ""
    reason: str = ""
    at: AwareDatetime
    digest: Digest
    asked: ShallowMap | None = None
