"""The prices of models: from your own file first, then from the table of the package `genai-prices`. No network.

The table is as old as the installed package: nothing is fetched. Where it has several prices for a model (tiers by
length, times of day, a change to come), the highest that can apply counts, so that no cost is counted too low.
Where a definition names a service tier (`llm.service_tier`), the table's prices of that tier count; batches are never
requested.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import yaml
from pydantic import Field, TypeAdapter, ValidationError

from holdfast.core.agent.definition import LLM, FallbackRoute
from holdfast.core.base.bounds import ERROR_CHARS_MAX
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.frozen import replace
from holdfast.core.base.safe_text import clamped
from holdfast.core.base.usage import Prices
from holdfast.core.base.validation_errors import problem_text

if TYPE_CHECKING:
    from decimal import Decimal

    from genai_prices.types import ModelInfo, ModelPrice, Provider, TieredPrices

PRICES_MAX: Final = 1_000
"""The most models that a worker's file of prices may name."""

PRICES_FILE_BYTES_MAX: Final = 1024 * 1024
"""The largest such file."""

INPUT_PRICES: Final = ("input_mtok", "input_image_mtok")
"""The table's names of prices that can apply to a model's input."""

OUTPUT_PRICES: Final = ("output_mtok", "output_reasoning_mtok", "output_citation_mtok")
"""The same for its output."""

CACHED_PRICES: Final = ("cache_read_mtok",)
"""The same for input that is read from the provider's prompt cache."""

CACHE_WRITE_PRICES: Final = ("cache_write_mtok",)
"""The same for input that is written to it: by Anthropic for five minutes, which is what our requests ask for."""

DEFAULT_PROVIDER: Final = "openai"
"""The provider whose prices count when no API is named: that of the default API."""

MODEL_NAMES_PROVIDER: Final = "litellm"
"""The table's name of a gateway whose models are named `provider/model`."""

NAMES_BEGIN_WITH_PROVIDER: Final = "pydantic_ai"
"""The API whose models are named `provider:model`."""

TABLE_PROVIDERS: Final[Mapping[str, str]] = {
    "bedrock": "aws",
    "google-cloud": "google",
    "openai-chat": "openai",
    "openai-responses": "openai",
    "xai": "x-ai",
}
"""The table's names of such providers, where they are others."""

_OVERRIDES: Final = TypeAdapter(dict[Annotated[str, Field(min_length=1, max_length=200)], Prices])


@dataclass(frozen=True, slots=True)
class PriceList:
    """The prices that a worker knows.

    Args:
        overrides: prices by model name; they precede the table's.
        model: the model that answers for agents that name none.
        base_url: the endpoint's address, none for the API's own. It determines the provider; for an address that the
            table does not know (a gateway) the model's name does.
        provider: the provider to try first without an address: the API's name; none where the model's name decides.
    """

    overrides: Mapping[str, Prices] = field(default_factory=dict[str, Prices])
    model: str | None = None
    base_url: str | None = None
    provider: str | None = DEFAULT_PROVIDER

    @classmethod
    def from_environment(
        cls,
        environment: Mapping[str, str] = os.environ,
        *,
        model: str | None = None,
        base_url: str | None = None,
        provider: str | None = DEFAULT_PROVIDER,
    ) -> PriceList:
        """Return the prices of the file that HOLDFAST_PRICES names, if it does, before those of the table.

        Raises InvalidInput naming every problem of the file.
        """
        path = environment.get("HOLDFAST_PRICES")
        return cls(read_prices(Path(path)) if path else {}, model=model, base_url=base_url, provider=provider)

    def of(self, model: str | None, tier: str | None = None) -> Prices | None:
        """Return the prices of `model`, by default the worker's own model; none when they are unknown.

        `tier` is the service tier that is asked for; only the table knows of those. The first look-up of a model
        without an override loads the table (some 0.5 s).
        """
        name = model or self.model
        if name is None:
            return None
        override = self.overrides.get(name)
        return override if override is not None else table_prices(name, self.base_url, self.provider, tier=tier)

    def window_of(self, model: str | None) -> int | None:
        """Return the tokens of the model's context window, by default the worker's own model's; none if unknown."""
        name = model or self.model
        listed = None if name is None else _listed(name, self.base_url, self.provider)
        return None if listed is None else listed[1].context_window

    def longest_answer_of(self, model: str | None) -> int | None:  # noqa: ARG002  # the table does not know it
        """Return the tokens of the model's longest answer, by default the worker's own model's; none if unknown."""
        return None

    def load(self) -> None:
        """Load the table now instead of at the first look-up."""
        table_prices("", self.base_url, self.provider)

    def priced(self, llm: LLM) -> LLM:
        """Return `llm` with the prices, windows and longest answers of its models, if known; its own come first."""
        tier, model = llm.service_tier, llm.model
        fallback = self.known_routes(llm.fallback, tier)
        return llm.known(self.of(model, tier), self.window_of(model), self.longest_answer_of(model), fallback)

    def known_routes(self, routes: Iterable[FallbackRoute], tier: str | None = None) -> tuple[FallbackRoute, ...]:
        """Return the routes with their prices, windows and longest answers, if known; their own come first."""
        return tuple(
            replace(
                each,
                prices=each.prices or self.of(each.model, tier),
                context_window=each.context_window or self.window_of(each.model),
                longest_answer=each.longest_answer or self.longest_answer_of(each.model),
            )
            for each in routes
        )


