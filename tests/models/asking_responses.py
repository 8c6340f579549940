"""Asking a fake endpoint of the Responses API through the real client, and what comes of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace

from holdfast.core.agent.model import AnswerPart, ModelRequest
from holdfast.core.base.errors import ModelFailure
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.models import OpenAIResponses, ProviderSettings
from holdfast.testing.responses_server import FakeResponses
from holdfast.testing.script import Reply
from tests.activities.asking import KEY, REQUEST


class Known(OpenAIResponses):
    """A model that says when it knows an answer that the provider makes in the background."""

    def __init__(self, settings: ProviderSettings) -> None:
        super().__init__(settings)
        self.known = asyncio.Event()

    async def __call__(self, request: ModelRequest) -> InferenceResponse:
        listener = request.listener
        assert listener is not None

        def listen(part: AnswerPart) -> None:
            listener(part)
            if part.lives_on:
                self.known.set()

        return await super().__call__(replace(request, listener=listen))


@asynccontextmanager
async def asking(*turns: Reply) -> AsyncGenerator[tuple[FakeResponses, OpenAIResponses]]:
    """Serve `turns` and give the endpoint and a model that asks it."""
    async with FakeResponses(turns) as endpoint:
        model = OpenAIResponses(ProviderSettings(base_url=endpoint.base_url, api_key=KEY, model="scripted"))
        try:
            yield endpoint, model
        finally:
            await model.close()


async def answer_to(turn: Reply, asked: ModelRequest = REQUEST) -> InferenceResponse:
    """Return what the model makes of `turn`."""
    async with asking(turn) as (_, model):
        return await model(asked)


async def failure_of(turn: Reply, asked: ModelRequest = REQUEST) -> ModelFailure:
    """Return the typed failure that `turn` becomes; AssertionError when it becomes none."""
    async with asking(turn) as (_, model):
        try:
            response = await model(asked)
        except ModelFailure as failure:
            return failure
    raise AssertionError(f"it was an answer: {response!r}")
