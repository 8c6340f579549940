"""A bare workflow that waits for an activity and for updates: what the SDK makes of their order."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow


@workflow.defn(name="Waiter")
class Waiter:
    """Does something after its activity, and counts its updates."""

    def __init__(self) -> None:
        self._updates = 0

    @workflow.run
    async def run(self, task_queue: str) -> int:
        """Wait for the activity `gate`, then for two updates."""
        await workflow.execute_activity("gate", task_queue=task_queue, start_to_close_timeout=timedelta(minutes=5))
        workflow.upsert_memo({"passed": True})
        await workflow.wait_condition(lambda: self._updates == 2)
        return self._updates

    @workflow.query
    def updates(self) -> int:
        """Return how many there were."""
        return self._updates

    @workflow.update
    async def count(self) -> int:
        """Count this one."""
        self._updates += 1
        return self._updates
