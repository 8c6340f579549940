"""Model calls in-process: builds the request from the state, and retries as on Temporal."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Iterable, Sequence
from typing import Final

from holdfast.core.agent.capability_prompts import PromptContext, with_prompts
from holdfast.core.agent.context_view import CompilerContext, ContextView
from holdfast.core.agent.definition import LLM
from holdfast.core.agent.model import Model, ModelRequest, file_kinds_of
from holdfast.core.agent.state import AgentState, facts_of
from holdfast.core.agent.toolset import AgentToolset
from holdfast.core.base.bounds import RESPONSE_BYTES_MAX
from holdfast.core.base.errors import ModelFailure, StorageFailed
from holdfast.core.base.frozen import replace
from holdfast.core.base.retries import OutputLimits, give_up_text, next_wait_seconds, patience_of
from holdfast.core.base.safe_text import clamped_json
from holdfast.core.conversation.amounts import wait_line
from holdfast.core.conversation.messages import Message
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.core.loop.commands import CallModel
from holdfast.core.loop.conversation_summary import summary_request
from holdfast.core.tools.tool_traits import ToolSchema
from holdfast.core.wire.record_store import AttachmentStore
from holdfast.runtime.answer_check import checked
from holdfast.runtime.background_answers import give_up, resume_or_ask
from holdfast.runtime.files.attachments import MemoryAttachments
from holdfast.runtime.files.file_parts import with_files
from holdfast.runtime.model_call_changes import offered_tools, with_prompt
from holdfast.runtime.model_progress import Progress
from holdfast.runtime.remote_tool_checks import checked_calls, checked_catalog_calls
from holdfast.runtime.stored_items import with_items_stored, with_stored_items

LOGGER: Final = logging.getLogger("holdfast.model")
"""Logs waits for an endpoint in-process."""


PAGE_MESSAGES: Final = 200
"""How many messages a tool reads at once, as on Temporal."""


@dataclasses.dataclass(frozen=True, slots=True)
class ShownConversation:
    """What the model was last sent, for tools."""

    shown: Sequence[Message]

    async def page(self, start: int) -> Sequence[Message]:
        """Return messages from place `start` on, without their metadata."""
        return tuple(message.for_model() for message in self.shown[start : start + PAGE_MESSAGES])


class ModelCalls:
    """The model calls of one agent; `shown` are the tools that the model sees, those of the loop among them."""

    def __init__(
        self,
        toolset: AgentToolset,
        shown: Iterable[ToolSchema],
        model: Model,
        attachments: AttachmentStore | None = None,
    ) -> None:
        self._policy, self._agent = toolset.definition.context, toolset.definition.name
        self._patience = toolset.definition.model_patience_seconds
        self._compiler, self._prompts = toolset.compiler, toolset.prompts
        self._model, self._attachments = model, attachments
        self._callable = toolset.tools
        self._tools = tuple(shown)
        self._view: ContextView | None = None

    async def answer(self, state: AgentState, command: CallModel, progress: Progress) -> InferenceResponse:
        """Return the model's answer to the conversation in `state`; `progress` follows it as it arrives."""
        response_format = state.context.response_format
        llm = command.llm or state.llm or LLM()
        patience = patience_of(self._patience, may_fall_back=command.may_fall_back)
        request = ModelRequest(
            llm=llm,
            system_prompt=self._system_prompt(state),
            messages=await self._with_stored(with_prompt(self._shown(state), command.prompt), llm, patience),
            tools=offered_tools(self._tools, command.offered),
            max_output_tokens=command.max_output_tokens,
            response_format=response_format,
            listener=progress.add,
            input_max=None if self._compiler or self._prompts else command.input_max,
            may_fall_back=command.may_fall_back,
        )
        response = await _answer_with_retries(self._model, request, command, progress, patience)
        response = replace(response, text=clamped_json(response.text, RESPONSE_BYTES_MAX))  # it may be any model
        # what lies in memory alone would be lost to whoever goes on with the state
        lasting = None if isinstance(self._attachments, MemoryAttachments) else self._attachments
        response = await with_items_stored(response, lasting)
        response = checked_catalog_calls(checked_calls(response, self._callable.values()), self._callable.values())
        return checked(response, response_format)

    async def _with_stored(self, messages: Sequence[Message], llm: LLM, patience: float) -> Sequence[Message]:
        """Return the messages with what the store has of them. A store that fails is asked again, as a model is."""
        started_at, attempt = time.monotonic(), 0
        while True:
            attempt += 1
            try:
                return await with_files(
                    await with_stored_items(messages, self._attachments),
                    self._attachments,
                    self._policy,
                    lambda: file_kinds_of(self._model, llm),
                )
            except StorageFailed as error:
                failure = ModelFailure(error.message, kind=type(error).__name__, again=True, free=True)
                wait = _wait_after(failure, attempt, time.monotonic() - started_at, patience)
            await asyncio.sleep(wait)

    async def summary(self, state: AgentState, limits: OutputLimits, progress: Progress) -> InferenceResponse:
        """Return the model's summary of the buffer: as text, whatever the agent's response format."""
        request = ModelRequest(
            llm=replace(state.llm or LLM(), server_tools=()),
            system_prompt="",  # the request has its own
            messages=summary_request(state.store),
            tools=(),
            max_output_tokens=limits.max_output_tokens,
            listener=progress.add,
            input_max=limits.input_max,
        )
        return await _answer_with_retries(self._model, request, limits, progress, self._patience)

    def sent(self, state: AgentState) -> Sequence[Message]:
        """Return the messages of the last model call of the step under way, before a compiler.

        Another driver may have made that call, and this one others since.
        """
        return self._view_of(state).messages

    def _system_prompt(self, state: AgentState) -> str:
        """Return the system prompt with what functions of its capabilities add. Raises CompilerFailed."""
        prompt, execution_id = state.context.system_prompt, state.running.execution_id
        if not self._prompts:
            return prompt
        context = PromptContext(state.metadata, prompt, execution_id, facts_of(state, self._agent))
        return with_prompts(self._prompts, context)

    def _shown(self, state: AgentState) -> Sequence[Message]:
        execution_id = state.running.execution_id
        view = self._view = self._view_of(state)
        if self._compiler is None:
            return tuple(view.messages)
        return self._compiler.apply(
            CompilerContext.of(
                view.messages,
                self._policy,
                execution_id,
                metadata=state.metadata,
                system_prompt=state.context.system_prompt,
                run=facts_of(state, self._agent),
            )
        )

    def _view_of(self, state: AgentState) -> ContextView:
        execution_id = state.running.execution_id
        if self._view is None or self._view.execution_id != execution_id:
            return ContextView.of(state.store, self._policy, execution_id)
        return self._view.advanced(state.store)


