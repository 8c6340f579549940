"""How the APIs of models are spoken, one package for each, all behind the protocol `Model`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.agent.model import AnswerPart, Model, ModelRequest
from holdfast.core.base.errors import MissingPart
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.models.endpoint import ProviderSettings
from holdfast.models.function_model import FunctionModel

if TYPE_CHECKING:
    from holdfast.models.openai_chat.model import OpenAIChat

__all__ = [
    "AnswerPart",
    "FunctionModel",
    "InferenceResponse",
    "Model",
    "ModelRequest",
    "OpenAIChat",
    "ProviderSettings",
]


def __getattr__(name: str) -> object:
    """Import what needs a package of a provider when it is asked for."""
    if name != "OpenAIChat":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from holdfast.models.openai_chat.model import OpenAIChat  # noqa: PLC0415  # an extra
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package != "openai":
            raise
        raise MissingPart(
            f"OpenAIChat needs {package}, which is not installed: pip install 'holdfast[openai]'"
        ) from None
    return OpenAIChat
