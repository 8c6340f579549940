"""Carries out the core's commands as Temporal calls, and returns their events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final

from temporalio import workflow
from temporalio.exceptions import ActivityError, RetryState, is_cancelled_exception

from holdfast.core.agent.assistants import reachable
from holdfast.core.agent.definition import LLM
from holdfast.core.agent.execution_state import call_name, named_id
from holdfast.core.agent.hooks import Trigger
from holdfast.core.agent.model import BackgroundAnswer
from holdfast.core.agent.state import AgentState
from holdfast.core.base.bounds import MODEL_GRACE_SECONDS, SUBAGENT_GRACE_SECONDS
from holdfast.core.base.frozen import replace
from holdfast.core.base.retries import patience_of
from holdfast.core.base.usage import NOTHING_USED, Usage
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.loop.commands import (
    CallModel,
    CallTool,
    RequestApproval,
    RequestInput,
    RunHooks,
    Script,
    SpawnSubagent,
    StartTimer,
    SummariseBuffer,
)
from holdfast.core.loop.events import (
    ApprovalExpired,
    BufferSummarised,
    Event,
    HooksReturned,
    InputExpired,
    InputNeeded,
    ModelAnswered,
    ModelCancelled,
    ModelFailed,
    SummaryFailed,
    TimerFired,
    ToolFailed,
)
from holdfast.core.loop.tool_replies import tool_returned
from holdfast.core.tools.tool_traits import ToolTraits
from holdfast.core.wire.contracts import SPENT_SIGNAL, ExecutionInput, FailedAttemptsUsage
from holdfast.core.wire.mcp_contracts import McpInputNeeded, McpInputs
from holdfast.core.wire.tool_catalog import ToolCatalog
from workflows import summaries
from workflows.execution.activity_calls import (
    call_model,
    call_tool,
    cancel_answer,
    run_hooks,
    summarise,
    summary_name,
)
from workflows.execution.call_errors import failed_usage, model_error, tool_error
from workflows.execution.mcp_calls import mcp_input
from workflows.execution.model_queue import model_queue
from workflows.execution.request_delta import ModelTranscript
from workflows.execution.scripts import advance_script
from workflows.execution.subagents import STARTING_MAX, call_subagent, unreported
from workflows.search_attributes import Rate

SHORTEST: Final = timedelta(milliseconds=1)
"""The least a timer or a timeout can be set to."""

Ends = tuple[Event, ...]
"""The events that a call ends with, in order."""


class Executor:
    """The calls of one run. `state` returns the current state; every call can be cancelled."""

    def __init__(
        self,
        start: ExecutionInput,
        catalog: ToolCatalog | None,
        transcript: ModelTranscript,
        rate: Rate,
        state: Callable[[], AgentState],
    ) -> None:
        self._start = start
        self._catalog = catalog
        self._tools = _tools_of(catalog)
        self._transcript = transcript
        self._rate = rate
        self._state = state
        self._starting = asyncio.Semaphore(STARTING_MAX)
        self._ran_at = 0
        self._spent: dict[str, Usage] = {}
        self._background: dict[str, BackgroundAnswer] = {}
        """The answer under way at the provider, by the call whose attempts have left it there."""
        self._current_call = self._ended = ""
        self._children: dict[str, SpawnSubagent] = {}
        self._asked: dict[str, McpInputNeeded] = {}
        """What the servers of calls that wait for an answer want back with it, by the id of the call."""
        # earlier signals wait for the handler
        workflow.set_signal_handler(SPENT_SIGNAL, self._note_spent)  # pyright: ignore[reportUnknownMemberType]  # the SDK's own hint

    def _note_spent(self, *args: Any) -> None:  # noqa: ANN401  # anybody can send signals, with any arguments
        """Keep the usage of a model call's failed attempts: after a cancel it is known nowhere else."""
        with suppress(ValueError, IndexError):
            spent = FailedAttemptsUsage.model_validate(args[0])
            self._spent = {spent.call: spent.usage}
            self._background = {spent.call: spent.background} if spent.background else {}

    @property
    def ran_in_this_task(self) -> bool:
        """Whether hooks or a `local` tool ran in the present workflow task: their results are not recorded yet."""
        return self._ran_at == workflow.info().get_current_history_length()

    def go_on_as(self, start: ExecutionInput, catalog: ToolCatalog) -> None:
        """Use another definition and its tools from here on."""
        self._start, self._catalog, self._tools = start, catalog, _tools_of(catalog)

    def _note_run(self) -> None:
        self._ran_at = workflow.info().get_current_history_length()

    def _begin(self, call: str) -> None:
        """Forget what the attempts of the call of that name before have left, as the core has counted it.

        That one was too long, or went to the route before.
        """
        self._current_call, self._ended = call, ""
        self._spent.pop(call, None)
        self._background.pop(call, None)

    async def call_model(self, command: CallModel) -> Ends:
        """Call the model; when cancelled, report its partial answer."""
        self._begin(call_name(command.step_number))
        request = self._transcript.inference_input(self._state(), command.max_output_tokens)
        request = replace(
            request,
            room=command.room,
            input_weight=command.input_weight,
            input_max=command.input_max,
            patience_seconds=patience_of(
                self._start.definition.model_patience_seconds, may_fall_back=command.may_fall_back
            ),
            llm=command.llm and self._transcript.opening.definition.llm.difference(command.llm),
            may_fall_back=command.may_fall_back,
            offered=command.offered,
            prompt=command.prompt,
        )
        queue = model_queue(command.llm or self._start.definition.llm, self._catalog)
        caption = summaries.of_model_call(self._state(), command.step_number, limited=queue is not None)
        try:
            answer = await call_model(command, request, self._time_left(), caption, queue)
        except ActivityError as error:
            used, lost = self._used(error, call_name(command.step_number))
            await self._end_background(call_name(command.step_number))
            if is_cancelled_exception(error) or await self._cancelled_before_limit(error):
                return (ModelCancelled(None, workflow.now(), used, lost),)
            return self._failed(ModelFailed(model_error(error), workflow.now(), used, lost))
        self._rate.add(answer.seconds)
        at, wasted = workflow.now(), answer.failed_usage
        if not answer.complete:
            return (ModelCancelled(partial=answer.response, at=at, failed_usage=wasted),)
        return (ModelAnswered(response=answer.response, at=at, failed_usage=wasted),)

    async def summarise(self, command: SummariseBuffer) -> Ends:
        """Have the buffer summarised."""
        self._begin(summary_name(command.step_number))
        try:
            patience = self._start.definition.model_patience_seconds
            llm = self._state().llm or LLM()
            queue = model_queue(llm, self._catalog)
            summary = await summarise(command, llm, patience, self._time_left(), queue)
        except ActivityError as error:
            used, lost = self._used(error, summary_name(command.step_number))
            await self._end_background(summary_name(command.step_number))
            await self._cancelled_before_limit(error)
            return self._failed(SummaryFailed(model_error(error), workflow.now(), used, lost))
        return (BufferSummarised(text=summary.text, usage=summary.usage, at=workflow.now()),)

    async def call_tool(self, command: CallTool) -> Ends:
        """Run a tool."""
        started_at = workflow.now()
        if command.script is not None:
            return (await self._advance_script(command, command.script, started_at),)
        traits, call = self._tools[command.call.name], command.call
        tenant, inputs = self._state().running.tenant, self._inputs(command)
        mcp = mcp_input(command, traits, self._transcript.opening, tenant, inputs)
        try:
            result = await call_tool(command, traits, self._time_left(), mcp)
        except ActivityError as error:
            if traits.local:
                self._note_run()
            record = tool_error(error, traits)
            return self._failed(ToolFailed(call_id=call.id, error=record, started_at=started_at, at=workflow.now()))
        if traits.local:
            self._note_run()
        if isinstance(result, McpInputNeeded):
            self._asked[call.id] = replace(result, requests=())
            server, requests, seconds_max = result.server, result.requests, result.seconds_max
            return (InputNeeded(call.id, server, requests, seconds_max, started_at=started_at, at=workflow.now()),)
        return (tool_returned(call.id, result, started_at, workflow.now()),)

    async def _advance_script(self, command: CallTool, script: Script, started_at: datetime) -> Event:
        """Take a script further."""
        opening = self._transcript.opening
        event = await advance_script(command, script, opening.definition, self._tools, opening.mcp, started_at)
        self._note_run()
        return event

    async def run_hooks(self, command: RunHooks) -> Ends:
        """Run the hooks of one place; those of the input guard once the model call is under way."""
        if command.context.trigger is Trigger.INPUT_GUARD:  # what hooks run in, a workflow task, sends its calls last
            await workflow.sleep(SHORTEST, summary="the model call begins beside the input guard")
        runs = await run_hooks(command)
        self._note_run()
        call = command.context.call
        return (HooksReturned(command.context.trigger, call.id if call else None, runs, workflow.now()),)

    async def await_approval(self, command: RequestApproval) -> Ends:
        """Report the expiry of an approval; a decision comes by signal."""
        expires_at = command.expires_at
        if expires_at is None:
            return ()
        caption = summaries.of_approval(command, expires_at, self._state().running.started_at)
        await workflow.sleep(max(expires_at - workflow.now(), SHORTEST), summary=caption)
        return (ApprovalExpired(call_id=command.call.id, at=workflow.now()),)

    def _inputs(self, command: CallTool) -> McpInputs | None:
        """Return the answers, with the server's own state, that a call goes on with; none for a call that begins."""
        asked = self._asked.pop(command.call.id, None)
        if not command.round or asked is None:
            return None
        state, task = asked.request_state, asked.task
        return McpInputs(round=command.round, responses=command.responses, request_state=state, task=task)

    async def await_input(self, command: RequestInput) -> Ends:
        """Report the expiry of what a call's server asks for; an answer comes by update."""
        caption = summaries.of_input(command, self._state().running.started_at)
        await workflow.sleep(max(command.expires_at - workflow.now(), SHORTEST), summary=caption)
        return (InputExpired(call_id=command.call.id, at=workflow.now()),)

    async def spawn(self, command: SpawnSubagent) -> Ends:
        """Run a subagent; when cancelled, report what it used."""
        named = (each for each in self._start.subagents if each.name == command.agent)
        definition = command.definition or next(named)
        state, name = self._state(), call_name(command.step_number, command.index)
        running = {each.call.id for each in state.running.open_calls}
        self._children = {id_: each for id_, each in self._children.items() if id_ in running}
        self._children[command.call_id] = command
        start = ExecutionInput(
            agent_id=str(workflow.uuid4()),
            definition=definition,
            question=command.task,
            budget=command.budget,
            subagents=reachable(definition, self._start.subagents),
            metadata=self._start.metadata,
            tenant=self._start.tenant,
            parent_agent_id=state.agent_id,
            depth_left=command.depth_left,
            searchable=self._start.searchable,
            continue_events=self._start.continue_events,
        )
        execution_id = named_id(state.running.execution_id, name)
        return (await call_subagent(command, start, execution_id, self._starting),)

    def _used(self, error: ActivityError, call: str) -> tuple[Usage, bool]:
        """Return the usage of all attempts of a call without an answer, and whether the last one was lost.

        The last one may not have known of those before it, so the larger count holds.
        """
        used, lost = failed_usage(error)
        spent = self._spent.get(call, NOTHING_USED)
        return (used if used.total_tokens >= spent.total_tokens else spent), lost

    async def _end_background(self, call: str) -> None:
        """Cancel the answer that the attempts of a call have left at the provider: none is left to resume it."""
        if (answer := self._background.pop(call, None)) is not None:
            self._ended = call
            await cancel_answer(answer, call)

    async def await_time_limit(self, command: StartTimer) -> Ends:
        """Report the time limit."""
        # the first task's time can be past the moment of the decision; a timer must not be negative
        caption = summaries.of_time_limit(self._state().running, command.fires_at)
        await workflow.sleep(max(command.fires_at - workflow.now(), SHORTEST), summary=caption)
        return (TimerFired(at=workflow.now()),)

    async def give_up_cancelled(self) -> Ends:
        """Report cancelled calls that did not report in time; they count as the most that they can have used."""
        calls = self._state().running.open_calls
        seconds = SUBAGENT_GRACE_SECONDS if calls else MODEL_GRACE_SECONDS
        await workflow.sleep(seconds, summary=summaries.of_grace(len(calls)))
        at = workflow.now()
        return self._children_unreported(at) if calls else (self._call_unreported(at),)

    def _call_unreported(self, at: datetime) -> ModelCancelled:
        """Return the end of a model call, or a summary, that was cancelled and did not report in time."""
        used = self._spent.get(self._current_call, NOTHING_USED)
        return ModelCancelled(None, at, failed_usage=used, lost=self._ended != self._current_call)

    def _children_unreported(self, at: datetime) -> Ends:
        """Return the ends of the subagents that were cancelled and did not report in time."""
        calls = self._state().running.open_calls
        return tuple(unreported(self._children[each.call.id], at) for each in calls if each.call.id in self._children)

    def _time_left(self) -> timedelta | None:
        """Return how long a call may take with all its attempts: none begins after the time limit.

        None also where hooks may override the limit: then only the core ends the call.
        """
        strikes_at = self._state().running.time_limit_at
        if strikes_at is None or StopReason.TIME_LIMIT in self._start.definition.overridable:
            return None
        return max(strikes_at - workflow.now(), SHORTEST)

    async def _cancelled_before_limit(self, error: ActivityError) -> bool:
        """Wait for the time limit if no further attempt fits before it; return whether a cancel came first.

        Temporal does not wait for an attempt that it will not begin; the run does, as in-process, so that the limit
        ends it and not the endpoint's refusal.
        """
        strikes_at = self._state().running.time_limit_at
        if error.retry_state is not RetryState.TIMEOUT or strikes_at is None:
            return False
        try:
            await workflow.wait_condition(lambda: workflow.now() >= strikes_at)
        except asyncio.CancelledError:
            return True
        return False

    def _failed(self, event: Event) -> Ends:
        """Report that a call failed; if the time limit ended it, report that first."""
        strikes_at, now = self._state().running.time_limit_at, workflow.now()
        if strikes_at is not None and now >= strikes_at:  # the timer itself may come a moment later
            return (TimerFired(at=now), event)
        return (event,)


def _tools_of(catalog: ToolCatalog | None) -> Mapping[str, ToolTraits]:
    return {each.name: each for each in catalog.tools} if catalog is not None else {}
