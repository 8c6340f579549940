"""What `before_inference` hooks change of one model call: model, options, tools and prompt. Knows no agent."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Annotated, Final

from pydantic import Field, JsonValue
from pydantic_core import to_json

from holdfast.core.base.bounds import FALLBACKS_MAX, HOOK_CHANGES_BYTES_MAX, HOOKS_MAX, TOOLS_MAX, WORD_CHARS_MAX
from holdfast.core.base.frozen import Frozen, is_empty, is_none, replace
from holdfast.core.base.json_values import ShallowMap
from holdfast.core.base.names import Name, Names
from holdfast.core.base.usage import Prices

CALL_PROMPT_CHARS_MAX: Final = HOOK_CHANGES_BYTES_MAX
"""The longest text that hooks add to one model call: what all hooks of a place may change together."""

CALL_ONLY: Final = "call_only"
"""Marks the message that holds such a text, in its metadata: the next call does not have it."""

VALUE_CHARS_SHOWN: Final = 60
"""How much of an option's value a line shows."""

NAMES_SHOWN: Final = 8
"""How many tools a line names."""


MODEL_FACTS: Final = ("prices", "context_window", "longest_answer")
"""The fields, here and of `LLM`, that are facts about a model: a worker fills them in, and each model has its own."""


class ModelCallChanges(Frozen):
    """What is different in one model call, as hooks at `before_inference` want it. The next call is unchanged.

    Attributes:
        model: the model or route that is asked instead.
        options: options of `llm` by their names, over the agent's own; None unsets an option.
        tools: the only tools that the model is offered and may call, of those that the agent has.
        prompt: a text behind the conversation, as a message of the user. No later call has it.
        prices: the prices of the model that is asked, by default those that the worker knows.
        context_window: the context window of that model in tokens, likewise.
        longest_answer: the tokens of its longest answer, likewise.
        fallback_prices: the prices of the models that the call can fall back to, by name, where the changes are a
            reason for others: in another service tier. By default those that the worker knows.
        hooks: the hooks that changed the call, in order. The loop sets it; what a hook says here does not count.
    """

    model: str | None = Field(default=None, min_length=1, max_length=WORD_CHARS_MAX, exclude_if=is_none)
    options: ShallowMap = Field(default_factory=dict[str, JsonValue], exclude_if=operator.not_)
    tools: Annotated[Names, Field(max_length=TOOLS_MAX)] | None = Field(default=None, exclude_if=is_none)
    prompt: str = Field(default="", max_length=CALL_PROMPT_CHARS_MAX, exclude_if=operator.not_)
    prices: Prices | None = Field(default=None, exclude_if=is_none)
    context_window: int | None = Field(default=None, gt=0, exclude_if=is_none)
    longest_answer: int | None = Field(default=None, gt=0, exclude_if=is_none)
    fallback_prices: Annotated[Mapping[str, Prices], Field(max_length=FALLBACKS_MAX)] = Field(
        default_factory=dict[str, Prices], exclude_if=operator.not_
    )
    hooks: tuple[Name, ...] = Field(default=(), max_length=HOOKS_MAX, exclude_if=is_empty)

    def then(self, later: ModelCallChanges, hook: str) -> ModelCallChanges:
        """Return both changes as one, `later` being that of `hook`, which has the last word.

        A tool is offered where both offer it.
        """
        known = {name: getattr(later, name) for name in MODEL_FACTS}
        if later.model is None:  # what is known of the model that is asked anyway
            known = {name: value for name, value in known.items() if value is not None}
        return replace(
            self,
            model=later.model or self.model,
            options={**self.options, **later.options},
            tools=later.offered_of(self.tools),
            prompt="\n\n".join(filter(None, (self.prompt, later.prompt))),
            fallback_prices={**self.fallback_prices, **later.fallback_prices},
            hooks=(*self.hooks, hook),
            **known,
        )

    def offered_of(self, tools: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """Return those of `tools` that this change offers; none stands for all tools there are."""
        if self.tools is None or tools is None:
            return tools if self.tools is None else self.tools
        return tuple(name for name in tools if name in self.tools)

    @property
    def line(self) -> str:
        """What is different, in a line."""
        facts = [f"model {self.model}"] if self.model else []
        facts += [f"{name} {_shown(value)}" for name, value in self.options.items()]
        if self.tools is not None:
            facts.append(f"tools {_listed(self.tools)}" if self.tools else "no tools")
        if self.prompt:
            facts.append(f"{len(self.prompt):,} characters of prompt")
        by = ", ".join(self.hooks)
        return f"the call was changed by {by or 'a hook'}: {', '.join(facts) or 'nothing'}"


UNCHANGED: Final = ModelCallChanges()
"""No changes."""


def _listed(names: Iterable[str]) -> str:
    every = tuple(names)
    more = f" and {len(every) - NAMES_SHOWN} more" if len(every) > NAMES_SHOWN else ""
    return ", ".join(every[:NAMES_SHOWN]) + more


def _shown(value: JsonValue) -> str:
    if value is None:
        return "unset"
    text = value if isinstance(value, str) else to_json(value).decode()
    return text if len(text) <= VALUE_CHARS_SHOWN else f"{text[:VALUE_CHARS_SHOWN]}…"
