"""Asking a fake endpoint through the real client, as the worker does, and what comes of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from holdfast.core.agent.definition import LLM
from holdfast.core.agent.model import ModelRequest
from holdfast.core.base.errors import ModelFailure
from holdfast.core.conversation.messages import user_message
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.core.tools.tool_traits import ToolSchema
from holdfast.models import OpenAIChat, ProviderSettings
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import Reply

KEY = "sk-canary-0123456789"
REQUEST = ModelRequest(LLM(), "Be brief.", (user_message("What is it?"),), (), None)


def request(**changes: Any) -> ModelRequest:  # noqa: ANN401  # fields of any type, as in dataclasses.replace
    """Return the usual request with some fields changed."""
    fields = {
        name: getattr(REQUEST, name)
        for name in ("llm", "system_prompt", "messages", "tools", "max_output_tokens", "response_format", "listener")
    }
    return ModelRequest(**(fields | changes))


def schema(name: str) -> ToolSchema:
    return ToolSchema(name=name, description="Do it.", parameters={"type": "object", "properties": {}})


@asynccontextmanager
async def asking(*turns: Reply, api_key: str | None = KEY) -> AsyncGenerator[tuple[FakeOpenAI, OpenAIChat]]:
    """Serve `turns` and give the endpoint and a model that asks it."""
    async with FakeOpenAI(turns) as endpoint:
        model = OpenAIChat(ProviderSettings(base_url=endpoint.base_url, api_key=api_key, model="scripted"))
        try:
            yield endpoint, model
        finally:
            await model.close()


async def answer_to(turn: Reply, asked: ModelRequest = REQUEST) -> InferenceResponse:
    """Return what the model makes of `turn`."""
    async with asking(turn) as (_, model):
        return await model(asked)


async def failure_of(turn: Reply) -> ModelFailure:
    """Return the typed failure that `turn` becomes; AssertionError when it becomes none."""
    async with asking(turn) as (_, model):
        return await failure_with(model)


async def failure_with(model: OpenAIChat, asked: ModelRequest = REQUEST) -> ModelFailure:
    """Return the typed failure that asking `model` ends with."""
    try:
        response = await model(asked)
    except Exception as caught:  # noqa: BLE001  # whatever it is: the table must know it
        error = caught
    else:
        raise AssertionError(f"it was an answer: {response!r}")
    assert isinstance(error, ModelFailure), f"{type(error).__name__} has no place in the table: {error}"
    return error
