"""The types of a model's options (`LLM`): what may be asked of a provider besides the conversation. Knows no API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, JsonValue
from pydantic_core import to_json

from holdfast.core.base.bounds import NAME_CHARS_MAX
from holdfast.core.base.json_values import PortableMap
from holdfast.core.base.names import distinct

STOP_TEXTS_MAX: Final = 16
"""The most stop texts of a model; OpenAI takes four."""

STOP_CHARS_MAX: Final = 200
"""The longest stop text, in characters."""

EXTRA_BYTES_MAX: Final = 16 * 1024
"""The most that `LLM.extra` may take, in bytes of JSON: it is a part of every request, and of the definition."""

SEED_MAX: Final = 2**63
"""Seeds lie between minus this and this: they are 64-bit numbers everywhere."""

NONE: Final = "none"
"""The value of `tool_choice` that lets no tool be called."""

FREE_CHOICES: Final = ("auto", NONE)
"""The values of `tool_choice` that force no tool call."""

REQUIRED: Final = "required"
"""The value of `tool_choice` that forces a call of some tool."""

_OPTIONS: Final = {
    "model": "llm.model",
    "temperature": "llm.temperature",
    "top_p": "llm.top_p",
    "stop": "llm.stop",
    "stop_sequences": "llm.stop",
    "seed": "llm.seed",
    "stream": "llm.stream",
    "max_tokens": "llm.max_output_tokens",
    "max_completion_tokens": "llm.max_output_tokens",
    "max_output_tokens": "llm.max_output_tokens",
    "reasoning_effort": "llm.reasoning_effort",
    "verbosity": "llm.verbosity",
    "service_tier": "llm.service_tier",
    "tool_choice": "llm.tool_choice",
    "parallel_tool_calls": "llm.parallel_tool_calls",
    "background": "llm.background",
    "response_format": "response_format",
    "tools": "tools` or `llm.server_tools",
    "system": "system_prompt",
    "instructions": "system_prompt",
}
"""Keys of request bodies that a definition has fields for, with the field."""

_OWNED: Final = frozenset(
    {
        "messages",
        "input",
        "functions",
        "function_call",
        "stream_options",
        "n",
        "best_of",
        "conversation",
        "previous_response_id",
    }
)
"""Keys that are the run's own: the conversation, how it is answered, and how many answers are paid for."""


def _is_ours_alone(extra: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    """Return `extra`. Raises ValueError for a key that a run sets itself, and for a map that is too large."""
    for key in extra:
        if key in _OPTIONS:
            raise ValueError(f"{key!r} has a field of its own; write `{_OPTIONS[key]}`")
        if key in _OWNED:
            raise ValueError(f"{key!r} is set by the run itself; leave it out")
    size = len(to_json(extra))
    if size > EXTRA_BYTES_MAX:
        raise ValueError(f"it has {size:,} bytes of JSON, at most {EXTRA_BYTES_MAX:,} are sent; shorten it")
    return extra


ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
"""How much a model thinks before it answers. Each model takes some of these."""

Verbosity = Literal["low", "medium", "high"]
"""How long a model's answers are."""

ServiceTier = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]*$", max_length=NAME_CHARS_MAX)]
"""The provider's name for the way in which it serves a call, such as `flex` or `priority`."""

StopTexts = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=STOP_CHARS_MAX)], ...],
    Field(min_length=1, max_length=STOP_TEXTS_MAX),
    AfterValidator(distinct),
]
"""Texts at which an answer ends, without the text itself."""

Seed = Annotated[int, Field(ge=-SEED_MAX, lt=SEED_MAX)]
"""A number with which a provider tries to answer equal requests equally."""

ExtraBody = Annotated[PortableMap, AfterValidator(_is_ours_alone)]
"""Further fields of the request's body, for what an API takes and `LLM` has no field for. No place for secrets."""


def named_tool(tool_choice: str | None) -> str | None:
    """Return the tool that `tool_choice` says must be called, if it names one."""
    return tool_choice if forces_calls(tool_choice) and tool_choice != REQUIRED else None


def forces_calls(tool_choice: str | None) -> bool:
    """Return whether `tool_choice` forces the model to call a tool."""
    return tool_choice is not None and tool_choice not in FREE_CHOICES
