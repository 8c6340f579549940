"""The `advance_script` activity: runs a script of Code Mode up to the calls that it waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from temporalio import activity

from activities.tools import PinnedTools
from holdfast.core.tools.tools import AnyTool
from holdfast.core.wire.script_contracts import ADVANCE_SCRIPT_ACTIVITY, ScriptAdvance, ScriptRequest
from holdfast.runtime.script_runner import advance

SCRIPTS_AT_ONCE_MAX: Final = 4
"""How many scripts of a worker compute at the same time: each has a process, and its thread waits for that."""


class Scripts:
    """The scripts over the tools that this worker knows; calling these is not its business."""

    def __init__(self, tools: Iterable[AnyTool], mcp: PinnedTools) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._mcp = mcp
        # not the loop's own threads: a burst of scripts would keep everything else from them
        self._threads = ThreadPoolExecutor(SCRIPTS_AT_ONCE_MAX, "holdfast-script")

    @activity.defn(name=ADVANCE_SCRIPT_ACTIVITY)
    async def advance(self, request: ScriptRequest) -> ScriptAdvance:
        """Return the calls that the script makes next, or its end."""
        pinned = await self._mcp.pinned_tools(request.mcp) if request.mcp is not None else ()
        known = {**self._tools, **{tool.name: tool for tool in pinned}}
        tools = {name: known[name] for name in request.tools if name in known}
        return await asyncio.get_running_loop().run_in_executor(self._threads, advance, request, tools)
