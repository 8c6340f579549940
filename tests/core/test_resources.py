"""What tools share: which functions give it, which tools take it, and what is refused before anything runs."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from types import ModuleType
from typing import Annotated, Any

import pytest

from holdfast import Agent, AgentDefinition, ToolContext, resource, tool
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.errors import InvalidArguments, InvalidInput
from holdfast.core.tools.resources import Resource, resources_for, values_for
from holdfast.local import LocalDriver
from holdfast.testing.script import say
from holdfast.testing.scripted_model import ScriptedModel


class Pool:
    """Something that no model can send."""


class Other:
    """Something else."""


@resource
async def database() -> AsyncIterator[Pool]:
    yield Pool()


@resource
def other() -> Iterator[Other]:
    yield Other()


@tool
async def find_order(order: str, db: Pool, limit: int = 5) -> str:
    """Find an order.

    Args:
        order: its number
        db: ours
    """
    return f"{order} {limit} {type(db).__name__}"


@asynccontextmanager
async def by_manager() -> AsyncGenerator[Pool]:
    yield Pool()


@contextmanager
def by_sync_manager() -> Generator[Pool]:
    yield Pool()


def returning() -> AbstractAsyncContextManager[Pool]:
    return by_manager()


@pytest.mark.parametrize("function", [database.function, by_manager, by_sync_manager, returning])
def test_a_resource_says_what_it_gives_in_its_annotation(function: Any) -> None:  # noqa: ANN401  # each another kind
    made = resource(function)
    assert (made.kind, made.name) == (Pool, function.__name__)


def test_a_parameter_of_a_resource_is_hidden_from_the_model_and_the_others_are_not() -> None:
    assert sorted(find_order.arguments.model_json_schema()["properties"]) == ["limit", "order"]
    assert "db" not in str(find_order.schema)
    assert find_order.resources == {"db": Pool}
    context = ToolContext(execution_id="e", idempotency_key="k", attempt=1)
    assert find_order.bind({"order": "17"}, context) == {"order": "17", "limit": 5}
    with pytest.raises(InvalidArguments):
        find_order.bind({"order": "17", "db": "x"}, context)


def test_an_annotated_parameter_takes_the_type_within() -> None:
    @tool
    def look(db: Annotated[Pool, "ours"], context: ToolContext) -> str:
        """Look."""
        return f"{db} {context}"

    assert look.resources == {"db": Pool}
    assert look.traits.context


def test_only_what_tools_take_is_opened() -> None:
    assert resources_for([find_order], [other, database]) == (database,)
    assert resources_for([], [other, database]) == ()


def test_a_tool_gets_the_open_one_by_its_type() -> None:
    pool = Pool()
    assert values_for(find_order, [(other, Other()), (database, pool)]) == {"db": pool}
    with pytest.raises(InvalidInput, match="no @resource gives it"):
        values_for(find_order, [(other, Other())])


def test_two_resources_of_one_type_are_refused_with_both_names() -> None:
    second = Resource(by_manager, "second", Pool)
    with pytest.raises(InvalidInput, match="'database' and 'second' both give the type Pool"):
        Toolset(tools=(find_order,), resources=(database, second)).equip(AgentDefinition(name="a", tools="all"))


def test_a_parameter_that_nothing_gives_is_refused_where_the_tool_is_offered() -> None:
    lacking = Toolset(tools=(find_order,), resources=(other,))
    with pytest.raises(InvalidInput, match=r"tool 'find_order': the parameter 'db' has the type Pool.*other \(Other\)"):
        lacking.equip(AgentDefinition(name="a", tools="all"))
    with pytest.raises(InvalidInput, match="no resources"):
        LocalDriver(Agent("a", tools=[find_order]), model=ScriptedModel([say("done")]))


def no_annotation():  # type: ignore[no-untyped-def]  # noqa: ANN201  # as somebody could write it
    yield Pool()


def no_generator() -> Pool:
    return Pool()


def with_parameters(url: str) -> Iterator[Pool]:
    assert url
    yield Pool()


def of_text() -> Iterator[str]:
    yield "text"


def of_nothing() -> Iterator[None]:
    yield None


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (no_annotation, "return annotation"),
        (no_generator, "return annotation"),
        (with_parameters, "has parameters"),
        (of_text, "gives the type str"),
        (of_nothing, "gives the type None"),
    ],
)
def test_what_cannot_be_a_resource_is_refused_by_name(function: Any, why: str) -> None:  # noqa: ANN401  # as above
    with pytest.raises(InvalidInput, match=f"resource '{function.__name__}'.*{why}"):
        resource(function)


def test_a_module_and_an_agent_bring_their_resources() -> None:
    module = ModuleType("mine")
    vars(module).update(find_order=find_order, database=database)
    assert Toolset.of_modules([module]).resources == (database,)
    assert Toolset.of_modules([sys.modules[__name__], module]).resources == (database, other)
    agent = Agent("a", tools=[find_order], resources=[database])
    assert agent.toolset.resources == (database,)
    assert agent.toolset.joined(Toolset(resources=(database, other))).resources == (database, other)


async def test_the_function_can_be_called_by_a_test() -> None:
    assert isinstance(await anext(database.function()), Pool)  # type: ignore[arg-type]  # an async generator
    assert await find_order("17", Pool()) == "17 5 Pool"
