"""Which calls wait in a task queue of their own, as the worker says it and the workflow reads it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from activities.tools import Catalog
from holdfast import LLM, AgentDefinition
from holdfast.core.agent.toolset import Toolset
from holdfast.core.wire.contracts import limited_queue, route_of_queue
from holdfast.core.wire.tool_catalog import QUEUED_MODELS_MAX, ToolCatalog, ToolsRequest
from holdfast.models.rate_limits.route_queues import queued_models
from holdfast.models.routed_model import RoutedModel
from holdfast.models.routes import ROUTES_MAX, RateLimits, Route
from holdfast.runtime.prices import PriceList
from holdfast.testing import ScriptedModel, say

AT = datetime(2026, 1, 1, tzinfo=UTC)
LIMITED = Route(
    api="openai_chat", model="m", base_url="http://127.0.0.1:9", rate_limits=RateLimits(tokens_per_minute=5)
)
PLAIN = Route(api="openai_chat", model="m", base_url="http://127.0.0.1:9")


def routed(**routes: Route) -> RoutedModel:
    return RoutedModel(
        ScriptedModel([say("own")]), {name.replace("__", "/"): each for name, each in routes.items()}, {}
    )


@pytest.mark.parametrize(
    ("model", "route"),
    [
        ("large", "large"),
        ("large/other", "large"),
        ("large/plain", None),
        ("small", None),
        ("small/large", None),
        ("anything", None),
        (None, None),
    ],
)
async def test_the_workflow_finds_the_queue_that_the_model_would_choose(model: str | None, route: str | None) -> None:
    """`large/plain` is a route without limits, and no other model of the route `large`."""
    known = routed(large=LIMITED, small=PLAIN, large__plain=PLAIN)
    request = ToolsRequest.of(AgentDefinition(name="clerk", llm=LLM(model="small")), AT)
    catalog = await Catalog(Toolset(), PriceList(), model=known).resolve(request)
    assert catalog.queued_route(model) == route
    choice = known.choice(model)
    assert (choice.name if choice is not None and choice.route.is_limited else None) == route


def test_a_catalog_without_limited_routes_has_the_json_that_it_had() -> None:
    assert queued_models(routed(small=PLAIN)) == {}
    assert queued_models(ScriptedModel([say("own")])) == {}
    assert "queued_models" not in ToolCatalog(at=AT, tools=()).model_dump(mode="json")


def test_all_routes_of_a_worker_fit_into_a_catalog() -> None:
    assert QUEUED_MODELS_MAX == ROUTES_MAX


def test_a_queue_names_its_route() -> None:
    assert route_of_queue(limited_queue("desk", "a/b:c-rate-limited-d")) == "a/b:c-rate-limited-d"
    assert route_of_queue("desk") is None
