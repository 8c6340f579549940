"""How the core's model and tool calls become activities, and what their ends become. Decides nothing else."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any, Final

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, TimeoutError, TimeoutType  # noqa: A004  # its name
from temporalio.workflow import ActivityCancellationType

with workflow.unsafe.imports_passed_through():
    from holdfast.core.commands import CallModel, CallTool
    from holdfast.core.contracts import (
        INFERENCE_ACTIVITY,
        RESOLVE_TOOLS_ACTIVITY,
        WORKER_SHUTDOWN,
        InferenceInput,
        ToolCatalog,
        ToolsRequest,
    )
    from holdfast.core.definition import AgentDefinition
    from holdfast.core.limits import ERROR_CHARS_MAX
    from holdfast.core.retries import MODEL_RETRIES, MODEL_SECONDS_MAX
    from holdfast.core.state import call_name
    from holdfast.core.steps import ErrorRecord, InferenceResponse
    from holdfast.core.texts import clamped, error_record
    from holdfast.core.tools import ToolTraits, ended_without_answer, render_result

HEARTBEAT_TIMEOUT: Final = timedelta(seconds=2.5)
"""A worker that is silent for so long is taken for dead: what bounds the recovery after a crash."""

MODEL_TIMEOUT: Final = timedelta(seconds=MODEL_SECONDS_MAX)
"""One attempt of a model call."""

MODEL_RETRY: Final = RetryPolicy(
    initial_interval=timedelta(seconds=MODEL_RETRIES.first_seconds),
    maximum_interval=timedelta(seconds=MODEL_RETRIES.longest_seconds),
    maximum_attempts=MODEL_RETRIES.attempts_max,
)

TOOL_RETRY_INTERVAL: Final = timedelta(seconds=0.2)
"""Only a lost worker or a timeout repeats a tool, so there is nothing to wait for."""

RESOLVE_TIMEOUT: Final = timedelta(seconds=5)

SUMMARY_CHARS_MAX: Final = 80
"""How much of a tool's arguments the Web UI shows beside its name."""


async def resolve_tools(definition: AgentDefinition) -> ToolCatalog:
    """Return the agent's tools as this worker offers them; recorded once, so that a run keeps what it began with."""
    catalog: ToolCatalog = await workflow.execute_local_activity(
        RESOLVE_TOOLS_ACTIVITY,
        ToolsRequest(
            agent=definition.name, tools=definition.tools, tools_deny=definition.tools_deny, at=workflow.now()
        ),
        result_type=ToolCatalog,
        start_to_close_timeout=RESOLVE_TIMEOUT,
        retry_policy=RetryPolicy(maximum_attempts=3),
    )
    return catalog


async def call_model(command: CallModel, wanted: InferenceInput, time_left: timedelta | None) -> InferenceResponse:
    """Ask the model, within the time the run has left; raises ActivityError."""
    response: InferenceResponse = await workflow.execute_activity(
        INFERENCE_ACTIVITY,
        wanted,
        result_type=InferenceResponse,
        activity_id=call_name(command.step_number),
        start_to_close_timeout=MODEL_TIMEOUT,
        schedule_to_close_timeout=time_left,
        heartbeat_timeout=HEARTBEAT_TIMEOUT,
        retry_policy=MODEL_RETRY,
        cancellation_type=ActivityCancellationType.TRY_CANCEL,
        summary=f"step {command.step_number}",
    )
    return response


async def call_tool(command: CallTool, traits: ToolTraits, time_left: timedelta | None) -> str:
    """Run the tool; its input is the arguments alone, so that any language can serve it. Raises ActivityError."""
    result: Any = await workflow.execute_activity(
        traits.name,
        command.call.arguments,
        activity_id=call_name(command.step_number, command.index),
        start_to_close_timeout=timedelta(seconds=traits.timeout_seconds),
        schedule_to_close_timeout=time_left,
        heartbeat_timeout=HEARTBEAT_TIMEOUT,
        retry_policy=RetryPolicy(initial_interval=TOOL_RETRY_INTERVAL, maximum_attempts=traits.attempts_max),
        cancellation_type=ActivityCancellationType.TRY_CANCEL,
        summary=_summary(command),
    )
    return render_result(result)


def model_error(error: ActivityError) -> ErrorRecord:
    """Return why the model call failed for good."""
    if isinstance(error.cause, TimeoutError):
        attempts = MODEL_RETRY.maximum_attempts
        text = f"the model call did not end within its {attempts} attempts ({_timeout(error.cause)})"
        return ErrorRecord(type="ModelTimeout", message=text, source="model")
    return call_error(error, "model")


def tool_error(error: ActivityError, traits: ToolTraits) -> ErrorRecord:
    """Return what the model is told about a tool call that failed."""
    if isinstance(error.cause, ApplicationError) and error.cause.type != WORKER_SHUTDOWN:
        return call_error(error, traits.name)
    why = _timeout(error.cause) if isinstance(error.cause, TimeoutError) else "it was interrupted"
    return ended_without_answer(traits, why)


def call_error(error: ActivityError | ApplicationError, source: str) -> ErrorRecord:
    """Return why a call failed, as its activity typed it."""
    cause = error.cause if isinstance(error, ActivityError) else error
    if isinstance(cause, ApplicationError):
        text = clamped(cause.message, ERROR_CHARS_MAX)
        return ErrorRecord(type=cause.type or "ApplicationError", message=text, source=source)
    return error_record(cause or error, source)


def _timeout(error: TimeoutError) -> str:
    return "its worker fell silent" if error.type is TimeoutType.HEARTBEAT else "it took too long"


def _summary(command: CallTool) -> str:
    shown = ", ".join(f"{name}={json.dumps(value)}" for name, value in command.call.arguments.items())
    return clamped(shown, SUMMARY_CHARS_MAX).replace("\n", " ") or "no arguments"
