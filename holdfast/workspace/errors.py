"""What goes wrong with a workspace: before anything was done in it, and after."""

from __future__ import annotations

from holdfast.core.base.errors import HoldfastError


class WorkspaceUnavailable(HoldfastError):
    """The workspace cannot be made or reached: nothing was done in it."""

    exit_code = 6


class WorkspaceLost(HoldfastError):
    """The workspace ended or went out of reach while something was done in it; it may have had its effect."""
