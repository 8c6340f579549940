"""Model calls as activities: `inference`, `summarise`. Temporal retries them; the workflow owns the conversation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeVar

from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from activities.async_completion import heartbeat_directly
from activities.heartbeats import pulse
from activities.instrumented_model import InstrumentedModel
from activities.retry_deadline import SIGNAL_TIMEOUT, RetryDeadline
from activities.run_queries import RUN_UNREADABLE, RunPaused, ask_run
from activities.stale_attempts import is_final
from activities.tools import PinnedTools
from activities.transcript_cache import Transcript, TranscriptCache
from holdfast.core.agent.capability_bundles import prompt_functions
from holdfast.core.agent.capability_prompts import PromptContext, with_prompts
from holdfast.core.agent.context_view import NO_FACTS, CompilerContext
from holdfast.core.agent.model import MODEL_EXITED, BackgroundAnswer, Model, ModelRequest
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.bounds import SUMMARY_BYTES_MAX
from holdfast.core.base.errors import CompilerFailed, ModelFailure
from holdfast.core.base.frozen import replace
from holdfast.core.base.retries import OutputLimits, give_up_text
from holdfast.core.base.safe_text import clamped_json
from holdfast.core.base.usage import NOTHING_USED, Usage
from holdfast.core.conversation.attempt_tally import lost_for_good
from holdfast.core.conversation.error_records import error_record
from holdfast.core.conversation.messages import Message
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.core.tools.tools import AnyTool
from holdfast.core.wire.contracts import (
    BUFFER_QUERY,
    CANCEL_ANSWER_ACTIVITY,
    INFERENCE_ACTIVITY,
    SPENT_SIGNAL,
    SUMMARISE_ACTIVITY,
    TRANSCRIPT_QUERY,
    BufferPage,
    FailedAttemptsUsage,
    InferenceAnswer,
    InferenceInput,
    SummaryInput,
    SummaryText,
    TranscriptPage,
    TranscriptRequest,
    route_of_queue,
)
from holdfast.core.wire.record_store import AttachmentStore
from holdfast.core.wire.transcript_digest import TranscriptPrefix
from holdfast.runtime.answer_check import checked
from holdfast.runtime.background_answers import give_up, resume_or_ask
from holdfast.runtime.files.file_parts import with_files
from holdfast.runtime.model_call_changes import offered_tools, with_prompt
from holdfast.runtime.model_progress import CANCELLED, Progress
from holdfast.runtime.remote_tool_checks import checked_calls, checked_catalog_calls
from holdfast.runtime.stored_items import with_items_stored, with_stored_items

if TYPE_CHECKING:  # an extra
    from holdfast.telemetry.spans import Spans

AnswerT = TypeVar("AnswerT")

QUERY_TIMEOUT: Final = timedelta(seconds=10)
"""How long one query to the workflow (a page of the transcript, the buffer) may take; then the attempt fails."""

PAUSED_WAIT: Final = timedelta(seconds=5)
"""How long after an attempt the next one looks whether a paused run goes on."""


class Inference:
    """The model calls with their dependencies: the endpoint, the tools' schemas, the transcripts."""

    def __init__(
        self,
        model: Model,
        toolset: Toolset,
        cache: TranscriptCache,
        spans: Spans | None = None,
        mcp: PinnedTools | None = None,
        attachments: AttachmentStore | None = None,
    ) -> None:
        self._model, self._own_model = InstrumentedModel(model, spans), model
        self._tools = {tool.name: tool for tool in toolset.tools}
        self._compilers = {compiler.name: compiler for compiler in toolset.compilers}
        self._capabilities = toolset.capabilities
        self._cache = cache
        self._mcp = mcp
        self._attachments = attachments

    @activity.defn(name=INFERENCE_ACTIVITY)
    async def run(self, call: InferenceInput) -> InferenceAnswer:
        """Call the model and return its answer; `holdfast.models.provider_errors` lists the failures.

        When cancelled, it ends the call and returns the partial answer. The usage of failed attempts travels in the
        heartbeat details and is counted in the answer; a failure carries it as its details.
        """
        progress, patience = _observed(call)
        started_at = monotonic()
        try:
            response = await self._typed_failures(self._answer(call, progress), progress, patience)
        except asyncio.CancelledError:
            await self._cancel_background(progress)
            progress.end()
            # WAIT_CANCELLATION_COMPLETED: what a cancelled activity returns reaches the workflow
            partial, failed = progress.partial(), progress.failed_usage
            if _is_put_off():
                await _signal_usage(progress.usage_if_lost, progress.background)
            if (partial is None and failed == NOTHING_USED) or not _is_cancelled_by_run():
                raise
            response = partial or InferenceResponse(finish_reason=CANCELLED)
            return InferenceAnswer(response=response, complete=False, failed_usage=failed)
        return InferenceAnswer(
            response=response,
            failed_usage=progress.failed_usage,
            seconds=round(monotonic() - started_at - progress.waited_seconds, 3),
        )

    @activity.defn(name=SUMMARISE_ACTIVITY)
    async def summarise(self, call: SummaryInput) -> SummaryText:
        """Have the model summarise the messages in the run's buffer; failures have the types of `run`.

        The usage covers all attempts. When cancelled, it returns no text and the usage so far.
        """
        progress, patience = _observed(call)
        try:
            response = await self._typed_failures(self._summary(call, progress), progress, patience)
        except asyncio.CancelledError:
            await self._cancel_background(progress)
            used = progress.fail()
            if _is_put_off():
                await _signal_usage(used, progress.background)
            if used == NOTHING_USED or not _is_cancelled_by_run():
                raise
            return SummaryText(text="", usage=used)
        usage = response.usage + progress.failed_usage
        return SummaryText(text=clamped_json(response.text, SUMMARY_BYTES_MAX), usage=usage)

    async def _answer(self, call: InferenceInput, progress: Progress) -> InferenceResponse:
        transcript = await self._cache.transcript(activity.info().workflow_id or "", call, _fetch)
        opening = transcript.opening
        compiler, tools = opening.definition.context.compiler, await self._offered(opening)
        llm = opening.definition.llm if call.llm is None else opening.definition.llm.with_difference(call.llm)
        request = ModelRequest(
            llm=llm,
            system_prompt=self._system_prompt(opening, call),
            messages=await with_files(
                await with_stored_items(with_prompt(self._compiled(transcript, call), call.prompt), self._attachments),
                self._attachments,
                opening.definition.context,
                lambda: self._model.file_kinds(llm),
            ),
            tools=offered_tools((*(tool.schema for tool in tools.values()), *opening.own_tools), call.offered),
            max_output_tokens=call.max_output_tokens,
            response_format=opening.definition.response_format,
            listener=progress.add,
            # what a compiler or a prompt's function adds was not counted by the workflow
            input_max=call.input_max if compiler is None and not opening.prompts else None,
            may_fall_back=call.may_fall_back,
        )
        answer = await with_items_stored(await self._response(request, call, progress), self._attachments)
        answer = checked_calls(answer, tools.values())
        if opening.search and opening.mcp is not None and self._mcp is not None:
            answer = checked_catalog_calls(answer, await self._mcp.pinned_tools(opening.mcp))
        return checked(answer, request.response_format)

    async def _response(self, request: ModelRequest, limits: OutputLimits, progress: Progress) -> InferenceResponse:
        """Call the model, with no more output than the previous attempts have left.

        Raises RunPaused in a run that was paused and then, as far as is known, stopped: it asks the model no more.
        """
        if pulse().repetition.waits_to_stop:
            raise RunPaused(activity.info().workflow_id or "")
        progress.count_unreported(limits, request)

        async def ask(request: ModelRequest) -> InferenceResponse:
            await pulse().tell()
            return await self._model(request)

        report = asyncio.create_task(_report_background(progress)) if request.llm.background else None
        try:
            return await resume_or_ask(ask, request, limits, progress)
        finally:
            if report is not None:
                report.cancel()

    @activity.defn(name=CANCEL_ANSWER_ACTIVITY)
    async def cancel(self, answer: BackgroundAnswer) -> None:
        """Cancel the answer in the background that a stopped call has left behind; failures are logged."""
        progress = Progress()
        progress.background = answer
        await give_up(self._own_model, progress)

    async def give_up(self, heartbeat_details: Sequence[Any]) -> None:
        """Cancel the answer in the background that the heartbeats of an attempt name: its run is over."""
        await give_up(self._own_model, Progress.after(heartbeat_details))

    async def _cancel_background(self, progress: Progress) -> None:
        """Cancel the answer in the background of an attempt that was cancelled, unless another attempt follows."""
        if progress.background is not None and await is_final():
            await give_up(self._own_model, progress)

    async def _typed_failures(self, answer: Awaitable[AnswerT], progress: Progress, patience: RetryDeadline) -> AnswerT:
        """Return the answer, or raise a failure that has its type and the usage."""
        try:
            return await answer
        except RunPaused as why:
            raise await _paused_failure(why, progress, patience) from None
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001  # these two would end the worker
            raised = _as_failure(error)
        raise await _failure(raised, progress, patience, self._own_model) from None

    def _compiled(self, transcript: Transcript, call: InferenceInput) -> Sequence[Message]:
        definition = transcript.opening.definition
        name = definition.context.compiler
        if name is None:
            return transcript.messages
        if name not in self._compilers:
            raise CompilerFailed(f"the compiler {name!r} is not offered by this worker any more; restart the right one")
        return self._compilers[name].apply(
            CompilerContext.of(
                transcript.messages,
                definition.context,
                activity.info().workflow_id or "",
                metadata=call.metadata or {},
                system_prompt=definition.system_prompt,
                run=call.run or NO_FACTS,
            )
        )

    def _system_prompt(self, opening: TranscriptPrefix, call: InferenceInput) -> str:
        """Return the system prompt with what functions of its capabilities add. Raises CompilerFailed."""
        prompt = opening.definition.system_prompt
        if not opening.prompts:
            return prompt
        execution_id = activity.info().workflow_id or ""
        context = PromptContext(call.metadata or {}, prompt, execution_id, call.run or NO_FACTS)
        return with_prompts(prompt_functions(opening.definition, self._capabilities), context)

    async def _offered(self, opening: TranscriptPrefix) -> dict[str, AnyTool]:
        """Return the agent's tools by name, in the order in which the model is offered them. Raises StorageFailed."""
        here: Mapping[str, AnyTool] = self._tools
        if opening.mcp is not None and self._mcp is not None:
            here = {**here, **{tool.name: tool for tool in await self._mcp.pinned_tools(opening.mcp)}}
        return {name: here[name] for name in opening.tools if name in here}

    async def _summary(self, call: SummaryInput, progress: Progress) -> InferenceResponse:
        buffer = await _query_result(BUFFER_QUERY, BufferPage)
        request = ModelRequest(
            llm=replace(call.llm, server_tools=()),
            system_prompt="",
            messages=buffer.messages,
            tools=(),
            max_output_tokens=call.max_output_tokens,
            listener=progress.add,
            input_max=call.input_max,
        )
        return await self._response(request, call, progress)


