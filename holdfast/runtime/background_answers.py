"""Answers that go on at the provider (`LLM.background`): resumed by a later attempt, cancelled when given up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Final

from holdfast.core.agent.model import BackgroundAnswer, Model, ModelRequest, checked_response
from holdfast.core.base.errors import ModelFailure
from holdfast.core.base.retries import OutputLimits, RetryRule, allowed_output
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.error_records import error_record
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.runtime.model_progress import Progress

LOGGER: Final = logging.getLogger("holdfast.model")

CANCEL_RETRIES: Final = RetryRule(attempts_max=3, first_seconds=0.5, longest_seconds=2.0)
"""How often to try to cancel an answer at its provider."""

CANCEL_SECONDS_MAX: Final = 5.0
"""How long one of these attempts may take."""

CANCEL_GRACE_SECONDS: Final = 0.5
"""How long `give_up` waits for the cancel: less than a stop waits for a model call."""

_cancelling: Final[set[asyncio.Task[Usage | None]]] = set()
"""Strong references to tasks that nobody waits for any more: asyncio holds tasks weakly."""


async def resume_or_ask(
    ask: Callable[[ModelRequest], Awaitable[InferenceResponse]],
    request: ModelRequest,
    limits: OutputLimits,
    progress: Progress,
) -> InferenceResponse:
    """Return the answer that an earlier attempt has begun, else a new one, within what the budget leaves.

    Where the earlier one has failed or is gone, this attempt asks for a new one. Raises as `ask` does.
    """
    if progress.background is not None:
        try:
            return await _attempt(ask, replace(request, resume=progress.background), limits, progress)
        except ModelFailure as failure:
            if _goes_on(progress) or not failure.again:
                raise
            LOGGER.warning("%s; it is asked for again", failure.message)
            progress.lose()
    return await _attempt(ask, request, limits, progress)


def _goes_on(progress: Progress) -> bool:
    """Return whether there is an answer in the background now: the attempt may have seen its end."""
    return progress.background is not None


async def _attempt(
    ask: Callable[[ModelRequest], Awaitable[InferenceResponse]],
    request: ModelRequest,
    limits: OutputLimits,
    progress: Progress,
) -> InferenceResponse:
    request = replace(request, max_output_tokens=allowed_output(limits, progress.failed_usage))
    progress.begin(request)
    return checked_response(await ask(request))


async def give_up(model: Model, progress: Progress) -> None:
    """Cancel the answer that goes on at the provider, if there is one: nobody resumes it.

    It waits for CANCEL_GRACE_SECONDS at most; after that the cancel goes on by itself, and logs its failure.
    """
    background = progress.background
    if background is None:
        return
    task = asyncio.create_task(_cancelled(model, background))
    _cancelling.add(task)
    task.add_done_callback(_cancelling.discard)
    task.add_done_callback(partial(_note, background))
    await asyncio.wait([task], timeout=CANCEL_GRACE_SECONDS)
    ended = task.done() and not task.cancelled() and task.exception() is None
    progress.give_up(task.result() if ended else None, ended=ended)


async def _cancelled(model: Model, answer: BackgroundAnswer) -> Usage | None:
    cancel = getattr(model, "cancel", None)  # a model of your own need not inherit from Model
    if cancel is None:
        raise ModelFailure("this model cannot cancel answers")
    for attempt in range(1, CANCEL_RETRIES.attempts_max + 1):
        try:
            async with asyncio.timeout(CANCEL_SECONDS_MAX):
                used: Usage | None = await cancel(answer)
                return used
        except (ModelFailure, TimeoutError) as error:
            if attempt == CANCEL_RETRIES.attempts_max or (isinstance(error, ModelFailure) and not error.again):
                raise
        await asyncio.sleep(CANCEL_RETRIES.wait_seconds(attempt))
    raise AssertionError("the last attempt returns or raises")


def _note(answer: BackgroundAnswer, cancelling: asyncio.Task[Usage | None]) -> None:
    error = None if cancelling.cancelled() else cancelling.exception()
    if error is None:
        return
    record = error_record(error, "model") if isinstance(error, Exception) else None
    why = f"{record.type}: {record.message}" if record else type(error).__name__
    LOGGER.warning("the answer %s could not be cancelled at its provider (%s)", answer.response_id, why)
