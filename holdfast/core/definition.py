"""What an agent is: its prompt, model, tools, rules and limits, as one value. Reading files is `client.definitions`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, Field, JsonValue

from holdfast.core.budget import BudgetPolicy, ExecutionBudget
from holdfast.core.frozen import Frozen
from holdfast.core.limits import DEPTH_MAX, OVERRIDES_MAX, REASKS_MAX, SUBAGENTS_MAX, WORD_CHARS_MAX
from holdfast.core.policies import ApprovalRule, ContextPolicy, ErrorPolicy, Name, ResponseFormat, TextFormat
from holdfast.core.stopping import OVERRIDABLE, StopReason
from holdfast.core.usage import Prices

__all__ = ["LLM", "AgentDefinition", "Name", "Text"]


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("it holds characters that are no valid Unicode text (lone surrogates)") from None
    return text


Text = Annotated[str, AfterValidator(_encodable)]
"""A text that can travel."""

Word = Annotated[str, Field(min_length=1, max_length=WORD_CHARS_MAX)]


class LLM(Frozen):
    """Which model answers and how; without `model` it is the worker's HOLDFAST_MODEL.

    Address and key are the worker's environment and never travel. `prices` are what its tokens cost; without them
    `max_cost` limits nothing, which the state says as a warning.
    """

    model: str | None = Field(default=None, min_length=1, max_length=200)
    temperature: float | None = Field(default=None, ge=0, le=2)
    max_output_tokens: int | None = Field(default=None, gt=0)
    prices: Prices | None = None


class AgentDefinition(Frozen):
    """An agent. For `tools` and `hooks` none means every one of the worker's, an empty list means none.

    `sequential` runs the calls of a step one after another. `max_depth` is how deep subagents may nest below this
    agent when it is the root. `overridable` and `max_overrides` bound what a hook's continuation request may do
    (`holdfast.core.stopping`). `finish_reasons` are the provider's words for an answer that ended early: an answer
    without tool calls that ends with one stops the run with the reason `finish_reason`. `reasks_max` is how often an
    answer that breaks `response_format` is asked for again. `capabilities` name bundles of tools and hooks.
    """

    name: Name
    label: Text = Field(default="", max_length=200)
    description: Text = Field(default="", max_length=2_000)
    system_prompt: Text = ""
    llm: LLM = LLM()
    tools: tuple[Name, ...] | None = None
    tools_deny: tuple[Name, ...] = ()
    sequential: bool = False
    hooks: tuple[Name, ...] | None = None
    capabilities: tuple[Name, ...] = ()
    subagents: tuple[Name, ...] = Field(default=(), max_length=SUBAGENTS_MAX)
    max_depth: int = Field(default=3, ge=0, le=DEPTH_MAX)
    budget: ExecutionBudget = ExecutionBudget()
    budget_policy: BudgetPolicy = "inherit"
    pause_while_waiting: bool = False
    approvals: tuple[ApprovalRule, ...] = ()
    errors: ErrorPolicy = "recover"
    overridable: tuple[StopReason, ...] = OVERRIDABLE
    max_overrides: int = Field(default=3, ge=0, le=OVERRIDES_MAX)
    finish_reasons: tuple[Word, ...] = ("length", "content_filter")
    response_format: ResponseFormat = TextFormat()
    reasks_max: int = Field(default=2, ge=0, le=REASKS_MAX)
    context: ContextPolicy = ContextPolicy()
    metadata: Mapping[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
