"""What a model is asked, and the one thing a model must be able to do. Talks to no provider."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from holdfast.core.definition import LLM
from holdfast.core.messages import Message
from holdfast.core.policies import ResponseFormat, TextFormat
from holdfast.core.steps import InferenceResponse
from holdfast.core.tools import ToolSchema

IN_WORDS: Final = TextFormat()


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One model call: prompt, conversation, tools and the form of the final answer.

    `max_output_tokens` none leaves it to the provider.
    """

    llm: LLM
    system_prompt: str
    messages: Sequence[Message]
    tools: tuple[ToolSchema, ...]
    max_output_tokens: int | None
    response_format: ResponseFormat = IN_WORDS


class Model(Protocol):
    """Anything that answers a request: the provider's client, or a script in a test."""

    async def __call__(self, request: ModelRequest, /) -> InferenceResponse:
        """Return the answer; raise an exception when there is none. Cancelling it must end the call."""
        ...
