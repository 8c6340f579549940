"""Asking the model in-process: the request from the state, the same retries as on Temporal. Decides nothing else."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Final

from holdfast.core.agent.context_view import CompilerContext, ContextView
from holdfast.core.agent.definition import LLM, AgentDefinition
from holdfast.core.agent.model import Model, ModelRequest
from holdfast.core.agent.retries import OutputLimits, allowed_output, given_up, next_wait_seconds
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.subagents import spawn_schema
from holdfast.core.agent.tools import ToolSchema
from holdfast.core.agent.toolset import AgentToolset
from holdfast.core.base.bounds import RESPONSE_BYTES_MAX
from holdfast.core.base.errors import ModelFailure
from holdfast.core.base.frozen import replace
from holdfast.core.base.safe_text import clamped_json
from holdfast.core.conversation.amounts import wait_line
from holdfast.core.conversation.messages import Message
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.core.loop.conversation_summary import summary_request
from holdfast.runtime.answer_check import checked
from holdfast.runtime.model_progress import Progress

LOGGER: Final = logging.getLogger("holdfast.model")
"""Where waiting for an endpoint is told in-process."""


class ModelCalls:
    """What one agent's model calls have in common."""

    def __init__(self, equipment: AgentToolset, subagents: Mapping[str, AgentDefinition], model: Model) -> None:
        self._policy = equipment.definition.context
        self._patience = equipment.definition.model_patience_seconds
        self._compiler = equipment.compiler
        self._model = model
        self._tools: tuple[ToolSchema, ...] = tuple(tool.schema for tool in equipment.tools.values())
        if subagents:
            self._tools = (*self._tools, spawn_schema(subagents))
        self._view: ContextView | None = None

    async def answer(self, state: AgentState, asked: OutputLimits, progress: Progress) -> InferenceResponse:
        """Return the model's answer to the conversation in `state`; `progress` takes note of it as it comes."""
        wanted = state.context.response_format
        request = ModelRequest(
            llm=state.llm or LLM(),
            system_prompt=state.context.system_prompt,
            messages=self._shown(state),
            tools=self._tools,
            max_output_tokens=asked.max_output_tokens,
            response_format=wanted,
            listener=progress.hear,
            input_max=None if self._compiler else asked.input_max,
        )
        response = await _answered(self._model, request, asked, progress, self._patience)
        response = replace(response, text=clamped_json(response.text, RESPONSE_BYTES_MAX))  # any model may be behind it
        return checked(response, wanted)

    async def summary(self, state: AgentState, asked: OutputLimits, progress: Progress) -> InferenceResponse:
        """Return the model's summary of what is in the buffer: in words, whatever form the agent's answers have."""
        request = ModelRequest(
            llm=state.llm or LLM(),
            system_prompt="",  # the request brings its own
            messages=summary_request(state.store),
            tools=(),
            max_output_tokens=asked.max_output_tokens,
            listener=progress.hear,
            input_max=asked.input_max,
        )
        return await _answered(self._model, request, asked, progress, self._patience)

    def _shown(self, state: AgentState) -> Sequence[Message]:
        execution_id = state.running.execution_id
        view = self._view
        if view is None or view.execution_id != execution_id:
            view = ContextView.of(state.store, self._policy, execution_id)
        else:
            view = view.advanced(state.store)
        self._view = view
        if self._compiler is None:
            return tuple(view.messages)
        prompt = state.context.system_prompt
        return self._compiler.apply(
            CompilerContext.of(view.messages, self._policy, execution_id, metadata=state.metadata, system_prompt=prompt)
        )


async def _answered(
    model: Model, request: ModelRequest, asked: OutputLimits, progress: Progress, patience: float
) -> InferenceResponse:
    """Ask the model, and again where that can help, for as long and after the same waits as on Temporal."""
    begun, attempt = time.monotonic(), 0
    while True:
        attempt += 1
        request = dataclasses.replace(request, max_output_tokens=allowed_output(asked, progress.failed_usage))
        progress.begin(request)
        try:
            return await model(request)
        except ModelFailure as failure:
            progress.fail(failure.usage, free=failure.free)
            progress.begin_again()
            wait = _wait_after(failure, attempt, time.monotonic() - begun, patience)
        except Exception:
            progress.fail()
            raise
        await asyncio.sleep(wait)


def _wait_after(failure: ModelFailure, attempt: int, waited: float, patience: float) -> float:
    """Return how long to wait before the next attempt; raises the failure, or one that says that patience is over."""
    if not failure.again:
        raise failure
    named = None if failure.after is None else failure.after.total_seconds()
    wait = next_wait_seconds(attempt, named, waited, patience)
    if wait is None:
        text = given_up(failure.message, attempt, patience)
        raise ModelFailure(text, kind=failure.kind, usage=failure.usage) from failure
    LOGGER.info(wait_line(failure.message, attempt, wait))
    return wait
