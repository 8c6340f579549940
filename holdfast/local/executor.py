"""Carries out each command in-process and returns its event. Holds no state of an execution."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from holdfast.core.agent.budget import TreeUse
from holdfast.core.agent.execution_state import ExecutionStatus, call_name, named_id
from holdfast.core.agent.hooks import HookContext
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.toolset import AgentToolset
from holdfast.core.base.bounds import MODEL_GRACE_SECONDS, REASON_CHARS_MAX
from holdfast.core.base.errors import InvalidArguments
from holdfast.core.base.frozen import canonical
from holdfast.core.base.retries import TOOL_RETRIES
from holdfast.core.base.safe_text import clamped
from holdfast.core.conversation.error_records import error_record
from holdfast.core.conversation.input_requests import InputAnswer, InputRequest
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.conversation.steps import ErrorRecord, InferenceResponse
from holdfast.core.conversation.verdicts import Verdict
from holdfast.core.loop.approvals import problem_with_edit
from holdfast.core.loop.commands import (
    CallModel,
    CallTool,
    RequestApproval,
    RequestInput,
    RunHooks,
    SpawnSubagent,
    SummariseBuffer,
)
from holdfast.core.loop.events import (
    ApprovalDecided,
    ApprovalExpired,
    BufferSummarised,
    Event,
    HooksReturned,
    InputAnswered,
    InputExpired,
    ModelAnswered,
    ModelCancelled,
    ModelFailed,
    SubagentReturned,
    SummaryFailed,
    ToolFailed,
)
from holdfast.core.loop.execution_rules import Rules
from holdfast.core.loop.tool_replies import tool_returned
from holdfast.core.tools.call_context import NO_CALL, CallContext
from holdfast.core.tools.tool_context import ToolContext
from holdfast.core.tools.tool_errors import ended_without_answer
from holdfast.core.tools.tool_results import ToolReply
from holdfast.core.tools.tools import AnyTool
from holdfast.core.wire.record_store import AttachmentStore
from holdfast.local.model_calls import ModelCalls, ShownConversation
from holdfast.local.script_calls import advance_script
from holdfast.mcp.tools import failure_record
from holdfast.runtime.argument_check import argument_problem
from holdfast.runtime.hook_runner import run_hooks
from holdfast.runtime.model_call_changes import ModelCallCheck
from holdfast.runtime.model_progress import Progress
from holdfast.runtime.open_resources import NO_RESOURCES, OpenResources
from holdfast.runtime.tool_runner import Results, run_tool
from holdfast.runtime.user_code import was_cancelled

ANSWERER_TRIES_MAX: Final = 3
"""How often a question is put again whose answer does not fit its form."""

APPROVER_TRIES_MAX: Final = 3
"""How often an approver is asked about a call whose edits do not fit its tool; a program might never get it right."""

LOGGER: Final = logging.getLogger(__name__)

Approver = Callable[[ToolCall], Awaitable[Verdict]]
"""Decides about each call that waits for approval; an exception denies the call."""

InputAnswerer = Callable[[ToolCall, InputRequest], Awaitable[InputAnswer]]
"""Answers each question of an agent to a person; an exception leaves it without an answer."""

RunChild = Callable[[SpawnSubagent, AgentState], Awaitable[AgentState]]
"""Runs a subagent to its end."""


@dataclass(frozen=True, slots=True)
class Executor:
    """The side effects of one agent. Every method carries out one command and can be cancelled."""

    rules: Rules
    toolset: AgentToolset
    model_calls: ModelCalls
    approver: Approver | None
    answer_input: InputAnswerer | None
    run_child: RunChild
    clock: Callable[[], datetime]
    results: Results | None = None
    resources: OpenResources = NO_RESOURCES
    attachments: AttachmentStore | None = None
    check: ModelCallCheck | None = None

    async def call_model(self, command: CallModel, state: AgentState) -> Event:
        """Call the model; when cancelled, report its partial answer."""
        progress = Progress()
        task = asyncio.create_task(_answer_or_error(self.model_calls.answer(state, command, progress)))
        try:
            answer = await asyncio.shield(task)
        except asyncio.CancelledError:
            ended, partial = await _cancelled(task), progress.partial()
            if not isinstance(ended, InferenceResponse):  # it did not come to its end just then
                return ModelCancelled(partial=partial, at=self.clock(), failed_usage=progress.failed_usage)
            answer = ended
        if isinstance(answer, ErrorRecord):
            return ModelFailed(error=answer, at=self.clock(), failed_usage=progress.failed_usage)
        return ModelAnswered(response=answer, at=self.clock(), failed_usage=progress.failed_usage)

    async def summarise(self, command: SummariseBuffer, state: AgentState) -> Event:
        """Have the model summarise the buffer."""
        progress = Progress()
        task = asyncio.create_task(_answer_or_error(self.model_calls.summary(state, command, progress)))
        try:
            answer = await asyncio.shield(task)
        except asyncio.CancelledError:
            answer = await _cancelled(task) or ErrorRecord(type="Cancelled", message="the run ended", source="model")
            if isinstance(answer, ErrorRecord):
                progress.fail()  # counts what arrived of it
        if isinstance(answer, ErrorRecord):
            return SummaryFailed(error=answer, at=self.clock(), failed_usage=progress.counted_usage)
        return BufferSummarised(answer.text, answer.usage, self.clock(), progress.failed_usage)

    async def call_tool(self, command: CallTool, state: AgentState) -> Event:
        """Run a tool."""
        if command.script is not None:
            return await advance_script(command, command.script, self.rules, self.toolset, self.clock)
        tool, call = self.toolset.tools[command.call.name], command.call
        execution_id = state.running.execution_id
        key = named_id(execution_id, call_name(command.step_number, command.index))
        # a copy: tools cannot change the state
        call_context = CallContext.model_validate_json(canonical(command.context)) if command.context else NO_CALL
        context = ToolContext.of(call_context, execution_id=execution_id, idempotency_key=key, attempt=1)
        context = replace(context, conversation=ShownConversation(self.model_calls.sent(state)))
        started_at = self.clock()
        try:
            reply = await _attempted(tool, call.arguments, context, self._run_tool)
        except _TookTooLong:
            record = ended_without_answer(tool.traits, "it took too long")
        except Exception as error:  # noqa: BLE001  # whatever a tool raises goes back to the model
            record = failure_record(error, tool.traits)
        else:
            return tool_returned(call.id, reply, started_at, self.clock())
        return ToolFailed(call_id=call.id, error=record, started_at=started_at, at=self.clock())

    async def _run_tool(self, tool: AnyTool, arguments: Mapping[str, Any], context: ToolContext) -> ToolReply:
        """Make one attempt of a call."""
        results, attachments = self.results, self.attachments
        return await run_tool(
            tool, arguments, context, results=results, resources=self.resources, attachments=attachments
        )

    async def run_hooks(self, command: RunHooks) -> Event:
        """Run the hooks of one place."""
        shown = HookContext.model_validate_json(canonical(command.context))  # a copy: hooks cannot change the state
        room, resources, check = command.changes_bytes_max, self.resources, self.check
        runs = await run_hooks(self.toolset.hooks, command.hooks, shown, room, resources=resources, check=check)
        call = command.context.call
        return HooksReturned(command.context.trigger, call.id if call else None, tuple(runs), self.clock())

    async def ask_approval(self, command: RequestApproval) -> Event:
        """Ask the approver; without one, wait for a decision from elsewhere, or until the request expires."""
        expires_at = command.expires_at
        limit = asyncio.timeout(None if expires_at is None else (expires_at - self.clock()).total_seconds())
        try:
            async with limit:
                verdict = await self._verdict(command)
        except Exception as error:  # noqa: BLE001  # a call without a decision does not run
            if expires_at is not None and limit.expired():
                return ApprovalExpired(call_id=command.call.id, at=max(self.clock(), expires_at))
            record = error_record(error, "approver")
            why = clamped(f"{record.type}: {record.message}", REASON_CHARS_MAX)
            verdict = Verdict(decision="deny", by="approver", reason=why)
        return ApprovalDecided(call_id=command.call.id, verdict=verdict, at=self.clock())

    async def _verdict(self, command: RequestApproval) -> Verdict:
        """Ask the approver, again where it edits the call so that it does not fit its tool.

        Raises InvalidArguments when it does so too often, and whatever the approver raises.
        """
        problem, call = None, command.call
        for _ in range(APPROVER_TRIES_MAX):
            verdict = _checked(await (self.approver or _nobody)(call), call)
            if (problem := self.edit_problem(command, verdict)) is None:
                return verdict
            LOGGER.warning("the approver's edit of %s does not fit and is asked for again: %s", call.name, problem)
        raise InvalidArguments(f"{APPROVER_TRIES_MAX} edits did not fit; the last one: {problem}")

    def edit_problem(self, request: RequestApproval, verdict: Verdict) -> str | None:
        """Return what is wrong with the arguments of an edit, if anything: by the core's rules, and by the tool's."""
        if verdict.arguments is None:
            return None
        problem = problem_with_edit(self.rules, request.call, verdict, request.call_count)
        tool = self.toolset.tools.get(request.call.name)
        return problem if problem is not None or tool is None else argument_problem(tool, verdict.arguments)

    async def ask_person(self, command: RequestInput, state: AgentState) -> Event:
        """Ask what a call of the agent asks a person, at most until it expires."""
        call, at = command.call, command.expires_at
        [request] = (each.input_request for each in state.input_calls if each.call.id == call.id)
        limit = asyncio.timeout((at - self.clock()).total_seconds())
        try:
            async with limit:
                answer = await self._input_answer(call, request)
        except Exception as error:  # the model goes on without an answer
            if limit.expired():
                return InputExpired(call_id=call.id, at=max(self.clock(), at))
            LOGGER.warning("answer_input left the question of %s without an answer", call.name, exc_info=error)
            answer = InputAnswer(action="cancel", by="answer_input")
        return InputAnswered(call.id, answer, self.clock())

    async def _input_answer(self, call: ToolCall, request: InputRequest | None) -> InputAnswer:
        """Return an answer that fits. Raises InvalidArguments after too many others, and what the answerer raises."""
        if self.answer_input is None or request is None:
            raise InvalidArguments("nobody is there to answer; give the driver answer_input=")
        problem = None
        for _ in range(ANSWERER_TRIES_MAX):
            answer = await self.answer_input(call, request)
            if (problem := request.problem(answer)) is None:
                return answer
        raise InvalidArguments(f"{ANSWERER_TRIES_MAX} answers did not fit; the last one: {problem}")

    async def spawn(self, command: SpawnSubagent, state: AgentState) -> Event:
        """Run a subagent; when cancelled, report what it used."""
        started_at = self.clock()
        try:
            child = await self.run_child(command, state)
        except Exception as error:  # noqa: BLE001  # a subagent that cannot be started has failed
            record = error_record(error, command.agent)
            why = f"{record.type}: {record.message}"
            return SubagentReturned(
                command.call_id, ExecutionStatus.FAILED, "", why, TreeUse(), started_at, self.clock()
            )
        return SubagentReturned(
            call_id=command.call_id,
            status=child.status,
            answer=child.current_response,
            why=child.stop_signal.message if child.stop_signal else "",
            used=child.running.used,
            started_at=started_at,
            at=self.clock(),
        )


async def _cancelled(task: asyncio.Task[InferenceResponse | ErrorRecord]) -> InferenceResponse | ErrorRecord | None:
    """Cancel a model call; return its result if it ended by itself just then."""
    task.cancel()
    await asyncio.wait([task], timeout=MODEL_GRACE_SECONDS)
    return task.result() if task.done() and not task.cancelled() else None


async def _answer_or_error(call: Awaitable[InferenceResponse]) -> InferenceResponse | ErrorRecord:
    """Return the model's answer, or the error that its client raised, as data."""
    try:
        return await call
    except BaseException as error:
        if was_cancelled(error):
            raise
        return error_record(error, "model")


