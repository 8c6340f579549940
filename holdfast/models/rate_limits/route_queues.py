"""Which calls have a task queue of their own: those to routes with rate limits. Names only; asks no server."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.core.agent.model import Model
from holdfast.models.endpoint import RoutingModel
from holdfast.models.routes import RateLimits, Route


def limits_of(model: Model) -> dict[str, RateLimits]:
    """Return the rate limits of a model's routes, by the names of those that have any."""
    return limits_in(_routes_of(model))


def limits_in(routes: Mapping[str, Route]) -> dict[str, RateLimits]:
    """Return the rate limits of routes, by the names of those that have any."""
    return {name: route.rate_limits for name, route in routes.items() if route.is_limited}


def queued_models(model: Model) -> dict[str, str]:
    """Return `ToolCatalog.queued_models` for a worker's model."""
    limited = limits_of(model)
    plain = (name for name in _routes_of(model) if name not in limited and name.partition("/")[0] in limited)
    return {**{name: name for name in limited}, **dict.fromkeys(plain, "")}


def _routes_of(model: Model) -> Mapping[str, Route]:
    return model.routes if isinstance(model, RoutingModel) else {}
