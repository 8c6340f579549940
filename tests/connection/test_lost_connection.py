"""A server that dies during a client's first request is away, and refuses nothing."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from holdfast.connection.settings import Settings
from holdfast.connection.temporal_client import connect, connect_when_there
from holdfast.core.base.errors import ServerUnavailable, ServerUnreachable

HERE = Settings(address="127.0.0.1:1")
BROKEN = RPCError("transport error", RPCStatusCode.UNKNOWN, b"")
AWAY = RPCError("not ready yet", RPCStatusCode.UNAVAILABLE, b"")
DENIED = RPCError("request unauthorized", RPCStatusCode.PERMISSION_DENIED, b"")


def answering(monkeypatch: pytest.MonkeyPatch, *errors: RPCError) -> None:
    """Have connections come about whose first requests end with these errors, and the next one well."""
    left = [*errors]

    async def describe_namespace(_: object) -> None:
        if left:
            raise left.pop(0)

    async def connected(*_: object, **__: object) -> object:
        return SimpleNamespace(workflow_service=SimpleNamespace(describe_namespace=describe_namespace))

    monkeypatch.setattr(Client, "connect", connected)


@pytest.mark.parametrize("error", [BROKEN, AWAY])
async def test_a_connection_that_breaks_in_the_first_request_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, error: RPCError
) -> None:
    answering(monkeypatch, error)
    with pytest.raises(ServerUnreachable, match="the connection to 127"):
        await connect(HERE)
    told: list[str] = []
    answering(monkeypatch, error, error)
    assert await connect_when_there(HERE, runtime=None, seconds_max=60, report=told.append)
    assert told[0].startswith("waiting for the Temporal server")


async def test_a_refusal_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, DENIED)
    with pytest.raises(ServerUnavailable, match="refuses namespace 'default'") as raised:
        await connect_when_there(HERE, runtime=None, seconds_max=60, report=print)
    assert not isinstance(raised.value, ServerUnreachable)
