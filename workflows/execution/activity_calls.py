"""Turns the core's model and tool calls into activities. Decides nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final, cast

from pydantic import JsonValue
from pydantic_core import to_json
from temporalio import workflow
from temporalio.common import Priority, RawValue, RetryPolicy
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    FailureError,
    is_cancelled_exception,
)
from temporalio.workflow import ActivityCancellationType

from holdfast.core.agent.definition import LLM, AgentDefinition
from holdfast.core.agent.execution_state import call_name, input_name
from holdfast.core.agent.hooks import HookRun, Trigger
from holdfast.core.agent.model import BackgroundAnswer
from holdfast.core.base.bounds import ERROR_CHARS_MAX, LATE_SECONDS, SEGMENT_BYTES_MIN, WORD_CHARS_MAX
from holdfast.core.base.frozen import replace
from holdfast.core.base.model_retry import ModelRetry
from holdfast.core.base.retries import MODEL_BACK_OFF, MODEL_SECONDS_MAX, RATE_WAIT_SECONDS_MAX, TOOL_RETRIES
from holdfast.core.base.safe_text import clamped
from holdfast.core.conversation.attachments import Attachment
from holdfast.core.conversation.attempt_tally import LOST_ATTEMPTS_MAX
from holdfast.core.conversation.error_records import error_record
from holdfast.core.conversation.steps import ErrorRecord
from holdfast.core.loop.commands import CallModel, CallTool, RunHooks, SummariseBuffer
from holdfast.core.tools.call_context import CallContext
from holdfast.core.tools.tool_results import StopRun, ToolReply, is_json, reply_of, with_files_and_structure
from holdfast.core.tools.tool_traits import ToolTraits
from holdfast.core.wire.argument_check_contracts import CHECK_ARGUMENTS_ACTIVITY, ArgumentsCheck, ArgumentsChecked
from holdfast.core.wire.contracts import (
    CALL_MCP_TOOL_ACTIVITY,
    CANCEL_ANSWER_ACTIVITY,
    INFERENCE_ACTIVITY,
    REPLY_KIND,
    RESOLVE_TOOLS_ACTIVITY,
    RUN_HOOKS_ACTIVITY,
    SUMMARISE_ACTIVITY,
    TAKE_UP_ACTIVITY,
    TOOLS_BUSY,
    HooksRan,
    HooksRequest,
    InferenceAnswer,
    InferenceInput,
    PickupTime,
    SummaryInput,
    SummaryText,
    waiting_queue,
)
from holdfast.core.wire.mcp_contracts import INPUT_NEEDED, McpCall, McpInputNeeded, McpResolved, McpSearch
from holdfast.core.wire.tool_catalog import ToolCatalog, ToolsRequest
from workflows import summaries
from workflows.execution.call_errors import call_error
from workflows.execution.model_queue import ModelQueue
from workflows.shielding import locally, outcome
from workflows.timeouts import RESOLVE

HEARTBEAT_TIMEOUT: Final = timedelta(seconds=30)
"""A worker that is silent for so long is lost with its machine: if it dies alone, its guardian reports it at once."""

REMOTE_HEARTBEAT_TIMEOUT: Final = timedelta(seconds=2.5)
"""The same for a worker in another language, which has no guardian and declares that it heartbeats."""

START_MARGIN: Final = timedelta(seconds=30)
"""How much longer than its own time a tool's attempt may take: our workers count from when the tool begins."""

MODEL_TIMEOUT: Final = timedelta(seconds=MODEL_SECONDS_MAX + 60)
"""One attempt of a model call: a minute to read its input, then MODEL_SECONDS_MAX, after which its worker ends it."""

QUEUED_MODEL_TIMEOUT: Final = MODEL_TIMEOUT + timedelta(seconds=RATE_WAIT_SECONDS_MAX)
"""The same of a call to a route with rate limits: it may wait for them in its worker."""

MODEL_RETRY: Final = RetryPolicy(
    initial_interval=timedelta(seconds=MODEL_BACK_OFF.first_seconds),
    maximum_interval=timedelta(seconds=MODEL_BACK_OFF.longest_seconds),
)
"""For attempts whose worker was lost. Other failures set their next wait, or are final: the clock alone ends a
model call (`activities.retry_deadline`)."""

CANCEL_ANSWER_TIMEOUT: Final = timedelta(seconds=3)
"""How long a call that is over waits at most until its answer is cancelled at the provider."""

LATE_MARGIN: Final = timedelta(seconds=LATE_SECONDS)
"""How much longer than the run's time limit the server waits for a call.

So the time limit's own timer cancels the call, and the worker learns of it at once. No attempt begins in that margin:
our workers refuse it (`activities.stale_attempts`).
"""

HOOKS_MARGIN: Final = timedelta(seconds=1)
"""The time that running hooks may take besides the hooks themselves."""