async def _answer_with_retries(
    model: Model, request: ModelRequest, limits: OutputLimits, progress: Progress, patience: float
) -> InferenceResponse:
    """Call the model; a ModelFailure is retried as on Temporal, any other error ends the run at once."""
    try:
        return await _attempts(model, request, limits, progress, patience)
    except BaseException:  # given up, or stopped
        await give_up(model, progress)
        raise


async def _attempts(
    model: Model, request: ModelRequest, limits: OutputLimits, progress: Progress, patience: float
) -> InferenceResponse:
    started_at, attempt = time.monotonic(), 0
    while True:
        attempt += 1
        try:
            return await resume_or_ask(model, request, limits, progress)
        except ModelFailure as failure:
            progress.fail(failure.usage, free=failure.free)
            progress.begin_again()
            # a wait for rate limits is no part of what a failing endpoint is given
            waited = time.monotonic() - started_at - progress.waited_seconds
            wait = _wait_after(failure, attempt, waited, patience)
        except Exception:
            progress.fail()
            raise
        await asyncio.sleep(wait)


def _wait_after(failure: ModelFailure, attempt: int, waited: float, patience: float) -> float:
    """Return the wait before the next attempt; raises the failure if it is final or patience is over."""
    if not failure.again:
        raise failure
    named_seconds = None if failure.after is None else failure.after.total_seconds()
    wait = next_wait_seconds(attempt, named_seconds, waited, patience)
    if wait is None:
        text = give_up_text(failure.message, attempt, patience)
        raise ModelFailure(text, kind=failure.kind, usage=failure.usage) from failure
    LOGGER.info(wait_line(failure.message, attempt, wait))
    return wait
