"""What hooks change of one model call: checks and prices it on the worker, and puts it into the request."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.core.agent.definition import LLM
from holdfast.core.agent.hooks import HookContext, problem_with_model_call
from holdfast.core.agent.model import Model, problem_with
from holdfast.core.base.frozen import replace
from holdfast.core.base.usage import Prices
from holdfast.core.conversation.messages import Message
from holdfast.core.conversation.model_call_changes import CALL_ONLY, ModelCallChanges
from holdfast.core.tools.tool_traits import ToolSchema
from holdfast.runtime.prices import PriceList


@dataclass(frozen=True, slots=True)
class ModelCallCheck:
    """What a worker knows of models: whether a call can be changed as a hook wants, and what the model costs then."""

    model: Model
    prices: PriceList

    async def checked(self, usual: LLM, context: HookContext, changes: ModelCallChanges) -> ModelCallChanges | str:
        """Return `changes` with what is known of their model; or why such a call would fail, as for a definition.

        `usual` is what the agent is asked with when no hook changes that. It may read a key's file and import a client.
        """
        llm = context.llm or LLM()
        if problem := problem_with_model_call(llm, context.tools, changes):
            return problem
        # of its fallbacks alone, however many the hook has named: those of all hooks together stay within the bound
        routes = {each.model for each in llm.fallback}
        own = {name: prices for name, prices in changes.fallback_prices.items() if name in routes}
        changes = replace(changes, fallback_prices=own)
        if changes.model is None and not changes.options:
            return changes
        # in a thread: a synchronous read would block heartbeats and all other calls of the worker
        return await asyncio.to_thread(self._known, usual, llm, changes)

    def _known(self, usual: LLM, llm: LLM, changes: ModelCallChanges) -> ModelCallChanges | str:
        if problem := problem_with(self.model, llm.changed_by(changes)):
            return problem
        tier = llm.changed_by(changes).service_tier
        anew = ((each.model, self._in_tier(each.model, each.prices, llm.service_tier, tier)) for each in llm.fallback)
        known = {name: prices for name, prices in anew if prices is not None}
        changes = replace(changes, fallback_prices={**known, **changes.fallback_prices})
        if changes.model in (None, llm.model):
            prices = changes.prices or self._in_tier(llm.model, llm.prices, llm.service_tier, tier)
            return replace(changes, prices=prices)
        if changes.model == usual.model:  # back from where a hook before has sent the call
            prices = self._in_tier(usual.model, usual.prices, usual.service_tier, tier) or usual.prices
            return replace(
                changes,
                prices=changes.prices or prices,
                context_window=changes.context_window or usual.context_window,
                longest_answer=changes.longest_answer or usual.longest_answer,
            )
        return replace(
            changes,
            prices=changes.prices or self.prices.of(changes.model, tier),
            context_window=changes.context_window or self.prices.window_of(changes.model),
            longest_answer=changes.longest_answer or self.prices.longest_answer_of(changes.model),
        )

    def _in_tier(self, model: str | None, prices: Prices | None, before: str | None, tier: str | None) -> Prices | None:
        """Return the prices of `model` in a service tier; none where they stay what they were in the one `before`.

        Prices of the definition's own hold for every tier.
        """
        listed = tier != before and prices == self.prices.of(model, before)
        return self.prices.of(model, tier) if listed else None


def offered_tools(tools: Sequence[ToolSchema], names: Sequence[str] | None) -> tuple[ToolSchema, ...]:
    """Return those of `tools` that a call offers, in their order: all where `names` is none."""
    return tuple(tools) if names is None else tuple(tool for tool in tools if tool.name in names)


def with_prompt(messages: Sequence[Message], prompt: str) -> Sequence[Message]:
    """Return `messages` with the text of hooks behind them, if there is one.

    Behind, because a provider's prompt cache holds as far as a request begins like an earlier one.
    """
    return (*messages, Message(role="user", content=prompt, metadata={CALL_ONLY: True})) if prompt else messages