MODEL_CHECK_MARGIN: Final = timedelta(seconds=10)
"""The same for a check of the model that hooks want to be asked instead: a vendor's client takes seconds to import."""


async def resolve_tools(
    definition: AgentDefinition, mcp: McpResolved | None, files: Iterable[Attachment] = ()
) -> ToolCatalog:
    """Return the agent's tools as this worker offers them; recorded once, so that a run keeps its tools.

    `files` are those that its messages came with: a worker whose model does not take them refuses the run.
    """
    request = ToolsRequest.of(definition, workflow.now(), mcp.catalog if mcp else None, files)
    catalog: ToolCatalog = await locally(
        workflow.execute_local_activity(
            RESOLVE_TOOLS_ACTIVITY,
            request,
            result_type=ToolCatalog,
            start_to_close_timeout=RESOLVE.attempt,
            schedule_to_close_timeout=RESOLVE.total,
            retry_policy=RESOLVE.retry,
            summary=f"tools and hooks that {definition.name} gets here",
        )
    )
    return replace(catalog, mcp_changes=mcp.changes) if mcp else catalog


async def check_arguments(tool: str, arguments: Mapping[str, JsonValue], mcp: str | None) -> str | None:
    """Return the problem with edited arguments, recorded; none also where no worker can check them.

    The tool call itself makes the same check once more.
    """
    try:
        checked: ArgumentsChecked = await locally(
            workflow.execute_local_activity(
                CHECK_ARGUMENTS_ACTIVITY,
                ArgumentsCheck(tool=tool, arguments=arguments, mcp=mcp),
                result_type=ArgumentsChecked,
                start_to_close_timeout=RESOLVE.attempt,
                schedule_to_close_timeout=RESOLVE.total,
                retry_policy=RESOLVE.retry,
                summary=f"do the edited arguments fit {tool}?",
            )
        )
    except FailureError:
        return None
    return checked.problem


async def take_up() -> PickupTime:
    """Return the time at which a worker takes this run up, recorded."""
    pickup: PickupTime = await locally(
        workflow.execute_local_activity(
            TAKE_UP_ACTIVITY,
            PickupTime(at=workflow.now()),
            result_type=PickupTime,
            start_to_close_timeout=RESOLVE.attempt,
            schedule_to_close_timeout=RESOLVE.total,
            retry_policy=RESOLVE.retry,
            summary="when a worker took this run up",
        )
    )
    return pickup


async def call_model(
    command: CallModel,
    request: InferenceInput,
    time_left: timedelta | None,
    caption: str,
    queue: ModelQueue | None = None,
) -> InferenceAnswer:
    """Call the model, within the time that the run has left; raises ActivityError.

    In a `queue` it waits as long as the run's time allows.

    Cancelling ends the call; it then returns the partial answer, as soon as the worker reports it.
    """
    answer: InferenceAnswer = await outcome(
        workflow.start_activity(
            INFERENCE_ACTIVITY,
            request,
            result_type=InferenceAnswer,
            activity_id=call_name(command.step_number),
            task_queue=queue.name if queue else None,
            priority=queue.priority if queue else Priority.default,
            start_to_close_timeout=QUEUED_MODEL_TIMEOUT if queue else MODEL_TIMEOUT,
            schedule_to_close_timeout=_until_late(time_left),
            heartbeat_timeout=HEARTBEAT_TIMEOUT,
            retry_policy=MODEL_RETRY,
            cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            summary=caption,
        )
    )
    return answer


async def summarise(
    command: SummariseBuffer,
    llm: LLM,
    patience_seconds: float,
    time_left: timedelta | None,
    queue: ModelQueue | None = None,
) -> SummaryText:
    """Have the buffer summarised, within the time that the run has left; raises ActivityError."""
    summary: SummaryText = await outcome(
        workflow.start_activity(
            SUMMARISE_ACTIVITY,
            SummaryInput(
                llm=llm,
                max_output_tokens=command.max_output_tokens,
                room=command.room,
                input_weight=command.input_weight,
                patience_seconds=patience_seconds,
                input_max=command.input_max,
            ),
            result_type=SummaryText,
            activity_id=summary_name(command.step_number),
            task_queue=queue.name if queue else None,
            priority=queue.priority if queue else Priority.default,
            start_to_close_timeout=QUEUED_MODEL_TIMEOUT if queue else MODEL_TIMEOUT,
            schedule_to_close_timeout=_until_late(time_left),
            heartbeat_timeout=HEARTBEAT_TIMEOUT,
            retry_policy=MODEL_RETRY,
            cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            summary=summaries.of_summary(command.step_number),
        )
    )
    return summary


