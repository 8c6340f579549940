"""Writes the record of an execution that ended in-process. Its failure is a warning, never the execution's."""

from __future__ import annotations

import asyncio
from typing import Final

from holdfast.core.agent.state import AgentState
from holdfast.core.conversation.error_records import error_record
from holdfast.core.wire.execution_record import question_of, without_record
from holdfast.core.wire.record_store import ExecutionStore

RECORD_SECONDS_MAX: Final = 60.0
"""How long writing the record of an execution may take; after that the state has a warning instead."""


async def recorded(state: AgentState, agent: str, store: ExecutionStore | None) -> AgentState:
    """Write the record of the ended execution of `agent`, where there is a store; if that fails, the state warns."""
    if store is None:
        return state
    try:
        async with asyncio.timeout(RECORD_SECONDS_MAX):
            await store.write_execution(state, agent=agent, task=question_of(state))
    except Exception as error:  # noqa: BLE001  # anyone's store
        record = error_record(error, "records")
        return without_record(state, f"{record.type}: {record.message}")
    return state
