"""What becomes of an activity that ended while its worker stood still: the SDK may have given it up, unheard."""

from __future__ import annotations

import asyncio

import pytest
from temporalio.activity import ActivityCancellationDetails
from temporalio.testing import ActivityEnvironment

from activities import async_completion
from activities.async_completion import SILENT_SECONDS_MAX, to_its_end


class Server:
    """The server's end of one activity."""

    def __init__(self) -> None:
        self.completed: list[object] = []

    async def complete(self, result: object, **_: object) -> None:
        self.completed.append(result)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server()
    monkeypatch.setattr(async_completion, "_handle", lambda: server)
    return server


@pytest.mark.parametrize(("silence", "reported"), [(SILENT_SECONDS_MAX / 2, []), (SILENT_SECONDS_MAX + 1, ["done"])])
async def test_what_ends_after_a_long_silence_is_reported_to_the_server_itself(
    server: Server, silence: float, reported: list[object]
) -> None:
    async def work() -> str:
        return "done"

    async def running() -> str:
        return await to_its_end(work(), tuple, lambda: silence)

    assert await ActivityEnvironment().run(running) == "done"
    assert server.completed == reported


@pytest.mark.parametrize("timed_out", [True, False])
async def test_what_had_ended_when_the_sdk_gave_it_up_is_reported_to_the_server_itself(
    server: Server, *, timed_out: bool
) -> None:
    environment = ActivityEnvironment()

    async def work() -> str:
        environment.cancel(ActivityCancellationDetails(timed_out=timed_out, cancel_requested=not timed_out))
        return "done"  # both are heard in the same turn of the loop

    async def running() -> str:
        return await to_its_end(work(), tuple, float)

    assert await environment.run(running) == "done"
    assert server.completed == (["done"] if timed_out else [])


async def test_what_is_cancelled_before_its_end_is_cancelled(server: Server) -> None:
    environment = ActivityEnvironment()
    ended: list[str] = []

    async def work() -> str:
        environment.cancel(ActivityCancellationDetails(cancel_requested=True))
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("ended")
        return "done"

    async def running() -> str:
        return await to_its_end(work(), tuple, float)

    with pytest.raises(asyncio.CancelledError):
        await environment.run(running)
    assert (ended, server.completed) == (["ended"], [])