async def cancel_answer(answer: BackgroundAnswer, call: str) -> None:
    """Have an answer cancelled that the attempts of a stopped call left under way at the provider, if that can be."""
    with suppress(ActivityError):  # the run ends all the same
        await workflow.execute_activity(
            CANCEL_ANSWER_ACTIVITY,
            answer,
            schedule_to_close_timeout=CANCEL_ANSWER_TIMEOUT,
            retry_policy=RetryPolicy(maximum_attempts=1),
            summary=summaries.of_cancelled_answer(call),
        )


def summary_name(step_number: int) -> str:
    """Return the id of the summary activity before the model call of that step."""
    return f"step-{step_number}-summary"


async def run_hooks(command: RunHooks) -> tuple[HookRun, ...]:
    """Run the hooks of one place as one local activity: it costs one event, and its input is in no history."""
    longest = timedelta(seconds=sum(traits.timeout_seconds for traits in command.hooks)) + HOOKS_MARGIN
    if command.context.trigger is Trigger.BEFORE_INFERENCE:
        longest += MODEL_CHECK_MARGIN
    try:
        ran: HooksRan = await locally(
            workflow.execute_local_activity(
                RUN_HOOKS_ACTIVITY,
                HooksRequest(hooks=command.hooks, context=command.context, changes_bytes_max=command.changes_bytes_max),
                result_type=HooksRan,
                activity_id=command.name,
                schedule_to_close_timeout=longest,
                retry_policy=RetryPolicy(maximum_attempts=1),
                summary=summaries.of_hooks(command),
            )
        )
    except FailureError as error:  # in a replay it is not wrapped in ActivityError
        if is_cancelled_exception(error):
            raise
        failure = call_error(error, "hooks")
        text = f"the hooks at {command.context.trigger} did not end: {failure.message}"
        return (
            HookRun(name=command.hooks[0].name, error=ErrorRecord(type="HookFailed", message=text, source="hooks")),
        )
    return ran.runs


async def call_tool(
    command: CallTool, traits: ToolTraits, time_left: timedelta | None, mcp: McpCall | McpSearch | None = None
) -> ToolReply | McpInputNeeded:
    """Run the tool; its input is the arguments alone, so that any language can serve it. Raises ActivityError.

    Behind the arguments, one of ours that takes a ToolContext gets what that knows of the call. One of an MCP server
    gets `mcp` instead.

    Its result is any JSON value. An object with `"kind": "holdfast.reply"` and `text` says more: `"type": "json"` that
    the text is JSON, `stop`, with a `context`, that the run is to stop, `metadata` what changes in the agent's.
    """
    arguments: tuple[object, ...] = (
        command.call.arguments,
        *(_carried(command.context) if command.context else ()),
    )
    if mcp is not None:
        arguments = (mcp,)
    if traits.local:
        return _reply(await _local_tool(command, traits, time_left, arguments), traits)
    try:
        result = await _tool_on(traits.task_queue, command, traits, time_left, traits.attempts_max, arguments)
    except ActivityError as error:
        used = _used_when_refused(error)
        if traits.task_queue is not None or used is None:
            raise
        queue = waiting_queue(workflow.info().task_queue)
        result = await _tool_on(queue, command, traits, time_left, traits.attempts_max - used, arguments)
    value = _read(result, command, traits)
    needed = _input_needed(value) if traits.mcp is not None else None
    return needed or _reply(value, traits)


def _input_needed(value: object) -> McpInputNeeded | None:
    fields = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    return McpInputNeeded.model_validate(fields) if fields.get("kind") == INPUT_NEEDED else None


def _carried(context: CallContext) -> tuple[object, ...]:
    """Return what a call's input has of its context: long metadata apart, as bytes, stored once outside the history."""
    data = to_json(context.metadata)
    return (context,) if len(data) < SEGMENT_BYTES_MIN else (replace(context, metadata={}), data)


def _used_when_refused(error: ActivityError) -> int | None:
    """Return how many attempts a call used that our worker refused for lack of a slot; none for other failures.

    A tool's own error can have that type too, but never details.
    """
    refused = error.cause
    if isinstance(refused, ApplicationError) and refused.type == TOOLS_BUSY and refused.details:
        return int(cast("int", refused.details[0]))
    return None


async def _tool_on(  # each of them is the call's own
    task_queue: str | None,
    command: CallTool,
    traits: ToolTraits,
    time_left: timedelta | None,
    attempts_max: int,
    arguments: Sequence[object],
) -> RawValue:
    result: RawValue = await workflow.execute_activity(
        traits.name if traits.mcp is None else CALL_MCP_TOOL_ACTIVITY,
        args=arguments,
        result_type=RawValue,  # the SDK would fail the whole run for an unreadable one
        task_queue=task_queue,
        activity_id=input_name(call_name(command.step_number, command.index), command.round),
        start_to_close_timeout=_attempt_timeout(traits),
        schedule_to_start_timeout=timedelta(seconds=traits.queue_seconds_max) if traits.queue_seconds_max else None,
        schedule_to_close_timeout=_until_late(time_left) if traits.heartbeats else time_left,
        heartbeat_timeout=_heartbeat_timeout(traits),
        retry_policy=_tool_retry(_counted_by_server(traits, attempts_max), remote=traits.remote),
        cancellation_type=ActivityCancellationType.TRY_CANCEL,
        summary=summaries.of_tool_call(command),
    )
    return result