def _observed(call: InferenceInput | SummaryInput) -> tuple[Progress, RetryDeadline]:
    """Continue from the previous attempt's progress, and make the heartbeats carry this attempt's.

    Raises ApplicationError for a call that is lost with its worker again and again: it may be what kills the workers.
    """
    info = activity.info()
    progress = Progress.after(info.heartbeat_details, info.attempt)
    # Temporal counts attempts of lost workers and of failures alike; only we know which were which
    losses, seconds = info.attempt - 1 - progress.failures, (info.started_time - info.scheduled_time).total_seconds()
    if lost_for_good(losses, seconds):
        progress.count_unreported(call)  # to make the request may be what kills the workers
        text = f"the model call was lost with its worker {losses} times in {seconds:.0f} s; what ends its workers?"
        raise ApplicationError(text, progress.counted_usage, type="ModelTimeout", non_retryable=True)
    patience = RetryDeadline(call.patience_seconds, progress.begun_at)
    if info.attempt > 1 and route_of_queue(info.task_queue) is not None:
        patience.leave_out((info.started_time - info.current_attempt_scheduled_time).total_seconds())
    progress.begun_at = patience.begun_at

    def spent() -> FailedAttemptsUsage | None:
        used = progress.usage_if_lost
        if used == NOTHING_USED:
            return None
        return FailedAttemptsUsage(call=info.activity_id, usage=used, background=progress.background)

    pulse().carry(progress.details, spent)
    return progress, patience


