"""What a workflow and its worker say to each other about a decision on a call. Behaviour lives elsewhere."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.frozen import Frozen
from holdfast.core.base.json_values import ShallowMap

CHECK_ARGUMENTS_ACTIVITY: Final = "check_arguments"


class ArgumentsCheck(Frozen):
    """What a person wants a call of `tool` to run with, for the worker to check against the tool's schema."""

    tool: str
    arguments: ShallowMap


class ArgumentsChecked(Frozen):
    """What is wrong with the arguments, naming them; none when they fit, or the worker does not have the tool."""

    problem: str | None
