"""Asking the model in-process: the request from the state, the same retries as on Temporal. Decides nothing else."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence

from holdfast.core.compiling import View
from holdfast.core.definition import LLM, AgentDefinition
from holdfast.core.errors import ModelFailure
from holdfast.core.frozen import replace
from holdfast.core.inference import Model, ModelRequest
from holdfast.core.limits import RESPONSE_BYTES_MAX
from holdfast.core.messages import Message
from holdfast.core.offer import Equipment
from holdfast.core.retries import MODEL_RETRIES, OutputLimits, allowed_output
from holdfast.core.state import AgentState
from holdfast.core.steps import InferenceResponse
from holdfast.core.subagents import spawn_schema
from holdfast.core.summarising import summary_request
from holdfast.core.texts import clamped_json
from holdfast.core.tools import ToolSchema
from holdfast.local.formats import checked
from holdfast.local.progress import Progress


class Asking:
    """What one agent's model calls have in common."""

    def __init__(self, equipment: Equipment, subagents: Mapping[str, AgentDefinition], model: Model) -> None:
        self._policy = equipment.definition.context
        self._compiler = equipment.compiler
        self._model = model
        self._tools: tuple[ToolSchema, ...] = tuple(tool.schema for tool in equipment.tools.values())
        if subagents:
            self._tools = (*self._tools, spawn_schema(subagents))
        self._view: View | None = None

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
        )
        response = await _answered(self._model, request, asked, progress)
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
        )
        return await _answered(self._model, request, asked, progress)

    def _shown(self, state: AgentState) -> Sequence[Message]:
        execution_id = state.running.execution_id
        view = self._view
        if view is None or view.execution_id != execution_id:
            view = View.of(state.store, self._policy, execution_id)
        else:
            view = view.advanced(state.store)
        self._view = view
        shown = tuple(view.messages)
        return self._compiler.apply(shown) if self._compiler else shown


async def _answered(
    model: Model, request: ModelRequest, asked: OutputLimits, progress: Progress, attempt: int = 1
) -> InferenceResponse:
    """Ask the model, and again where that can help, as often and after the same waits as on Temporal."""
    request = dataclasses.replace(request, max_output_tokens=allowed_output(asked, progress.failed_usage))
    try:
        return await model(request)
    except ModelFailure as failure:
        progress.fail(failure.usage)
        progress.begin_again()
        if not failure.again or attempt >= MODEL_RETRIES.attempts_max:
            raise
        wait = failure.after.total_seconds() if failure.after is not None else MODEL_RETRIES.wait_seconds(attempt)
    await asyncio.sleep(wait)
    return await _answered(model, request, asked, progress, attempt + 1)
