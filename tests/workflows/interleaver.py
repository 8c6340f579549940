"""A bare workflow whose local and other activities take turns in four branches: what queries make of their order."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import activity, workflow

BRANCHES = 4
STEPS = 5
TIMEOUT = timedelta(seconds=30)


@activity.defn
async def repeat(number: int) -> int:
    """Return the number, now or a moment later."""
    await asyncio.sleep(number % 3 / 100)
    return number


@workflow.defn(name="Interleaver")
class Interleaver:
    """Tells in which order its branches came to their steps."""

    def __init__(self) -> None:
        self._order: list[int] = []

    @workflow.run
    async def run(self) -> list[int]:
        """Take all branches through their steps, each with a local activity and every other with another one."""
        branches = [asyncio.create_task(self._branch(number)) for number in range(BRANCHES)]
        await workflow.wait(branches)
        for branch in branches:
            branch.result()
        return self._order

    @workflow.query
    def order(self) -> list[int]:
        """Return what the run will."""
        return self._order

    async def _branch(self, number: int) -> None:
        for step in range(STEPS):
            wanted = number * STEPS + step
            given = await workflow.execute_local_activity(repeat, wanted, start_to_close_timeout=TIMEOUT)
            if given != wanted:
                raise RuntimeError(f"the end of {given} was told as that of {wanted}")
            self._order.append(wanted)
            if (number + step) % 2 == 0:
                seen = f"{workflow.now().timestamp()}-{workflow.info().get_current_history_length()}"
                id_ = f"{number}-{step}-{seen}"  # a replay must see the same
                await workflow.execute_activity(repeat, wanted, activity_id=id_, start_to_close_timeout=TIMEOUT)
