"""`ask_run`: what activities ask runs. A run that an operator has paused is open, and no worker answers for it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final, TypeVar

from temporalio.client import WorkflowHandle, WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.service import RPCError

from holdfast.connection.rpc_errors import paused, says_paused

AnswerT = TypeVar("AnswerT")


class RunPaused(Exception):
    """An operator has paused the run; it is asked again later, however long that takes."""

    def __init__(self, execution_id: str) -> None:
        super().__init__(paused(execution_id).message)


RUN_UNREADABLE: Final = "RunUnreadable"
"""The type of the failure of an attempt that needed an answer of its run and had none."""

UNREADABLE: Final = (RPCError, WorkflowQueryFailedError, WorkflowQueryRejectedError, RunPaused)
"""What `ask_run` raises where there is no answer."""


async def ask_run(
    run: WorkflowHandle[Any, Any], query: str, kind: type[AnswerT], *request: object, rpc_timeout: timedelta
) -> AnswerT:
    """Return the answer to a query, which writes no history. Raises UNREADABLE.

    Without a worker a query hangs until its timeout, so it always has one.
    """
    try:
        answer: AnswerT = await run.query(query, *request, result_type=kind, rpc_timeout=rpc_timeout)
    except ValueError as error:  # the SDK (1.35) does not know that a workflow can be paused
        if says_paused(error):
            raise RunPaused(run.id) from None
        raise
    return answer
