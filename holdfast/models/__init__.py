"""Clients for model APIs, one package each, all behind the protocol `Model`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.agent.model import AnswerPart, Model, ModelRequest
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.lazy_names import lazy_names
from holdfast.models.endpoint import ProviderSettings
from holdfast.models.function_model import FunctionModel

if TYPE_CHECKING:
    from holdfast.models.anthropic.model import Anthropic
    from holdfast.models.openai_chat.model import OpenAIChat
    from holdfast.models.openai_responses.model import OpenAIResponses
    from holdfast.models.pydantic_ai.model import PydanticAIModel

__all__ = [
    "AnswerPart",
    "Anthropic",
    "FunctionModel",
    "InferenceResponse",
    "Model",
    "ModelRequest",
    "OpenAIChat",
    "OpenAIResponses",
    "ProviderSettings",
    "PydanticAIModel",
]


__getattr__ = lazy_names(
    __name__,
    {
        "OpenAIChat": "openai_chat.model",
        "OpenAIResponses": "openai_responses.model",
        "Anthropic": "anthropic.model",
        "PydanticAIModel": "pydantic_ai.model",
    },
    {"openai": "openai", "anthropic": "anthropic", "pydantic_ai": "pydantic-ai"},
    "this model",
)
