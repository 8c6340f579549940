"""An async function as a `Model`: the shortest way to a model of your own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from holdfast.core.agent.model import Model, ModelRequest
from holdfast.core.conversation.steps import InferenceResponse


class FunctionModel(Model):
    """Answers with what `answer` returns. It needs nothing and holds no connections."""

    def __init__(self, answer: Callable[[ModelRequest], Awaitable[InferenceResponse]]) -> None:
        self._answer = answer

    async def __call__(self, request: ModelRequest) -> InferenceResponse:
        """Return the function's answer; whatever it raises is raised."""
        return await self._answer(request)