def _is_cancelled_by_run() -> bool:
    """Return whether the workflow cancelled this call; after a pause, timeout or worker shutdown it is retried."""
    why = activity.cancellation_details()
    # several flags can be set at once; a call that is retried must not return a result
    return why is not None and why.cancel_requested and not (why.worker_shutdown or why.not_found or why.paused)


def _is_put_off() -> bool:
    """Return whether the call is made again because its worker ends or by an operator's wish: a stop may come first."""
    why = activity.cancellation_details()
    if why is None or why.not_found or why.timed_out:  # the server goes by what it has of this attempt
        return False
    return why.worker_shutdown or why.paused or why.reset


def _as_failure(error: BaseException) -> ModelFailure:
    """Return what an attempt raised as a failure that is bounded and encodable."""
    if isinstance(error, ModelFailure):
        return error
    record = error_record(error, "model")
    if isinstance(error, CompilerFailed):
        return ModelFailure(record.message, kind=record.type)
    if isinstance(error, (SystemExit, KeyboardInterrupt)):  # of a custom model or compiler
        text = f"the model or the compiler tried to end its process ({record.type}: {record.message})"
        return ModelFailure(text, kind=MODEL_EXITED)
    # it may be temporary, so it is retried until the patience is over
    return ModelFailure(record.message, kind=record.type, again=True)


