"""Code Mode in-process: the tool `run_code` beside an agent's others, and how its scripts get on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime

from holdfast.core.agent.toolset import AgentToolset
from holdfast.core.base.retries import SCRIPT_RETRIES
from holdfast.core.conversation.error_records import error_record
from holdfast.core.loop.calls.script_requests import script_event, script_request
from holdfast.core.loop.commands import CallTool, Script
from holdfast.core.loop.events import Event
from holdfast.core.loop.execution_rules import Rules
from holdfast.core.tools.code_mode import CodeMode, with_code
from holdfast.core.tools.tools import AnyTool
from holdfast.core.wire.script_contracts import ScriptAdvance, ScriptRequest
from holdfast.local.searched_tools import ShownTools
from holdfast.runtime.script_runner import ScriptProcessLost, advance, check_installed


def with_code_mode(offered: ShownTools, tools: Mapping[str, AnyTool], mode: CodeMode | None) -> ShownTools:
    """Return what is shown of an agent's tools with `run_code`, where its definition asks for that.

    Raises UnknownTool for a tool that the mode names and the agent lacks, InvalidInput without the extra `monty`.
    """
    if mode is None:
        return offered
    check_installed()
    traits, schema = with_code(offered.traits, {name: tool.schema for name, tool in tools.items()}, mode)
    hidden = {each.name for each in traits if each.deferred}
    shown = tuple(each for each in offered.shown if each.name not in hidden)
    return offered._replace(traits=traits, shown=(*shown, schema))


async def advance_script(
    command: CallTool, script: Script, rules: Rules, toolset: AgentToolset, clock: Callable[[], datetime]
) -> Event:
    """Take a script further, and return the calls that it makes next, or its end."""
    started_at = clock()
    request = script_request(command, script, rules.definition, rules.tools)
    tools = {name: toolset.tools[name] for name in request.tools if name in toolset.tools}
    ran = await _advanced(request, tools, command.call.name)
    return script_event(command, ran, started_at, clock())


async def _advanced(request: ScriptRequest, tools: Mapping[str, AnyTool], source: str) -> ScriptAdvance:
    """Take a script further; one whose process was lost is run again, as on a server."""
    attempt = 1
    while True:
        try:
            return await asyncio.to_thread(advance, request, tools)
        except ScriptProcessLost as error:
            if attempt == SCRIPT_RETRIES.attempts_max:
                return ScriptAdvance(error=error_record(error, source))
        await asyncio.sleep(SCRIPT_RETRIES.wait_seconds(attempt))
        attempt += 1
