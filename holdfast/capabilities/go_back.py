"""`go_back`: the agent returns to an earlier step of its own, with a note, where it has gone wrong."""

from __future__ import annotations

from typing import Final

from holdfast.core.agent.capability_bundles import Capability
from holdfast.core.agent.toolset import Toolset
from holdfast.core.conversation.steps_back import STEPS_BACK_MAX, StepBackRequest
from holdfast.core.tools.loop_tools import loop_tool

PROMPT: Final = (
    "Each of your answers is a step, counted from 1 in this run. Where a way has led nowhere, go back with go_back to "
    "the step where it began: you then see nothing of it but your note. What your calls did stays done."
)

ABOUT: Final = (
    "Go back to an earlier step of this run: that step and all after it leave your sight, and your note stands in "
    f"their place. Nothing is undone and no budget is given back. At most {STEPS_BACK_MAX} times in a run."
)

GO_BACK: Final = Toolset(
    tools=(loop_tool("go_back", "go_back", ABOUT, StepBackRequest),),
    capabilities=(Capability(name="go_back", tools=("go_back",), prompt=PROMPT),),
)
"""The capability `go_back` with its tool."""
