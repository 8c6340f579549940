"""Listing our search attributes in a namespace, and registering missing ones."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Final

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError, RPCStatusCode

from holdfast.connection.rpc_errors import refusal, rpc_message
from holdfast.connection.search_attribute_check import Attribute, Registration, compared
from holdfast.connection.workflow_reader import ASK_TIMEOUT
from holdfast.core.wire.search_attributes import SEARCH_ATTRIBUTES

NOT_FOR_US: Final = frozenset(
    {
        RPCStatusCode.UNIMPLEMENTED,
        RPCStatusCode.PERMISSION_DENIED,
        RPCStatusCode.UNAUTHENTICATED,
        RPCStatusCode.INVALID_ARGUMENT,
    }
)
"""How a server answers a question that it never answers us; any other refusal may be gone the next time."""

NOT_ALLOWED: Final = NOT_FOR_US - {RPCStatusCode.INVALID_ARGUMENT}
"""How a server answers who may not register anything, as Temporal Cloud does."""

PREFIX: Final = "INDEXED_VALUE_TYPE_"

LITERALS: Final = {"Keyword": "''", "Int": "0", "Double": "0"}
"""Something to compare an attribute of the type with, in a query that finds nothing."""

NO_ROOM: Final = re.compile(r"cannot have more than [0-9]+ search attribute")
"""What a server says whose columns of a type are all taken: SQL stores have 10 for Keyword, 3 for any other type."""

QUERYABLE_SECONDS_MAX: Final = 60.0
"""How long the server's caches may take to learn of new attributes; seconds, as a rule."""

QUERYABLE_POLL_SECONDS: Final = 0.2


async def attributes(temporal: TemporalClient) -> tuple[Attribute, ...]:
    """Return what the connection's namespace has of our attributes. Raises ServerUnavailable.

    Where the server does not let us list them, a query for each tells whether it is there.
    """
    request = ListSearchAttributesRequest(namespace=temporal.namespace)
    try:
        response = await temporal.operator_service.list_search_attributes(request, timeout=ASK_TIMEOUT)
    except RPCError as error:
        if error.status not in NOT_FOR_US:
            raise refusal(error) from None
        return await _by_query(temporal)
    return compared({name: kind_name(kind) for name, kind in response.custom_attributes.items()})


async def register(temporal: TemporalClient, before: Iterable[Attribute]) -> tuple[Attribute, ...]:
    """Register those of `before` that are missing, and return all in their new state. Raises ServerUnavailable."""
    states = tuple(before)
    missing = [each for each in states if each.state is Registration.MISSING]
    if not missing:
        return states
    try:
        await _add(temporal, missing)
        failed: dict[str, Attribute] = {}
    except RPCError as error:
        if error.status not in NOT_FOR_US:
            raise refusal(error) from None
        failed = await _one_by_one(temporal, missing)
    done = {each.name: replace(each, state=Registration.REGISTERED, actual_type=each.kind) for each in missing} | failed
    return tuple(done.get(each.name, each) for each in states)


async def queryable(temporal: TemporalClient, seconds_max: float = QUERYABLE_SECONDS_MAX) -> bool:
    """Return whether the server takes queries for all our attributes within the time.

    It learns of new ones some seconds after they were registered, and refuses runs that name them until then.
    """
    deadline = asyncio.get_running_loop().time() + seconds_max
    while not await _can_query(temporal, SEARCH_ATTRIBUTES):
        if asyncio.get_running_loop().time() > deadline:
            return False
        await asyncio.sleep(QUERYABLE_POLL_SECONDS)  # the server has no event for it
    return True


def kind_name(kind: int) -> str:
    """Return the name that Temporal's commands and pages give to a type: `KeywordList`."""
    try:
        words = IndexedValueType.Name(kind).removeprefix(PREFIX).split("_")  # type: ignore[arg-type]  # any number may come
    except ValueError:  # a type that is younger than we are
        return f"type {kind}"
    return "".join(word.title() for word in words)


async def _by_query(temporal: TemporalClient) -> tuple[Attribute, ...]:
    whole = await _can_query(temporal, SEARCH_ATTRIBUTES)
    types = {
        name: kind for name, kind in SEARCH_ATTRIBUTES.items() if whole or await _can_query(temporal, {name: kind})
    }
    return compared(types)


async def _can_query(temporal: TemporalClient, types: Mapping[str, str]) -> bool:
    """Return whether the server knows the attributes; raises ServerUnavailable where it does not answer."""
    query = " AND ".join(f"{name} = {LITERALS[kind]}" for name, kind in types.items())
    try:
        await temporal.count_workflows(query, rpc_timeout=timedelta(seconds=5))
    except RPCError as error:
        if error.status in NOT_FOR_US:
            return False
        raise refusal(error) from None
    return True


async def _one_by_one(temporal: TemporalClient, missing: Iterable[Attribute]) -> dict[str, Attribute]:
    """Register each by itself; return those that the server refuses, with the reason."""
    failed: dict[str, Attribute] = {}
    for each in missing:
        try:
            await _add(temporal, [each])
        except RPCError as error:
            if error.status not in NOT_FOR_US:
                raise refusal(error) from None
            state = Registration.NO_ROOM if NO_ROOM.search(str(error)) else Registration.REFUSED
            failed[each.name] = replace(each, state=state, refusal=rpc_message(error))
            if error.status in NOT_ALLOWED:  # nor will it let us register any other
                return {one.name: replace(one, state=state, refusal=rpc_message(error)) for one in missing} | failed
    return failed


async def _add(temporal: TemporalClient, missing: Iterable[Attribute]) -> None:
    request = AddSearchAttributesRequest(namespace=temporal.namespace)
    for each in missing:
        request.search_attributes[each.name] = IndexedValueType.Value(f"{PREFIX}{each.kind.upper()}")
    await temporal.operator_service.add_search_attributes(request, timeout=ASK_TIMEOUT)
