"""`CallContext`: what a tool's call knows of its run; it travels with the call. `ToolProgress`: how far the call is."""

from __future__ import annotations

from typing import Final

from pydantic import AwareDatetime, Field, JsonValue

from holdfast.core.base.frozen import Frozen
from holdfast.core.base.json_form import SparseForm
from holdfast.core.base.json_values import JsonMap
from holdfast.core.base.safe_text import clamped
from holdfast.core.tools.workspace_profile import WorkspaceUse

PROGRESS_TEXT_CHARS_MAX: Final = 500
"""The longest text of a progress report, in characters; the rest of it is cut off. Heartbeats carry it."""


class BudgetLeft(SparseForm):
    """What is left of each limit of a run's budget; none where it is unlimited.

    `seconds` are those until the time limit, `cost` is in US dollars. Steps are counted when they are complete: the one
    under way is still in `steps`.
    """

    steps: int | None = None
    tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None


NO_LIMITS: Final = BudgetLeft()


class CallContext(SparseForm):
    """What a tool may know of the run and the step that called it, as of the moment when the call was asked for.

    `deadline` is when the run's time limit strikes. Written without the fields that are as by default: each call of a
    tool that takes a `ToolContext` has it in the history.
    """

    agent: str = ""
    agent_id: str = ""
    parent_agent_id: str | None = None
    step: int = 0
    call_id: str = ""
    deadline: AwareDatetime | None = None
    budget_left: BudgetLeft = NO_LIMITS
    metadata: JsonMap = Field(default_factory=dict[str, JsonValue])
    tenant: str = ""
    workspace: WorkspaceUse | None = None
    """For the tools of the workspace alone."""


NO_CALL: Final = CallContext()
"""The context of a call of which nothing is known."""


class ToolProgress(Frozen):
    """How far a tool's call is, as the tool itself reports it; `fraction` is between 0 and 1, none if unknown."""

    call_id: str
    tool: str
    step: int
    attempt: int
    text: str = ""
    fraction: float | None = None


def bounded_progress(text: object, fraction: object) -> tuple[str, float | None]:
    """Return the text and the fraction of a report within their bounds: progress must not fail a call."""
    known = isinstance(fraction, int | float) and fraction == fraction  # noqa: PLR0124  # NaN is not
    share = float(min(1, max(0, fraction))) if known and isinstance(fraction, int | float) else None
    return clamped(str(text), PROGRESS_TEXT_CHARS_MAX), share
