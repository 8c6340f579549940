"""What a model's capabilities make of an agent's options: what is asked differently, and what is refused."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from holdfast.core.agent.definition import LLM
from holdfast.core.base.frozen import replace
from holdfast.models.routes import Capability

NO_REASONING: Final = "none"
"""The effort of a model that is not to reason: one that cannot does so anyway."""


def capable_options(llm: LLM, can: Collection[Capability], api_options: Collection[str]) -> LLM:
    """Return `llm` as a model that can do no more than that is asked, through an API with those options.

    One that cannot call tools in parallel is asked for a call at a time. That is about functions: calls in words, of a
    model without `tools`, are ours to read.
    """
    changed = llm
    if "parallel_tools" not in can and "tools" in can and "parallel_tool_calls" in api_options:
        changed = replace(changed, parallel_tool_calls=False)
    if "reasoning" not in can and llm.reasoning_effort == NO_REASONING:
        changed = replace(changed, reasoning_effort=None)
    return changed


def capability_problem(llm: LLM, can: Collection[Capability]) -> str:
    """Return why a model that can do no more than that cannot be asked with `llm`; empty where it can."""
    model = "the model" if llm.model is None else f"the model {llm.model!r}"
    if llm.parallel_tool_calls and "parallel_tools" not in can and "tools" in can:
        return _problem(f"{model} calls one tool at a time", "parallel_tools", "llm.parallel_tool_calls: true")
    if llm.reasoning_effort not in (None, NO_REASONING) and "reasoning" not in can:
        return _problem(f"{model} does not reason", "reasoning", "llm.reasoning_effort")
    return ""


def _problem(what: str, capability: Capability, option: str) -> str:
    return f"{what}: its capabilities lack {capability!r}; leave out {option}, or list {capability!r} with them"
