"""A session's execution that ends while a stop is on its way to it: the session may be ending its Temporal run then."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.exceptions import ApplicationError

from holdfast.core.wire.contracts import StopRequest
from workflows.session import child_execution
from workflows.session.child_execution import ChildExecution


class Handle:
    """A child's handle with the SDK's signals: at a cancel one is withdrawn, and fails after that."""

    id = "child"

    def __init__(self) -> None:
        self.result: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.signalled = asyncio.Event()

    def __await__(self) -> Any:  # noqa: ANN401  # as the SDK's handle, which is a task
        return self.result.__await__()

    async def signal(self, _name: str, _message: object) -> None:
        self.signalled.set()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
        raise ApplicationError("Signal was cancelled before being sent")


async def test_a_stop_on_its_way_at_the_end_of_an_execution_cancels_nothing_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handle, cancelled = Handle(), list[str]()

    async def wait_condition(holds: Any) -> None:  # noqa: ANN401
        while not holds():  # noqa: ASYNC110  # as the SDK's, which looks again after every turn
            await asyncio.sleep(0)

    async def started(*_: object) -> Handle:
        return handle

    def outside(workflow_id: str) -> SimpleNamespace:
        async def cancel() -> None:  # as the SDK's
            cancelled.append(workflow_id)

        return SimpleNamespace(cancel=cancel)

    def end(*_: object) -> str:
        return "the end"

    sdk = SimpleNamespace(wait_condition=wait_condition, get_external_workflow_handle=outside)
    monkeypatch.setattr(child_execution, "workflow", sdk)
    monkeypatch.setattr(child_execution, "_end", end)
    monkeypatch.setattr(ChildExecution, "_started", started)
    child = ChildExecution()
    running = asyncio.create_task(child.run(cast("Any", None), cast("Any", None)))
    child.send(StopRequest())
    await handle.signalled.wait()
    handle.result.set_result(SimpleNamespace(status=None, stop_reason=None))
    assert cast("str", await running) == "the end"
    for _ in range(10):
        await asyncio.sleep(0)
    assert cancelled == []
    assert asyncio.all_tasks() == {asyncio.current_task()}, "nobody waits to send more"
