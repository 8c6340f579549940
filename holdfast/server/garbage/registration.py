"""Which namespaces use a store: every worker registers its own at its start, and a garbage collection reads them all.

    namespaces/ID   of a namespace's id on its server: {"format": 1, "namespace": NAME, "address": HOST:PORT}

Whoever collected garbage without the runs of one of them would delete what those refer to.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

from temporalio.api.enums.v1 import NamespaceState
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError, RPCStatusCode

from holdfast.connection.rpc_errors import refusal, rpc_message, says_away
from holdfast.connection.temporal_client import CREATE_NAMESPACE
from holdfast.connection.workflow_reader import ASK_TIMEOUT
from holdfast.core.base.errors import FormNewer, ObjectMissing, ServerUnavailable, ServerUnreachable
from holdfast.core.base.stored_forms import FORMAT, STORE_USER
from holdfast.storage.object_store import Objects

NAMESPACES: Final = "namespaces"

NAMESPACES_MAX: Final = 10_000
"""How many namespaces of one store are read."""

UNKNOWN: Final = (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT, RPCStatusCode.PERMISSION_DENIED)
"""What a server says of the id of a namespace that is not its own, or not ours to know."""


class StoreUser(NamedTuple):
    """A namespace whose workers use the store."""

    id: str
    namespace: str
    address: str


async def store_user(temporal: TemporalClient, namespace: str | None = None) -> StoreUser:
    """Return a namespace of the connection's server, its own by default. Raises ServerUnavailable.

    That is a ServerUnreachable where the server did not answer.
    """
    address = temporal.service_client.config.target_host
    request = DescribeNamespaceRequest(namespace=namespace or temporal.namespace)
    try:
        described = await temporal.workflow_service.describe_namespace(request, timeout=ASK_TIMEOUT)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            problem = f"{address} has no namespace {request.namespace!r}"
            raise ServerUnavailable(f"{problem}; `{CREATE_NAMESPACE}` creates it") from None
        if not says_away(error):
            raise refusal(error) from None
        problem = f"no answer from {address} ({error.status.name.lower()}: {rpc_message(error)})"
        raise ServerUnreachable(f"{problem}; is the Temporal server running? `holdfast doctor` checks it") from None
    info = described.namespace_info
    return StoreUser(info.id, info.name, address)


async def living(temporal: TemporalClient, id_: str) -> StoreUser | None:
    """Return the namespace of that id where the connection's server has it, and it was not deleted.

    None as well where the server does not let us look. Raises ServerUnavailable.
    """
    request = DescribeNamespaceRequest(id=id_)
    try:
        described = await temporal.workflow_service.describe_namespace(request, timeout=ASK_TIMEOUT)
    except RPCError as error:
        if error.status in UNKNOWN:
            return None
        raise refusal(error) from None
    info = described.namespace_info
    if info.state == NamespaceState.NAMESPACE_STATE_DELETED:
        return None
    return StoreUser(info.id, info.name, temporal.service_client.config.target_host)


async def register(temporal: TemporalClient, objects: Objects) -> str:
    """Write down that the connection's namespace uses the store; return the name of the object that says so.

    Raises ServerUnavailable (as `store_user` does) and StorageFailed.

    What a newer Holdfast has written stays: it keeps our collections from deleting what only that one can find.
    """
    user = await store_user(temporal)
    name = f"{NAMESPACES}/{quote(user.id, safe='')}"
    try:
        STORE_USER.check(await objects.read(name))
    except ObjectMissing:
        pass
    except FormNewer:
        return name
    document = {FORMAT: STORE_USER.version, "namespace": user.namespace, "address": user.address}
    await objects.replace(name, json.dumps(document).encode())
    return name


async def registered(objects: Objects) -> tuple[StoreUser, ...]:
    """Return the namespaces that use the store. Raises StorageFailed, FormNewer where a newer Holdfast uses it, too.

    That one may refer to objects in a way that this one does not see.
    """
    users: list[StoreUser] = []
    for name in await objects.names(NAMESPACES, NAMESPACES_MAX):
        try:
            data = await objects.read(name)
            STORE_USER.check(data, f"the object {name} in {objects.url}")
            document: Any = json.loads(data)
            namespace, address = str(document["namespace"]), str(document["address"])
        except (ValueError, KeyError, TypeError):
            namespace, address = "?", "?"
        users.append(StoreUser(unquote(name.rpartition("/")[2]), namespace, address))
    return tuple(users)
