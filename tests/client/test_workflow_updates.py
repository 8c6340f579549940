"""What an update's sender does about what the server answers."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from temporalio.client import WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.client import workflow_updates
from holdfast.client.workflow_updates import UPDATES_AT_ONCE, Unanswered, UpdateQueues, updated

UNSEEN = "Workflow Update is rejected because it wasn't processed by worker. Probably, Workflow Update …"
"""As a real server says it of an update that was in no task's answer."""

THROWN_AWAY = "Unable to perform workflow execution update due to unexpected workflow task failure."
"""As a real server says it when an update races the end of a session's run."""


FAILING = "Unable to perform workflow execution update due to Workflow Task in failed state."
"""As a real server says it while a worker fails at the run's task."""


async def served() -> bool:
    """There is a worker."""
    return True


async def test_an_update_waits_for_a_task_that_starts_over() -> None:
    """As a run says it that is asked by many while its hooks run; a decision was refused so."""
    asked: list[str] = []

    async def ask(update_id: str, _: timedelta) -> str:
        asked.append(update_id)
        if len(asked) < 4:
            raise RPCError(FAILING, RPCStatusCode.FAILED_PRECONDITION, b"")
        return "taken"

    assert await updated(ask, "decide:one", served=served) == "taken"
    assert asked == ["decide:one"] * 4


async def test_a_worker_that_goes_on_failing_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflow_updates, "FAILING_SECONDS_MAX", 0.1)

    async def ask(_: str, __: timedelta) -> str:
        raise RPCError(FAILING, RPCStatusCode.FAILED_PRECONDITION, b"")

    with pytest.raises(RPCError, match="in failed state"):
        await updated(ask, "decide:one", served=served)


async def test_an_update_whose_task_was_thrown_away_is_asked_for_again_under_its_id() -> None:
    asked: list[str] = []

    async def ask(update_id: str, _: timedelta) -> str:
        asked.append(update_id)
        if len(asked) == 1:
            raise RPCError(THROWN_AWAY, RPCStatusCode.FAILED_PRECONDITION, b"")
        return "taken"

    assert await updated(ask, "send:one", served=served) == "taken"
    assert asked == ["send:one", "send:one"]


async def test_an_update_that_its_worker_has_not_seen_is_no_refusal() -> None:
    """As a run says it that is asked by many while its hooks run; a decision was refused so."""
    asked: list[str] = []

    async def ask(update_id: str, _: timedelta) -> str:
        asked.append(update_id)
        if len(asked) == 1:
            raise WorkflowUpdateFailedError(ApplicationError(UNSEEN, type="RejectedUpdate"))
        if len(asked) == 2:
            raise WorkflowUpdateFailedError(ApplicationError("the call waits no more"))
        return "taken"

    with pytest.raises(WorkflowUpdateFailedError) as refused:
        await updated(ask, "decide:one", served=served)
    assert "waits no more" in str(refused.value.cause)
    assert asked == ["decide:one", "decide:one"]


def silence(cause: BaseException) -> WorkflowUpdateRPCTimeoutOrCancelledError:
    """Return the SDK's error for a request whose time is over, and for one that is cancelled."""
    error = WorkflowUpdateRPCTimeoutOrCancelledError()
    error.__cause__ = cause
    return error


async def test_an_update_is_asked_for_again_under_its_id_when_a_requests_time_is_over() -> None:
    """A worker that dies with the task keeps it for as long as one request may take."""
    asked: list[str] = []

    async def ask(update_id: str, _: timedelta) -> str:
        asked.append(update_id)
        if len(asked) < 3:
            raise silence(RPCError("Timeout expired", RPCStatusCode.DEADLINE_EXCEEDED, b""))
        return "taken"

    assert await updated(ask, "send:one", served=served) == "taken"
    assert asked == ["send:one"] * 3


async def test_an_update_that_no_worker_could_answer_is_not_asked_for_again() -> None:
    asked: list[str] = []

    async def ask(update_id: str, _: timedelta) -> str:
        asked.append(update_id)
        raise silence(RPCError("Timeout expired", RPCStatusCode.DEADLINE_EXCEEDED, b""))

    async def deserted() -> bool:
        return False

    with pytest.raises(Unanswered):
        await updated(ask, "send:one", served=deserted)
    assert asked == ["send:one"]


async def test_an_update_that_nobody_answers_ends_in_time_and_a_cancelled_one_at_once() -> None:
    async def ask(update_id: str, _: timedelta) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            raise silence(error) from error
        return update_id

    with pytest.raises(Unanswered):
        await updated(ask, "send:one", served=served, seconds_max=0.05)
    asking = asyncio.create_task(updated(ask, "send:one", served=served))
    await asyncio.sleep(0.01)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_of_many_messages_to_one_session_no_more_are_on_their_way_than_the_server_lets_in() -> None:
    queues, there, most = UpdateQueues(), 0, 0

    async def send(workflow_id: str) -> None:
        nonlocal there, most
        async with queues.of(workflow_id):
            there += 1
            most = max(most, there)
            await asyncio.sleep(0)
            there -= 1

    await asyncio.gather(*(send("agent") for _ in range(90)))
    assert most == UPDATES_AT_ONCE < 10
    assert queues.of("agent") is not queues.of("other")
