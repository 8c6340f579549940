"""What a worker adds to a hook's changes of a model call: the prices that hold then, of fallbacks too."""

from __future__ import annotations

import pytest

from holdfast.core.agent.definition import LLM, FallbackRoute
from holdfast.core.agent.hooks import HookContext
from holdfast.core.base.bounds import FALLBACKS_MAX
from holdfast.core.base.frozen import replace
from holdfast.core.base.usage import Prices
from holdfast.core.conversation.model_call_changes import ModelCallChanges
from holdfast.runtime.model_call_changes import ModelCallCheck
from holdfast.runtime.prices import PriceList
from holdfast.testing import ScriptedModel
from tests.core.building import Run, hook_at

MINE = Prices(input_usd=1, output_usd=2)
ROUTES = (FallbackRoute(model="gpt-5-mini"), FallbackRoute(model="gpt-5-nano", prices=MINE), FallbackRoute(model="x-1"))
PRICES = PriceList()


def context(llm: LLM) -> HookContext:
    return Run(llm=llm, hooks=[hook_at("before_inference")]).begin().hook_context


async def checked(llm: LLM, changes: ModelCallChanges) -> ModelCallChanges:
    usual = PRICES.priced(llm)
    known = await ModelCallCheck(ScriptedModel([]), PRICES).checked(usual, context(usual), changes)
    assert not isinstance(known, str)
    return known


@pytest.mark.parametrize("model", [None, "gpt-4.1"])
async def test_in_another_tier_the_fallbacks_have_that_tiers_prices(model: str | None) -> None:
    """But for those whose prices the definition says, and those that nobody knows."""
    llm = LLM(model="gpt-5", fallback=ROUTES)
    priority = await checked(llm, ModelCallChanges(model=model, options={"service_tier": "priority"}))
    dear, usual = PRICES.of("gpt-5-mini", "priority"), PRICES.of("gpt-5-mini")
    assert dear is not None
    assert dear != usual
    assert priority.fallback_prices == {"gpt-5-mini": dear}
    assert priority.prices == PRICES.of(model or "gpt-5", "priority")
    fallbacks = PRICES.priced(llm).changed_by(priority).fallback
    assert [each.prices for each in fallbacks] == [dear, MINE, None]
    back = await checked(replace(llm, service_tier="priority"), ModelCallChanges(options={"service_tier": None}))
    assert back.fallback_prices == {"gpt-5-mini": usual}


async def test_in_the_same_tier_they_cost_as_ever() -> None:
    llm = LLM(model="gpt-5", service_tier="flex", fallback=ROUTES)
    for options in ({"temperature": 0.0}, {"service_tier": "flex"}):
        assert not (await checked(llm, ModelCallChanges(options=options))).fallback_prices


async def test_what_a_hook_says_of_fallbacks_comes_first_and_of_others_nothing_is_kept() -> None:
    dear = {"gpt-5-mini": Prices(input_usd=70, output_usd=80)}
    others = {f"other-{number}": MINE for number in range(FALLBACKS_MAX - 1)}
    llm = LLM(model="gpt-5", fallback=ROUTES)
    for options in ({}, {"service_tier": "flex"}):
        known = await checked(llm, ModelCallChanges(options=options, fallback_prices={**dear, **others}))
        assert known.fallback_prices == dear
