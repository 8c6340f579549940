"""Falling back: another route is asked where one cannot answer (docs/spec.md, section 6)."""

from __future__ import annotations

from holdfast.core.conversation.steps import Fallback
from holdfast.core.loop import model_result
from holdfast.core.loop.events import ModelFailed
from holdfast.core.loop.transition import Transition
from holdfast.core.wire.endpoint_refusals import FALLBACK_ERRORS
from holdfast.core.wire.execution_events import ModelFellBack


def take_next(transition: Transition, event: ModelFailed) -> bool:
    """Have the step fall back to its next route, if there is one and the failure is no fault of the request.

    What the failed attempts used is counted at the prices of the route that failed. The routes end: nothing loops.
    """
    if event.error.type not in FALLBACK_ERRORS or not transition.fallbacks_left:
        return False
    model_result.count_failure(transition, event)
    failed = transition.llm
    before = transition.step.fallbacks
    transition.change_step(fallbacks=(*before, Fallback(route="", to="", error=event.error, at=transition.at)))
    following = transition.llm
    fallback = Fallback(
        route=(failed.model if failed else None) or "",
        to=(following.model if following else None) or "",
        error=event.error,
        at=transition.at,
    )
    transition.change_step(fallbacks=(*before, fallback))
    transition.emit(ModelFellBack, fallback=fallback)
    return True