def _attempt_timeout(traits: ToolTraits) -> timedelta:
    return timedelta(seconds=traits.timeout_seconds) + (timedelta() if traits.remote else START_MARGIN)


def _counted_by_server(traits: ToolTraits, attempts_max: int) -> int:
    """Return how many attempts the server makes; our workers count those that the tool itself failed."""
    once = traits.at_most_once and not traits.resumable  # ours refuse to call a resumable one twice
    return attempts_max if traits.remote or once else attempts_max + LOST_ATTEMPTS_MAX


def _heartbeat_timeout(traits: ToolTraits) -> timedelta | None:
    if not traits.heartbeats:
        return None
    return REMOTE_HEARTBEAT_TIMEOUT if traits.remote else HEARTBEAT_TIMEOUT


async def _local_tool(
    command: CallTool, traits: ToolTraits, time_left: timedelta | None, arguments: Sequence[object]
) -> object:
    """Run the tool within the workflow task: only its result enters the history."""
    try:
        result: object = await locally(
            workflow.execute_local_activity(
                traits.name,
                args=arguments,
                activity_id=call_name(command.step_number, command.index),
                start_to_close_timeout=timedelta(seconds=traits.timeout_seconds),
                schedule_to_close_timeout=time_left,
                retry_policy=_tool_retry(traits.attempts_max),
                summary=summaries.of_tool_call(command),
            )
        )
    except ActivityError:
        raise
    except FailureError as error:  # in a replay a local activity's failure is not wrapped
        raise _failed_call(error, command, traits) from error
    return result


def _until_late(time_left: timedelta | None) -> timedelta | None:
    return None if time_left is None else time_left + LATE_MARGIN


def _read(result: RawValue, command: CallTool, traits: ToolTraits) -> object:
    """Return the value of a result, which any worker in any language may have written.

    Raises ActivityError, so that the model learns that the tool ran and its result cannot be read.
    """
    try:
        value: object = workflow.payload_converter().from_payload(result.payload, object)
    except Exception as error:  # noqa: BLE001  # whatever the bytes make a decoder raise
        text = f"the tool has run, but what it returned cannot be read: {error_record(error, traits.name).message}"
        unreadable = ApplicationError(clamped(text, ERROR_CHARS_MAX), type="UnreadableResult", non_retryable=True)
        raise _failed_call(unreadable, command, traits) from unreadable
    return value


def _failed_call(error: FailureError, command: CallTool, traits: ToolTraits) -> ActivityError:
    """Return an ActivityError for a failed call, to be raised from `error`."""
    return ActivityError(
        error.message,
        scheduled_event_id=0,
        started_event_id=0,
        identity="",
        activity_type=traits.name,
        activity_id=call_name(command.step_number, command.index),
        retry_state=None,
    )


def _tool_retry(attempts_max: int, *, remote: bool = False) -> RetryPolicy:
    return RetryPolicy(
        initial_interval=timedelta(seconds=TOOL_RETRIES.first_seconds),
        maximum_interval=timedelta(seconds=TOOL_RETRIES.longest_seconds),
        maximum_attempts=attempts_max,
        # our own workers say of each failure whether it is retried
        non_retryable_error_types=[ModelRetry.__name__] if remote else None,
    )


def _reply(result: object, traits: ToolTraits) -> ToolReply:
    if not isinstance(result, dict):
        return reply_of(result)
    fields = cast("dict[str, object]", result)
    if fields.get("kind") != REPLY_KIND:
        return reply_of(fields)
    text, stop, metadata = fields.get("text", ""), fields.get("stop"), fields.get("metadata")
    stopping = StopRun(text, str(stop), cast("dict[str, JsonValue]", fields.get("context") or {}))
    reply = reply_of(text if stop is None else stopping)
    # the JSON comes as the text that the model sees, byte for byte; any other language may send the value instead
    if fields.get("type") == "json" and reply.text == text and is_json(reply.text):
        reply = replace(reply, result_type="json")
    if traits.mcp is not None and isinstance(process := fields.get("mcp_process"), str):
        reply = replace(reply, mcp_process=process[:WORD_CHARS_MAX])
    if not traits.remote:
        reply = with_files_and_structure(reply, fields)
    # the loop checks them: a worker in another language can have written anything
    return replace(reply, metadata=cast("dict[str, JsonValue]", metadata)) if isinstance(metadata, dict) else reply
