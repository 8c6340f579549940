"""`RoutedPrices`: prices, windows and longest answers of a worker's routes, beside what it knows of its endpoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from holdfast.core.base.usage import Prices
from holdfast.models.route_choice import RouteChoice
from holdfast.runtime.prices import PriceList


def _no_route(name: str | None) -> RouteChoice | None:  # noqa: ARG001  # the signature of its kind
    return None


@dataclass(frozen=True, slots=True)
class RoutedPrices(PriceList):
    """Prices by `llm.model`: a route's own come first, then your file's, then the table's at the route's provider."""

    choose: Callable[[str | None], RouteChoice | None] = _no_route

    @classmethod
    def beside(cls, own: PriceList, choose: Callable[[str | None], RouteChoice | None]) -> RoutedPrices:
        """Return the prices of the routes that `choose` finds; for any other name those of `own` count."""
        return cls(own.overrides, own.model, own.base_url, own.provider, choose)

    def of(self, model: str | None, tier: str | None = None) -> Prices | None:
        """Return the prices of what `model` means, none when they are unknown."""
        choice = self.choose(model)
        if choice is None:
            return PriceList.of(self, model, tier)
        if choice.route.prices is not None and choice.is_own_model:
            return choice.route.prices
        named = self.overrides.get(model or "")
        return named if named is not None else self._at(choice).of(choice.model, tier)

    def window_of(self, model: str | None) -> int | None:
        """Return the tokens of the context window of what `model` means; none if unknown."""
        choice = self.choose(model)
        if choice is None:
            return PriceList.window_of(self, model)
        if choice.route.context_window is not None and choice.is_own_model:
            return choice.route.context_window
        return self._at(choice).window_of(choice.model)

    def longest_answer_of(self, model: str | None) -> int | None:
        """Return the tokens of the longest answer of what `model` means; none if its route does not say it."""
        choice = self.choose(model)
        return choice.route.max_output_tokens if choice is not None and choice.is_own_model else None

    def _at(self, choice: RouteChoice) -> PriceList:
        """Return the prices at a route's endpoint, whose address or API determines the provider."""
        api = choice.api
        own = PriceList(self.overrides)
        return replace(own, base_url=choice.route.base_url, provider=api.variables.lower() if api else None)
