"""What a model call counts that ends without a word of its last attempt: by its last heartbeat, or the most it can."""

from __future__ import annotations

import pytest
from temporalio.exceptions import ActivityError, ApplicationError, TimeoutError, TimeoutType  # noqa: A004  # its name

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.base.usage import NOTHING_USED, Usage
from holdfast.core.conversation.attempt_tally import WORKER_LOST
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.loop.events import ModelCancelled, ModelFailed
from holdfast.core.tools.tool_traits import ToolTraits
from holdfast.core.wire.contracts import WORKER_SHUTDOWN, CallProgress
from tests.core.building import BOOM, Run
from workflows.execution.call_errors import failed_usage, tool_error

USED = Usage(input_tokens=7, output_tokens=3)


def ended(cause: Exception) -> ActivityError:
    error = ActivityError(
        "ended",
        scheduled_event_id=1,
        started_event_id=2,
        identity="",
        activity_type="inference",
        activity_id="step-1-model",
        retry_state=None,
    )
    error.__cause__ = cause
    return error


def timed_out(kind: TimeoutType, *details: CallProgress) -> TimeoutError:
    told = [each.model_dump(mode="json") for each in details]
    return TimeoutError("silent", type=kind, last_heartbeat_details=told)


def test_the_last_heartbeat_says_what_an_attempt_counts_that_is_lost() -> None:
    told = CallProgress(failed_usage=USED, if_lost=USED)
    assert failed_usage(ended(timed_out(TimeoutType.HEARTBEAT, told))) == (USED + USED, False)


@pytest.mark.parametrize(
    "cause",
    [
        timed_out(TimeoutType.HEARTBEAT),
        timed_out(TimeoutType.START_TO_CLOSE),
        ApplicationError("died", type=WORKER_LOST),
        ApplicationError("restarts", type=WORKER_SHUTDOWN),
    ],
)
def test_one_that_left_no_word_is_lost(cause: Exception) -> None:
    assert failed_usage(ended(cause)) == (NOTHING_USED, True)


def test_one_that_failed_by_itself_says_what_all_used() -> None:
    failure = ApplicationError("no", USED.model_dump(mode="json"), type="UnusableAnswer")
    assert failed_usage(ended(failure)) == (USED, False)
    assert failed_usage(ended(ApplicationError("no", type="NotFoundError"))) == (NOTHING_USED, False)


def test_a_lost_call_counts_the_most_it_can_have_used() -> None:
    run = Run(ExecutionBudget(max_tokens=10_000)).begin()
    asked = run.model_call
    assert asked.input_max is not None
    assert asked.max_output_tokens is not None
    most = asked.input_max + asked.max_output_tokens
    run.feed(ModelFailed(BOOM, run.tick(), lost=True))
    assert (run.state.usage.total_tokens, run.state.usage.estimated_tokens) == (most, most)


def test_a_cancelled_call_that_did_not_report_counts_the_same_less_what_failed_before() -> None:
    run = Run(ExecutionBudget(max_tokens=10_000)).begin()
    asked, run.grace = run.model_call, True
    run.stop()
    run.feed(ModelCancelled(None, run.tick(), failed_usage=USED, lost=True))
    assert run.state.stop_reason is StopReason.USER_REQUESTED
    assert run.state.usage.total_tokens == (asked.input_max or 0) + (asked.max_output_tokens or 0)
    assert run.state.usage.total_tokens - run.state.usage.estimated_tokens == USED.total_tokens


@pytest.mark.parametrize(
    ("begun", "once", "kind"),
    [(False, False, "ToolUnavailable"), (True, False, "ToolTimeout"), (True, True, "OutcomeUnknown")],
)
def test_a_tool_call_that_no_worker_took_is_told_as_never_begun_only_where_none_had_begun_it(
    *, begun: bool, once: bool, kind: str
) -> None:
    waited = TimeoutError("waited", type=TimeoutType.SCHEDULE_TO_START, last_heartbeat_details=[])
    if begun:
        waited.__cause__ = ApplicationError("died", type=WORKER_LOST)
    traits = ToolTraits(name="pay", at_most_once=once)
    record = tool_error(ended(waited), traits)
    assert record.type == kind
    assert ("not begun" in record.message) is not begun


def test_a_heartbeat_is_the_sign_of_an_attempt_that_had_begun() -> None:
    waited = TimeoutError("waited", type=TimeoutType.SCHEDULE_TO_START, last_heartbeat_details=[{}])
    assert tool_error(ended(waited), ToolTraits(name="pay")).type == "ToolTimeout"