def read_prices(path: Path) -> dict[str, Prices]:
    """Return the prices by model that the YAML or JSON file at `path` holds, in US dollars per million tokens.

    Raises InvalidInput naming every problem.
    """
    where = f"HOLDFAST_PRICES {str(path)!r}"
    try:
        if path.stat().st_size > PRICES_FILE_BYTES_MAX:
            raise InvalidInput(f"{where} has more than {PRICES_FILE_BYTES_MAX:,} bytes; name only models that are used")
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"{where} cannot be read: {error.strerror}; correct the name or unset it") from None
    except UnicodeDecodeError:
        raise InvalidInput(f"{where} is not UTF-8 text; save it as such") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        text = " ".join(str(error).split())
        raise InvalidInput(f"{where} is neither YAML nor JSON: {clamped(text, ERROR_CHARS_MAX)}") from None
    try:
        prices = _OVERRIDES.validate_python(data or {})
    except ValidationError as error:
        remedy = "write a line like `my-model: {input_usd: 1.25, output_usd: 10}` for each model"
        raise InvalidInput(f"{where}: {clamped(_problems(error), ERROR_CHARS_MAX)}; {remedy}") from None
    if len(prices) > PRICES_MAX:
        raise InvalidInput(f"{where} names {len(prices):,} models, at most {PRICES_MAX:,} are read")
    return prices


def table_prices(
    model: str,
    base_url: str | None = None,
    provider: str | None = DEFAULT_PROVIDER,
    *,
    today: date | None = None,
    tier: str | None = None,
) -> Prices | None:
    """Return the table's prices of `model` at that endpoint, none when it is not listed.

    `provider` is the provider of the API where there is no `base_url`, `tier` the service tier that is asked for: one
    that the table does not know costs as usual.
    """
    match = _listed(model, base_url, provider)
    if match is None:
        return None
    day = today or datetime.now(UTC).date()
    applying = in_tier(prices_applying(match[1], day), match[1], day, tier)
    input_usd, output_usd = _dearest(applying, INPUT_PRICES), _dearest(applying, OUTPUT_PRICES)
    if input_usd is None or output_usd is None:  # it is not billed by tokens
        return None
    # a price of several that does not name the cache's share bills it as any input
    of_caches = (
        _dearest(applying, names) if all(_dearest((each,), names) is not None for each in applying) else None
        for names in (CACHED_PRICES, CACHE_WRITE_PRICES)
    )
    cached_usd, cache_write_usd = of_caches
    return Prices(input_usd=input_usd, output_usd=output_usd, cached_usd=cached_usd, cache_write_usd=cache_write_usd)


def _listed(model: str, base_url: str | None, provider: str | None) -> tuple[Provider, ModelInfo] | None:
    """Return the table's entry of `model` at that endpoint, with its provider; none when it is not listed."""
    from genai_prices.data import providers  # noqa: PLC0415  # 0.5 s that most programs never need
    from genai_prices.data_snapshot import DataSnapshot  # noqa: PLC0415  # the same

    table = DataSnapshot(providers, from_auto_update=False)
    if provider == NAMES_BEGIN_WITH_PROVIDER:
        prefix, _, name = model.partition(":")
        provider, model = (TABLE_PROVIDERS.get(prefix, prefix), name) if name else (None, model)
    at_endpoint = (provider, None) if base_url is None else (None, base_url)
    for owner_id, url in (at_endpoint, (None, None), (MODEL_NAMES_PROVIDER, None)):
        try:
            return table.find_provider_model(model, None, owner_id, url)
        except LookupError:
            continue
    return None


def prices_applying(model: ModelInfo, today: date) -> list[ModelPrice]:
    """Return the prices of a model that can apply on or after `today`; of those that began, only the latest."""
    if not isinstance(model.prices, list):
        return [model.prices]
    applying: list[ModelPrice] = []
    now = datetime.combine(today, time(), UTC)
    for each in model.prices:
        starts = getattr(each.constraint, "start_date", None)
        by_the_hour = each.constraint is not None and starts is None
        if not by_the_hour and (starts is None or each.constraint is None or each.constraint.active(now)):
            applying.clear()
        applying.append(each.prices)
    return applying


def in_tier(prices: list[ModelPrice], model: ModelInfo, today: date, tier: str | None) -> list[ModelPrice]:
    """Return `prices` of a model as they are in that service tier on or after `today`."""
    now, begun = datetime.combine(today, time(), UTC), False
    overlays: list[ModelPrice] = []
    for variant in (model.price_variants or ()) if tier is not None else ():
        if variant.when != {"service_tier": tier}:
            continue
        active = variant.constraint is None or variant.constraint.active(now)
        if active and begun:  # the table names the latest first: this one has been replaced
            continue
        begun = begun or active
        overlays.append(variant.prices)
    both = [_overlaid(each, overlay) for each in prices for overlay in overlays]
    return both if begun else [*prices, *both]


def _overlaid(price: ModelPrice, overlay: ModelPrice) -> ModelPrice:
    both = copy(price)
    vars(both).update((name, value) for name, value in vars(overlay).items() if value is not None)
    return both


def _dearest(prices: Iterable[ModelPrice], names: Iterable[str]) -> float | None:
    price_names = tuple(names)
    amounts: list[Decimal | TieredPrices | None] = [getattr(each, name) for each in prices for name in price_names]
    return max((float(value) for each in amounts if each is not None for value in _tiers(each)), default=None)


def _tiers(price: Decimal | TieredPrices) -> Iterable[Decimal]:
    tiers = getattr(price, "tiers", None)
    return [price] if tiers is None else [price.base, *(tier.price for tier in tiers)]  # type: ignore[union-attr, list-item]


def _problems(error: ValidationError) -> str:
    return "; ".join(
        f"{'.'.join(str(part) for part in each['loc'] if part != '[key]') or 'the file'}: {problem_text(each)}"
        for each in error.errors(include_url=False, include_context=False)
    )
