"""Asking a fake endpoint of the Messages API through the real client, and what comes of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from holdfast.core.agent.model import ModelRequest
from holdfast.core.base.errors import ModelFailure
from holdfast.core.conversation.messages import Message
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.models import Anthropic, ProviderSettings
from holdfast.testing.anthropic_server import FakeAnthropic
from holdfast.testing.script import Reply
from tests.activities.asking import KEY, REQUEST


@asynccontextmanager
async def asking(
    *turns: Reply,
    api_key: str | None = KEY,
    **options: Any,  # noqa: ANN401  # those of the model
) -> AsyncGenerator[tuple[FakeAnthropic, Anthropic]]:
    """Serve `turns` and give the endpoint and a model that asks it."""
    async with FakeAnthropic(turns) as endpoint:
        settings = ProviderSettings(base_url=endpoint.base_url, api_key=api_key, model="claude")
        model = Anthropic(settings, **options)
        try:
            yield endpoint, model
        finally:
            await model.close()


async def answer_to(turn: Reply, asked: ModelRequest = REQUEST) -> InferenceResponse:
    """Return what the model makes of `turn`."""
    async with asking(turn) as (_, model):
        return await model(asked)


async def failure_with(model: Anthropic, asked: ModelRequest = REQUEST) -> ModelFailure:
    """Return the typed failure that asking `model` ends with."""
    try:
        response = await model(asked)
    except ModelFailure as failure:
        return failure
    raise AssertionError(f"it was an answer: {response!r}")


async def failure_of(turn: Reply) -> ModelFailure:
    """Return the typed failure that `turn` becomes; AssertionError when it becomes none."""
    async with asking(turn) as (_, model):
        return await failure_with(model)


def said(response: InferenceResponse) -> Message:
    """Return an answer as the message that goes back."""
    return Message(role="assistant", content=response.text, tool_calls=response.tool_calls, items=response.items)