async def _failure(
    failure: ModelFailure, progress: Progress, patience: RetryDeadline, model: Model
) -> ApplicationError:
    """Return an attempt's failure; it tells the server how long to wait before the next one, or to stop retrying."""
    patience.leave_out(progress.waited_seconds)
    progress.begun_at = patience.begun_at
    used, text = _failed(progress, failure.usage, free=failure.free), failure.message
    wait = patience.next_wait(failure.after) if failure.again else None
    if wait is None and progress.background is not None:
        await give_up(model, progress)
        used = progress.failed_usage
        pulse().beat()
    if wait is not None:
        await _signal_usage(used, progress.background)
        await patience.tell(text, wait)
    elif failure.again:
        text = give_up_text(text, activity.info().attempt, patience.seconds)
    # a failure over 2 MB loses its type and details, one over 4 MB its completion: all is bounded here
    return ApplicationError(text, used, type=failure.kind, non_retryable=wait is None, next_retry_delay=wait)


async def _paused_failure(why: RunPaused, progress: Progress, patience: RetryDeadline) -> ApplicationError:
    """Return the failure of an attempt that asked nobody: an operator has paused its run.

    Attempts follow until it goes on. A pause takes nothing of the patience, which is the endpoint's.
    """
    patience.stand_still(PAUSED_WAIT)
    progress.begun_at = patience.begun_at
    used = _failed(progress, free=True)
    if not pulse().repetition.paused:  # that one has signalled it
        await _signal_usage(used, progress.background)
    return ApplicationError(str(why), used, type=RUN_UNREADABLE, next_retry_delay=PAUSED_WAIT)


async def _signal_usage(used: Usage, background: BackgroundAnswer | None) -> None:
    """Signal the usage of the attempts so far to the workflow, before the server waits for the next one.

    If the call is cancelled in that wait, nothing else can report it. It costs one signal per attempt that had reached
    its endpoint and failed, or was ended with its worker, which is rare.
    """
    info = activity.info()
    if used == NOTHING_USED:
        return
    workflow = activity.client().get_workflow_handle(info.workflow_id or "", run_id=info.workflow_run_id)
    with suppress(RPCError):  # the run has ended or the server is down; the failure itself carries the usage too
        spent = FailedAttemptsUsage(call=info.activity_id, usage=used, background=background)
        await workflow.signal(SPENT_SIGNAL, spent, rpc_timeout=SIGNAL_TIMEOUT)


def _failed(progress: Progress, usage: Usage = NOTHING_USED, *, free: bool = False) -> Usage:
    """Leave the usage of all attempts for the next one and return it; without it the next assumes a lost attempt."""
    used = progress.fail(usage, free=free)
    # the SDK sends the heartbeat it holds back before it reports the failure
    pulse().beat()  # it also carries when the first attempt started
    return used


async def _report_background(progress: Progress) -> None:
    """Report an answer that goes on at the provider to the guardian and the server at once: it is paid for."""
    await progress.is_background.wait()
    here = pulse()
    here.beat()  # else an older heartbeat that the SDK holds back would replace it
    await here.tell()
    await heartbeat_directly(here.details())


async def _fetch(request: TranscriptRequest) -> TranscriptPage:
    """Read a page of the transcript."""
    return await _query_result(TRANSCRIPT_QUERY, TranscriptPage, request)


async def _query_result(query: str, kind: type[AnswerT], *request: TranscriptRequest) -> AnswerT:
    """Query this activity's own workflow; a query writes no history."""
    info = activity.info()
    workflow = activity.client().get_workflow_handle(info.workflow_id or "", run_id=info.workflow_run_id)
    return await ask_run(workflow, query, kind, *request, rpc_timeout=QUERY_TIMEOUT)
