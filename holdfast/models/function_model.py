"""An async function as a `Model`: the shortest way to a model of your own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import isawaitable

from holdfast.core.agent.model import BAD_MODEL, Model, ModelRequest
from holdfast.core.base.errors import ModelFailure
from holdfast.core.conversation.steps import InferenceResponse


class FunctionModel(Model):
    """Answers with what `answer` returns. It needs nothing and holds no connections."""

    def __init__(self, answer: Callable[[ModelRequest], Awaitable[InferenceResponse]]) -> None:
        self._answer = answer

    async def __call__(self, request: ModelRequest) -> InferenceResponse:
        """Return the function's answer; whatever it raises is raised. Raises ModelFailure where it is not async."""
        answer = self._answer(request)
        if not isawaitable(answer):  # pyright: ignore[reportUnnecessaryComparison]  # a caller without a type checker
            raise ModelFailure("the model's function is not async; write `async def`", kind=BAD_MODEL)
        return await answer
