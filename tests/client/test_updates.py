"""What an update's sender does about what the server answers."""

from __future__ import annotations

from datetime import timedelta

from temporalio.service import RPCError, RPCStatusCode

from holdfast.client.updates import updated

THROWN_AWAY = "Unable to perform workflow execution update due to unexpected workflow task failure."
"""As a real server says it when an update races the end of a session's run."""


async def test_an_update_whose_task_was_thrown_away_is_asked_for_again_under_its_id() -> None:
    asked: list[str] = []

    async def ask(update_id: str, _: timedelta) -> str:
        asked.append(update_id)
        if len(asked) == 1:
            raise RPCError(THROWN_AWAY, RPCStatusCode.FAILED_PRECONDITION, b"")
        return "taken"

    assert await updated(ask, "send:one") == "taken"
    assert asked == ["send:one", "send:one"]
