"""The input and result of the activity that checks edited arguments. Behaviour lives elsewhere."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.call_digest import Digest
from holdfast.core.base.frozen import Frozen
from holdfast.core.base.json_values import ShallowMap

CHECK_ARGUMENTS_ACTIVITY: Final = "check_arguments"


class ArgumentsCheck(Frozen):
    """Edited arguments for a call of `tool`, for the worker to check against the tool's schema."""

    tool: str
    arguments: ShallowMap
    mcp: Digest | None = None
    """The catalog of MCP tools that the run has pinned, if it has one."""


class ArgumentsChecked(Frozen):
    """The problem with the arguments, naming them; none when they fit, or when the worker lacks the tool."""

    problem: str | None
