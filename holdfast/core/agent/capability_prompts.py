"""Prompts of capabilities that are functions: their texts are made for each model call and are in no history."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from pydantic import JsonValue

from holdfast.core.agent.context_view import NO_FACTS, RunFacts
from holdfast.core.base.errors import CompilerFailed
from holdfast.core.base.safe_text import encodable
from holdfast.core.conversation.error_records import error_record

PROMPT_CHARS_MAX: Final = 16_000
"""The longest text of one function: it is sent with every model call, and no headroom is kept for more."""


@dataclass(frozen=True, slots=True)
class PromptContext:
    """What a capability's prompt may depend on.

    Attributes:
        metadata: the agent's, merged with the run's.
        system_prompt: the agent's, with the fixed prompts of its capabilities.
        execution_id: the execution under way.
        run: whose execution it is, and which step.
    """

    metadata: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    system_prompt: str = ""
    execution_id: str = ""
    run: RunFacts = NO_FACTS


PromptFunction: TypeAlias = Callable[[PromptContext], str]
"""Makes a capability's prompt. It must be quick and wait for nothing; an empty text adds nothing."""


def with_prompts(functions: Iterable[tuple[str, PromptFunction]], context: PromptContext) -> str:
    """Return the system prompt of `context` with what the functions add, given with their capabilities' names.

    Raises CompilerFailed, with the capability's name, for a function that raises, and for what is no text of at most
    PROMPT_CHARS_MAX characters.
    """
    texts = [context.system_prompt]
    for name, function in functions:
        whose = f"the prompt of the capability {name!r}"
        try:
            text: object = function(context)
        except Exception as error:
            record = error_record(error, name)
            raise CompilerFailed(f"{whose} raised {record.type}: {record.message}") from error
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # user code
            raise CompilerFailed(f"{whose} gave a value of type {type(text).__name__!r}; return a text")
        if len(text) > PROMPT_CHARS_MAX:
            raise CompilerFailed(f"{whose} has {len(text):,} characters, at most {PROMPT_CHARS_MAX:,} are allowed")
        texts.append(encodable(text))
    return "\n\n".join(filter(None, texts))
