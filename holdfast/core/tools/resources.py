"""`@resource`: what tools and hooks share, such as a pool of connections, opened once per worker. Shells open it.

    @resource
    async def database() -> AsyncIterator[Pool]:
        async with create_pool(URL) as pool:
            yield pool

    @tool
    async def find_order(order: str, db: Pool) -> str: ...

A tool or a hook gets it by the type of a parameter, which the model does not see.
"""

from __future__ import annotations

import inspect
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias, get_args, get_origin, get_type_hints

from holdfast.core.base.errors import InvalidInput
from holdfast.core.tools.tools import is_json_type, plain_type

ResourceFunction: TypeAlias = Callable[
    [], AsyncIterator[Any] | Iterator[Any] | AbstractAsyncContextManager[Any] | AbstractContextManager[Any]
]
"""A generator function that yields once, sync or async, or a function that returns a context manager."""

ORIGINS: Final = (
    *(AsyncIterator, AsyncGenerator, AsyncIterable, Iterator, Generator, Iterable),
    *(AbstractAsyncContextManager, AbstractContextManager),
)
"""What the function may be annotated to return; the type within is what tools get."""


class ResourceTaker(Protocol):
    """A tool or a hook, as far as it takes resources."""

    @property
    def label(self) -> str:
        """What an error calls it, such as `tool 'search'`."""
        ...

    @property
    def resources(self) -> Mapping[str, Any]:
        """Its parameters that take a resource, with their types."""
        ...


@dataclass(frozen=True, slots=True)
class Resource:
    """A function that opens something and closes it, and the type of what it gives. Calling it calls the function."""

    function: ResourceFunction
    name: str
    kind: Any

    def __call__(self) -> object:
        """Call the function itself."""
        return self.function()


def resource(function: ResourceFunction, /) -> Resource:
    """Make a resource of a generator function that yields it once, or of one that returns a context manager.

    What stands before the `yield` opens it, what stands behind it closes it. Its return annotation, such as
    `AsyncIterator[Pool]`, says for which type of parameter tools get it. Raises InvalidInput, naming it, for a function
    with parameters, without that annotation, or of a type that a model could send as JSON.
    """
    name = str(getattr(function, "__name__", "resource"))
    if inspect.signature(function).parameters:
        raise InvalidInput(f"resource {name!r} has parameters; make it a function without any")
    try:
        hint = get_type_hints(function, include_extras=True).get("return")
    except (NameError, TypeError) as error:
        raise InvalidInput(f"resource {name!r}: its annotations cannot be read: {error}") from None
    if get_origin(hint) not in ORIGINS:
        text = "its return annotation must say what tools get, such as `AsyncIterator[Pool]`"
        raise InvalidInput(f"resource {name!r}: {text}")
    kind = plain_type(get_args(hint)[0])
    if kind is type(None) or is_json_type(kind):
        text = f"it gives the type {type_name(kind)}, which is a model's to send as JSON; wrap it in a class of its own"
        raise InvalidInput(f"resource {name!r}: {text}")
    return Resource(function, name, kind)


def resources_for(takers: Iterable[ResourceTaker], resources: Sequence[Resource]) -> tuple[Resource, ...]:
    """Return those of `resources` that the tools and hooks take.

    Raises InvalidInput for two resources of one type, and for a parameter whose type none of them gives.
    """
    by_kind: list[Resource] = []
    for each in resources:
        if (other := _giving(each.kind, by_kind)) is not None:
            kind = type_name(each.kind)
            text = f"{other.name!r} and {each.name!r} both give the type {kind}, and tools get a resource by its type"
            raise InvalidInput(f"two resources are alike: {text}; give one of them a type of its own")
        by_kind.append(each)
    taken: dict[str, Resource] = {}
    for taker in takers:
        for parameter, kind in taker.resources.items():
            giving = _giving(kind, by_kind)
            if giving is None:
                raise InvalidInput(_lacking(taker, parameter, kind, by_kind))
            taken[giving.name + type_name(kind)] = giving
    return tuple(each for each in resources if any(each is one for one in taken.values()))


def values_for(taker: ResourceTaker, values: Sequence[tuple[Resource, object]]) -> Mapping[str, object]:
    """Return the parameters that take a resource, with the open one. Raises InvalidInput for one that lacks."""
    found: dict[str, object] = {}
    for parameter, kind in taker.resources.items():
        value = next((value for each, value in values if each.kind == kind), _MISSING)
        if value is _MISSING:
            raise InvalidInput(_lacking(taker, parameter, kind, [each for each, _ in values]))
        found[parameter] = value
    return found


_MISSING: Final = object()


def _giving(kind: object, resources: Iterable[Resource]) -> Resource | None:
    return next((each for each in resources if each.kind == kind), None)


def _lacking(taker: ResourceTaker, parameter: str, kind: object, resources: Sequence[Resource]) -> str:
    there = ", ".join(f"{each.name} ({type_name(each.kind)})" for each in resources) or "no resources"
    text = f"has the type {type_name(kind)}, which is no JSON type that a model could send, and no @resource gives it"
    return f"{taker.label}: the parameter {parameter!r} {text}; there are: {there}"


def type_name(kind: object) -> str:
    """Return what people call a type."""
    return kind.__qualname__ if isinstance(kind, type) else str(kind)
