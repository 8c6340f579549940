"""Waiting for a moment of a run that nothing tells: looking at its state until it has come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from holdfast.client import Holdfast
from holdfast.core.agent.state import AgentState
from holdfast.core.base.errors import ServerUnavailable
from holdfast.core.conversation.steps import CallStage

SECONDS_MAX = 90
LOOK_SECONDS = 0.02


async def state_when(client: Holdfast, execution_id: str, there: Callable[[AgentState], bool]) -> AgentState:
    """Return the first state of the begun execution that is looked at and for which `there` is true.

    A worker that is too busy to tell it in time is asked again.
    """
    async with asyncio.timeout(SECONDS_MAX):
        while True:  # a client is not called back
            with suppress(ServerUnavailable):
                state = await client.state(execution_id)
                if state.execution is not None and there(state):
                    return state
            await asyncio.sleep(LOOK_SECONDS)


async def waiting_calls(client: Holdfast, execution_id: str, number: int = 1) -> list[str]:
    """The ids of the calls that wait for approval, once there are so many."""
    state = await state_when(client, execution_id, lambda state: len(_waiting(state)) == number)
    return _waiting(state)


def _waiting(state: AgentState) -> list[str]:
    calls = state.execution.open_calls if state.execution else ()
    return [each.call.id for each in calls if each.stage is CallStage.APPROVAL]
