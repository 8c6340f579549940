"""A bare workflow with a slow query, and an update that waits for a local activity: what the SDK makes of both."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

from temporalio import activity, workflow

from workflows.shielding import locally

SHORT_SECONDS, SLOW_SECONDS = 0.1, 0.5
TIMEOUT = timedelta(seconds=30)


@activity.defn
async def check(number: int) -> int:
    """Return the number a moment later."""
    await asyncio.sleep(SHORT_SECONDS)
    return number


@workflow.defn(name="Checker")
class Checker:
    """Ends with its second update."""

    def __init__(self) -> None:
        self._checked: list[int] = []

    @workflow.run
    async def run(self) -> list[int]:
        """Wait for two updates."""
        await workflow.wait_condition(lambda: len(self._checked) == 2 and workflow.all_handlers_finished())
        return self._checked

    @workflow.query
    def slow(self) -> int:
        """Return how many have been checked; so late that a local activity ends meanwhile."""
        with workflow.unsafe.sandbox_unrestricted():
            time.sleep(SLOW_SECONDS)
        return len(self._checked)

    @workflow.update
    async def checked(self, number: int) -> int:
        """Check the number."""
        checked: int = await locally(workflow.execute_local_activity(check, number, start_to_close_timeout=TIMEOUT))
        self._checked.append(checked)
        return checked
