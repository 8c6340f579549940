"""What a model call that has ended leaves on its step: the answer or the error, and what it used. Decides nothing."""

from __future__ import annotations

from typing import Final

from holdfast.core import calls, checkpoints
from holdfast.core.events import ModelAnswered, ModelCancelled, ModelFailed
from holdfast.core.frozen import replace
from holdfast.core.observed import InferenceResponseReceived
from holdfast.core.steps import ErrorRecord
from holdfast.core.turn import Turn
from holdfast.core.usage import NOTHING_USED

CANCELLED_OUTSIDE: Final = ErrorRecord(type="Cancelled", message="the model call was cancelled", source="model")
"""Why a model call has failed that somebody cancelled behind the loop's back, on the server for instance."""


def keep_answer(turn: Turn, event: ModelAnswered) -> None:
    """Keep the answer, and count what it and the attempts before it used."""
    step = turn.step
    response = calls.with_own_call_ids(turn, event.response)
    checkpoints.signal_cut(turn, response, event.failed_usage)
    cost = checkpoints.cost_of(turn, response.usage, response.cost, response.model)
    wasted = checkpoints.cost_of(turn, event.failed_usage)
    turn.change_step(
        inference_response=replace(response, cost=cost),
        overhead=step.overhead + event.failed_usage,
        overhead_cost=step.overhead_cost + wasted,
    )
    turn.spend(response.usage + event.failed_usage, cost + wasted)
    if turn.counting:
        turn.change(next_input_max=response.usage.input_tokens)
    turn.tell(InferenceResponseReceived, response=response)


def count_failure(turn: Turn, event: ModelFailed) -> None:
    """Count what the attempts of a call that failed used."""
    cost = checkpoints.cost_of(turn, event.failed_usage)
    turn.spend(event.failed_usage, cost)
    step = turn.step
    turn.change_step(overhead=step.overhead + event.failed_usage, overhead_cost=step.overhead_cost + cost)


def failed_outside(event: ModelCancelled) -> ModelFailed:
    """Return the failure that a cancel comes to which the loop did not ask for."""
    used = event.failed_usage + (event.partial.usage if event.partial else NOTHING_USED)
    return ModelFailed(CANCELLED_OUTSIDE, event.at, used)
