"""Records how a model call ended on its step: its answer, its usage, its fallback to another model. Calls nothing."""

from __future__ import annotations

from typing import Final

from holdfast.core.agent.definition import LLM, FallbackRoute
from holdfast.core.base.bounds import WORD_CHARS_MAX
from holdfast.core.base.frozen import replace
from holdfast.core.base.usage import NOTHING_USED, Usage
from holdfast.core.conversation.steps import ErrorRecord, Fallback
from holdfast.core.loop import limit_checks
from holdfast.core.loop.call_ids import with_own_call_ids
from holdfast.core.loop.events import BufferSummarised, ModelAnswered, ModelCancelled, ModelFailed, SummaryFailed
from holdfast.core.loop.headroom import CONTEXT_TOO_LONG, count_for_route, lost_call, next_after, window_problem
from holdfast.core.loop.transition import Transition
from holdfast.core.wire.endpoint_refusals import FALLBACK_ERRORS
from holdfast.core.wire.execution_events import InferenceResponseReceived, ModelFellBack

CANCELLED_OUTSIDE: Final = ErrorRecord(type="Cancelled", message="the model call was cancelled", source="model")
"""The error of a model call that was cancelled from outside the loop, on the server for instance."""


def keep_answer(transition: Transition, event: ModelAnswered) -> None:
    """Record the answer, and count its usage and that of the attempts before it."""
    step = transition.step
    response = with_own_call_ids(transition, event.response)
    limit_checks.signal_cut(transition, response, event.failed_usage)
    cost = limit_checks.cost_of(transition, response.usage, response.cost, response.model)
    cost += limit_checks.cost_of_server_calls(transition, response)
    wasted = limit_checks.cost_of(transition, event.failed_usage)
    transition.change_step(
        inference_response=replace(response, cost=cost),
        overhead=step.overhead + event.failed_usage,
        overhead_cost=step.overhead_cost + wasted,
    )
    transition.spend(response.usage + event.failed_usage, cost + wasted)
    if transition.counting:
        transition.change(next_input_max=next_after(transition, response))
    for name in response.dropped:  # one warning each: later answers that lack another part add no text of their own
        transition.warn(f"the model's answer had a part that is not kept: {name[:WORD_CHARS_MAX]}")
    named = {tool.name for tool in transition.llm.server_tools} if transition.llm else set[str]()
    for name in response.server_tool_calls:
        if name not in named:
            transition.warn(f"the model's provider ran its tool {name!r}, which llm.server_tools does not name")
    transition.emit(InferenceResponseReceived, response=response.without_items)


def count_failure(transition: Transition, event: ModelFailed) -> None:
    """Count what the attempts of a call that failed used."""
    count_wasted(transition, wasted_usage(transition, event))


def fall_back(transition: Transition, event: ModelFailed) -> bool:
    """Have the step fall back to its next route, if there is one and the failure is no fault of the request.

    What the failed attempts used is counted at the prices of the route that failed. A route whose context window is too
    small for the call is passed over while there is another. Each fallback takes a route off the list, so this ends.
    """
    failed, following = transition.llm, transition.next_fallback
    if event.error.type not in FALLBACK_ERRORS or failed is None or following is None:
        return False
    used = wasted_usage(transition, event)
    cost = limit_checks.cost_of(transition, used)
    count_wasted(transition, used)
    _fall_back(transition, failed, following, event.error, used, cost)
    while (
        (failed := transition.llm) and (following := transition.next_fallback) and (text := window_problem(transition))
    ):
        error = ErrorRecord(type=CONTEXT_TOO_LONG, message=text, source="model")
        _fall_back(transition, failed, following, error)
    count_for_route(transition)
    return True


def _fall_back(
    transition: Transition,
    failed: LLM,
    following: FallbackRoute,
    error: ErrorRecord,
    used: Usage = NOTHING_USED,
    cost: float = 0.0,
) -> None:
    route, at = failed.model or "", transition.at
    fallback = Fallback(route=route, to=following.model, error=error, at=at, usage=used, cost=cost)
    transition.change_step(fallbacks=(*transition.step.fallbacks, fallback))
    transition.emit(ModelFellBack, fallback=fallback)


def wasted_usage(transition: Transition, event: ModelFailed | ModelCancelled | SummaryFailed) -> Usage:
    """Return the usage of all attempts of a call without an answer, a lost one included."""
    lost = lost_call(transition, event.failed_usage) if event.lost else NOTHING_USED
    return event.failed_usage + lost


def count_summary(transition: Transition, event: BufferSummarised | SummaryFailed) -> None:
    """Count what a summary used, attempts that failed too."""
    if isinstance(event, SummaryFailed):
        count_wasted(transition, wasted_usage(transition, event))
    else:
        count_wasted(transition, event.failed_usage + event.usage)


def count_wasted(transition: Transition, used: Usage) -> None:
    """Count the usage of attempts without an answer, as the step's overhead."""
    cost, step = limit_checks.cost_of(transition, used), transition.step
    transition.spend(used, cost)
    transition.change_step(overhead=step.overhead + used, overhead_cost=step.overhead_cost + cost)


def failed_outside(event: ModelCancelled) -> ModelFailed:
    """Return the failure for a cancel that the loop did not ask for."""
    used = event.failed_usage + (event.partial.usage if event.partial else NOTHING_USED)
    return ModelFailed(CANCELLED_OUTSIDE, event.at, used, lost=event.lost)
