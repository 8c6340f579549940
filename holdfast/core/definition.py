"""What an agent is: its prompt, model, tools and limits, as one value. Reading files is `client.definitions`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, Field, JsonValue

from holdfast.core.budget import ExecutionBudget
from holdfast.core.frozen import Frozen
from holdfast.core.limits import NAME_CHARS_MAX

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$", max_length=NAME_CHARS_MAX)]
"""An agent's or tool's name: letters, digits, `_` and `-` (what OpenAI accepts as a function name)."""


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("it holds characters that are no valid Unicode text (lone surrogates)") from None
    return text


Text = Annotated[str, AfterValidator(_encodable)]
"""A text that can travel."""


class LLM(Frozen):
    """Which model answers and how; without `model` it is the worker's HOLDFAST_MODEL.

    Address and key are the worker's environment and never travel.
    """

    model: str | None = Field(default=None, min_length=1, max_length=200)
    temperature: float | None = Field(default=None, ge=0, le=2)
    max_output_tokens: int | None = Field(default=None, gt=0)


class AgentDefinition(Frozen):
    """An agent. `tools` none means every tool of the worker, an empty list means none."""

    name: Name
    description: Text = Field(default="", max_length=2_000)
    system_prompt: Text = ""
    llm: LLM = LLM()
    tools: tuple[Name, ...] | None = None
    tools_deny: tuple[Name, ...] = ()
    budget: ExecutionBudget = ExecutionBudget()
    metadata: Mapping[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
