"""How tokens and money are written for people, in one way everywhere: screens, pages, the Web UI. Counts nothing.

3,120 tokens                              as the endpoint reported them
≈ 3,120 tokens                            some of them an upper bound: the endpoint did not report them
0.0024 USD
> 0.0024 USD (unpriced: model-x)          some tokens have no known price, those of model-x
> 0.0024                                  the same in a cell or beside a bar: what stands around it names them
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from holdfast.core.base.usage import Usage
from holdfast.core.conversation.display_text import on_a_line

ESTIMATED: Final = "≈ "
"""Stands before a number of tokens that holds an upper bound."""

UNKNOWN_PRICE: Final = "no price is known for "
"""How a sentence about a model without a price begins."""

PRICE_REMEDY: Final = "set llm.prices or HOLDFAST_PRICES"

WORKERS_MODEL: Final = "the worker's model"
"""Stands for a model that neither the definition nor the endpoint has named."""

SUBAGENTS_MODEL: Final = "the model of agent "
"""The same for one of a subagent that could not tell what it used; the agent's name follows."""

UNPRICED_MODELS_MAX: Final = 16
"""How many models without a price one execution remembers by name."""

MODELS_SHOWN: Final = 3
"""How many models without a price are named."""


def token_count(usage: Usage) -> str:
    """Return how many tokens were used: `3,120`, or `≈ 3,120`."""
    return f"{ESTIMATED if usage.estimated_tokens else ''}{usage.total_tokens:,}"


def tokens_in_and_out(usage: Usage) -> str:
    """Return tokens in and out: `2,900 in, 220 out`."""
    return f"{ESTIMATED if usage.estimated_tokens else ''}{usage.input_tokens:,} in, {usage.output_tokens:,} out"


def dollars(
    cost: float, unpriced: Sequence[str] = (), *, unit: str = " USD", written: Callable[[str], str] = on_a_line
) -> str:
    """Return a cost in US dollars; `unpriced` are the models whose tokens are not in it.

    `written` writes a model's name, which a provider can have chosen, as it may stand there: in Markdown as code.
    """
    return f"{short_dollars(cost, unpriced)}{unit}{unpriced_models(unpriced, written)}"


def short_dollars(cost: float, unpriced: Sequence[str] = ()) -> str:
    """Return the same where there is room for the figure alone: `0.0003`, or `> 0.0003` with models unpriced."""
    return f"{'> ' if unpriced else ''}{cost:.4f}"


def unpriced_models(unpriced: Sequence[str], written: Callable[[str], str] = on_a_line) -> str:
    """Return ` (unpriced: model-x)`, nothing where every token has a price."""
    if not unpriced:
        return ""
    more = len(unpriced) - MODELS_SHOWN
    names = ", ".join(map(written, unpriced[:MODELS_SHOWN]))
    return f" (unpriced: {names}{f' and {more} more' if more > 0 else ''})"


def joined_models(one: Sequence[str], other: Iterable[str]) -> tuple[str, ...]:
    """Return the models of both, each once and no more than UNPRICED_MODELS_MAX."""
    return tuple(dict.fromkeys((*one, *other)))[:UNPRICED_MODELS_MAX]


def no_price(model: str) -> str:
    """Return the warning that no price is known for `model`, with its remedy."""
    return f"{UNKNOWN_PRICE}{_phrase(model)}: its cost counts as 0 and max_cost is not enforced for it; {PRICE_REMEDY}"


def refused_price(model: str) -> str:
    """Return why a run that refuses models without a price makes no call to `model`."""
    return f"{UNKNOWN_PRICE}{_phrase(model)} and the budget refuses that (unpriced: refuse); {PRICE_REMEDY}"


def _phrase(model: str) -> str:
    return model if model == WORKERS_MODEL or model.startswith(SUBAGENTS_MODEL) else f"model {model!r}"
