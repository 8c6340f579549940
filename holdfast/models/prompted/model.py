"""`PromptedModel`: a model whose capabilities decide how it is asked. Knows no API, and retries nothing."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from holdfast.core.agent.definition import LLM, OPTIONS
from holdfast.core.agent.model import (
    BackgroundAnswer,
    Model,
    ModelRequest,
    checked_response,
    file_kinds_of,
    problem_with,
)
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.attachments import FileKind
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.models.endpoint import ProviderSettings, provider_of
from holdfast.models.prompted.answer_modes import answer_mode, asked_by, read_by
from holdfast.models.prompted.capability_options import capability_problem, capable_options
from holdfast.models.prompted.prompted_tools import offered, read_prompted_calls, with_prompted_tools
from holdfast.models.prompted.shown_words import ShownWords
from holdfast.models.routes import Capability
from holdfast.runtime.answer_check import TOOL_USE_FAILED


class PromptedModel(Model):
    """Asks `model` by what it can do: tools and forms of the answer that it lacks are asked for by other means.

    Args:
        model: any model.
        capabilities: what it can do; anything else is not asked of it.
    """

    def __init__(self, model: Model, capabilities: Collection[Capability]) -> None:
        self._model = model
        self._can = frozenset(capabilities)

    @property
    def settings(self) -> ProviderSettings | None:
        """The address and key of the model's endpoint; none for one without."""
        return provider_of(self._model)

    async def __call__(self, request: ModelRequest) -> InferenceResponse:
        """Return the model's answer, as one that can do everything would give it. Raises as the model does."""
        request = replace(request, llm=self._capable(request.llm))
        mode = answer_mode(request, self._can)
        if "tools" in self._can:
            response = checked_response(await self._model(asked_by(mode, request)))
        else:
            response = await self._prompted(asked_by(mode, request))
        return read_by(mode, response, request)

    async def _prompted(self, request: ModelRequest) -> InferenceResponse:
        """Return the answer of a model that is told of its tools in its prompt."""
        asked, listener = with_prompted_tools(request), request.listener
        words = None if listener is None or not offered(request) else ShownWords(listener)
        response = checked_response(await self._model(asked if words is None else replace(asked, listener=words)))
        response = read_prompted_calls(response, request)
        if words is not None and not response.tool_calls and response.finish_reason != TOOL_USE_FAILED:
            words.end(response.text)
        return response

    @property
    def missing(self) -> str:
        """What runs will fail for; empty when nothing is missing."""
        return self._model.missing

    def problem(self, llm: LLM) -> str:
        """Return why a run with `llm` would fail at its first call; empty when nothing is known."""
        return capability_problem(llm, self._can) or problem_with(self._model, self._capable(llm))

    def _capable(self, llm: LLM) -> LLM:
        settings = self.settings
        return capable_options(llm, self._can, OPTIONS if settings is None else settings.api.options)

    def file_kinds(self, llm: LLM) -> Collection[FileKind]:
        """Return which kinds of files the model takes."""
        taken = file_kinds_of(self._model, llm)
        return frozenset(each for each in taken if each == "text" or each in self._can)

    async def cancel(self, answer: BackgroundAnswer) -> Usage | None:
        """End an answer at the model's provider. Raises as the model does."""
        return await self._model.cancel(answer)

    async def close(self) -> None:
        """Close the model's connections."""
        await self._model.close()
