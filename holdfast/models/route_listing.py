"""Lists routes as they may be shown: where each is, whether its key is here, what is known of its model. Tries them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Final

from holdfast.core.agent.definition import LLM
from holdfast.core.agent.model import ModelRequest, problem_with
from holdfast.core.base.errors import HoldfastError
from holdfast.core.base.usage import Prices
from holdfast.core.conversation.messages import user_message
from holdfast.models.endpoint import ProviderSettings, prices_of
from holdfast.models.model_apis import api_named
from holdfast.models.routed_model import RoutedModel

TRIED_TOKENS_MAX: Final = 16
"""How long the answer to a try may be: OpenAI's Responses API takes no smaller bound."""

TRIED_SECONDS_MAX: Final = 60.0
"""How long a try may take."""

QUESTION: Final = "Answer with the word ok."


@dataclass(frozen=True, slots=True)
class RouteListing:
    """A route as it may be shown; the worker's own model has no name.

    `key` is `present`, `missing`, or `none` where none is needed. `problem` is why its calls would fail, as far as that
    is known without one.
    """

    name: str
    api: str
    model: str | None
    endpoint: str
    key: str
    problem: str
    prices: Prices | None
    context_window: int | None


@dataclass(frozen=True, slots=True)
class RouteTry:
    """How one call of a route went: how long it took, and the tokens it used; or the error."""

    seconds: float
    tokens: int
    error: str


def listings(model: RoutedModel, environment: Mapping[str, str]) -> list[RouteListing]:
    """Return the worker's own model, where it has one, and its routes. Raises InvalidInput for a wrong price file."""
    prices = prices_of(model, environment)
    lines: list[RouteListing] = []
    own = model.settings
    if own is not None and not own.has_no_access:
        key = "present" if own.api_key else "none"
        known = (prices.of(None), prices.window_of(None))
        lines.append(RouteListing("", own.api.name, own.model, own.endpoint, key, "", *known))
    for name, route in model.routes.items():
        problem, api = model.route_problem(name), api_named(route.api)
        settings = model.provider_for(LLM(model=name))
        if route.is_custom or api is None:
            endpoint, key = "", "none"
        elif settings is None:
            endpoint, key = ProviderSettings(base_url=route.base_url, api=api).endpoint, "missing"
        else:
            endpoint, key = settings.endpoint, "present" if settings.api_key else "none"
        # without a model of its own its name would be looked up
        known = (prices.of(name), prices.window_of(name)) if route.model else (None, route.context_window)
        lines.append(RouteListing(name, route.api, route.model, endpoint, key, problem, *known))
    return lines


async def tried(model: RoutedModel, names: list[str]) -> dict[str, RouteTry]:
    """Return how a short answer of each of these went, asked side by side; an empty name is the worker's own model."""
    # imports their clients, all before the first call: that is no time of an endpoint's
    checks = (asyncio.to_thread(problem_with, model, LLM(model=name or None)) for name in names)
    problems = await asyncio.gather(*checks)
    tries = await asyncio.gather(*map(partial(_tried, model), names, problems))
    return dict(zip(names, tries, strict=True))


async def _tried(model: RoutedModel, name: str, error: str) -> RouteTry:
    """Ask the model of that name, unless there is an error already."""
    request = ModelRequest(LLM(model=name or None), "", (user_message(QUESTION),), (), TRIED_TOKENS_MAX)
    tokens = 0
    started_at = perf_counter()
    try:
        if not error:
            async with asyncio.timeout(TRIED_SECONDS_MAX):
                tokens = (await model(request)).usage.total_tokens
    except TimeoutError:
        error = f"no answer within {TRIED_SECONDS_MAX:g} s"
    except HoldfastError as failure:
        error = failure.message
    except Exception as failure:  # noqa: BLE001  # of a model of one's own
        error = f"{type(failure).__name__}: {failure}"
    return RouteTry(round(perf_counter() - started_at, 3), tokens, " ".join(error.split()))