def _checked(verdict: object, call: ToolCall) -> Verdict:
    if not isinstance(verdict, Verdict):
        raise TypeError(f"the approver gave a {type(verdict).__name__}; return Verdict(decision=...)")
    if verdict.digest not in (None, call.digest):  # it would decide nothing, and the approver is not asked again
        raise ValueError("the approver's decision is about a call of another digest; return digest=call.digest")
    return verdict


async def _nobody(call: ToolCall) -> Verdict:  # noqa: ARG001  # an Approver
    await asyncio.Event().wait()
    raise AssertionError("that event is never set")


class _TookTooLong(Exception):
    """No attempt of a tool call ended in time."""


async def _attempted(
    tool: AnyTool,
    arguments: Mapping[str, Any],
    context: ToolContext,
    run: Callable[[AnyTool, Mapping[str, Any], ToolContext], Awaitable[ToolReply]],
) -> ToolReply:
    """Run the tool; retry as often as its traits allow, after a timeout or an error that it retries on."""
    limit = asyncio.timeout(tool.traits.timeout_seconds)
    last = context.attempt >= tool.traits.attempts_max
    try:
        async with limit:
            return await run(tool, arguments, context)
    except Exception as error:
        if limit.expired() and isinstance(error, TimeoutError):
            if last:
                raise _TookTooLong from None
        elif last or not tool.tries_again(error):
            raise
    await asyncio.sleep(TOOL_RETRIES.wait_seconds(context.attempt))
    return await _attempted(tool, arguments, replace(context, attempt=context.attempt + 1), run)
