"""Runs the scripts of Code Mode as local activities, whose inputs are in no history (docs/spec.md, 8.34)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import FailureError, is_cancelled_exception

from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.execution_state import call_name
from holdfast.core.base.call_digest import Digest
from holdfast.core.base.retries import SCRIPT_RETRIES
from holdfast.core.loop.calls.script_requests import script_event, script_request
from holdfast.core.loop.commands import CallTool, Script
from holdfast.core.loop.events import ScriptAdvanced, ToolFailed, ToolReturned
from holdfast.core.tools.tool_traits import ToolTraits
from holdfast.core.wire.script_contracts import ADVANCE_SCRIPT_ACTIVITY, ScriptAdvance
from workflows import summaries
from workflows.execution.call_errors import call_error
from workflows.shielding import locally

ADVANCE_TIMEOUT: Final = timedelta(seconds=60)
"""For one attempt: a script's process is killed long before, but others of the worker may have their turn first."""

ADVANCE_RETRY: Final = RetryPolicy(
    initial_interval=timedelta(seconds=SCRIPT_RETRIES.first_seconds),
    maximum_interval=timedelta(seconds=SCRIPT_RETRIES.longest_seconds),
    maximum_attempts=SCRIPT_RETRIES.attempts_max,
)


async def advance_script(
    command: CallTool,
    script: Script,
    definition: AgentDefinition,
    tools: Mapping[str, ToolTraits],
    mcp: Digest | None,
    started_at: datetime,
) -> ScriptAdvanced | ToolReturned | ToolFailed:
    """Take a script further: one event of the history, with the calls that it makes next, or with its end."""
    request = script_request(command, script, definition, tools, mcp)
    try:
        ran: ScriptAdvance = await locally(
            workflow.execute_local_activity(
                ADVANCE_SCRIPT_ACTIVITY,
                request,
                result_type=ScriptAdvance,
                activity_id=f"{call_name(command.step_number, command.index)}-script-{len(request.results)}",
                start_to_close_timeout=ADVANCE_TIMEOUT,
                retry_policy=ADVANCE_RETRY,
                summary=summaries.of_tool_call(command),
            )
        )
    except FailureError as error:  # in a replay it is not wrapped in ActivityError
        if is_cancelled_exception(error):
            raise
        ran = ScriptAdvance(error=call_error(error, command.call.name))
    return script_event(command, ran, started_at, workflow.now())
