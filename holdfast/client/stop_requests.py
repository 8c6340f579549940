"""Stopping a run: by signal, and by cancellation once the server accepts no more signals for it."""

from __future__ import annotations

from typing import Final

from temporalio.client import Client
from temporalio.service import RPCError

from holdfast.connection.executions import described
from holdfast.connection.workflow_reader import ASK_TIMEOUT
from holdfast.core.base.errors import PayloadRefused, StopRefused
from holdfast.core.wire.contracts import STOP_SIGNAL, StopRequest

SIGNALS_SPENT: Final = "exceeded workflow execution limit for signal events"
"""What the server says of a run that was sent all the signals it takes: 10,000."""


async def stop_run(temporal: Client, execution_id: str, request: StopRequest) -> None:
    """Return when the server has taken note of the stop. Raises RPCError; StopRefused where only cancelling is left.

    A cancellation lets no step finish. It carries the reason alone, and where payloads are encrypted not even that. A
    run that was encrypted with another key is cancelled, too: it could not read the signal, nor anything after it.
    """
    handle = temporal.get_workflow_handle(execution_id)
    sealed = temporal.data_converter.payload_codec is not None
    problem = await _key_problem(temporal, execution_id) if sealed else ""
    if not problem:
        try:
            await handle.signal(STOP_SIGNAL, request, rpc_timeout=ASK_TIMEOUT)
        except RPCError as error:
            if SIGNALS_SPENT not in str(error):
                raise
            problem = f"run {handle.id} has been sent all the signals that the server accepts (10,000)"
    if problem:
        if request.mode == "after_step":
            raise StopRefused(f"{problem}; it can only be stopped at once, with the mode `now`")
        reason = "" if sealed else request.reason
        await handle.cancel(reason=reason or "stopped", rpc_timeout=ASK_TIMEOUT)


async def _key_problem(temporal: Client, execution_id: str) -> str:
    """Return why this client's key is not the run's, nothing where it is."""
    found = await described(temporal, execution_id, rpc_timeout=ASK_TIMEOUT)
    try:
        await found.memo()
    except PayloadRefused as error:
        return f"run {execution_id}: {error.message}"
    return ""
