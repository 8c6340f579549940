"""The `advance_script` activity: runs a script of Code Mode up to the calls that it waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from temporalio import activity

from activities.tools import PinnedTools
from holdfast.core.tools.tools import AnyTool
from holdfast.core.wire.script_contracts import ADVANCE_SCRIPT_ACTIVITY, ScriptAdvance, ScriptRequest
from holdfast.runtime.script_runner import advance


class Scripts:
    """The scripts over the tools that this worker knows; calling these is not its business."""

    def __init__(self, tools: Iterable[AnyTool], mcp: PinnedTools) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._mcp = mcp

    @activity.defn(name=ADVANCE_SCRIPT_ACTIVITY)
    async def advance(self, request: ScriptRequest) -> ScriptAdvance:
        """Return the calls that the script makes next, or its end."""
        pinned = await self._mcp.pinned_tools(request.mcp) if request.mcp is not None else ()
        known = {**self._tools, **{tool.name: tool for tool in pinned}}
        tools = {name: known[name] for name in request.tools if name in known}
        return await asyncio.to_thread(advance, request, tools)
