"""The context of a stop signal: which limit, how much of it, which hook, tool, caller (docs/spec.md, section 4)."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import JsonValue, ValidationError

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import LLM
from holdfast.core.agent.hooks import Changes
from holdfast.core.base.usage import Prices, Usage
from holdfast.core.conversation.stop_reasons import STOP_CONTEXT_BYTES_MAX, StopReason, StopSignal
from holdfast.core.tools.tool_results import StopRun, reply_of
from holdfast.core.wire.contracts import StopRequest
from tests.core.building import BOOM, Run, call, hook_at, moment

PRICED = LLM(model="m", prices=Prices(input_usd=1_000, output_usd=1_000))


def context_of(run: Run, reason: StopReason) -> dict[str, JsonValue]:
    (signal,) = [each for each in run.state.running.continuation.stop_signals if each.reason is reason]
    return dict(signal.context)


def limited(**limits: Any) -> Run:  # noqa: ANN401  # a budget's fields
    return Run(ExecutionBudget(**limits), llm=PRICED).begin()


def test_a_limit_names_itself_how_much_was_used_and_how_much_was_allowed() -> None:
    run = limited(max_steps=1).answer("", call("a")).returns("a")
    assert context_of(run, StopReason.STEPS_LIMIT) == {"limit": "max_steps", "used": 1, "allowed": 1}
    run = limited(max_tokens=1_000).answer("", call("a"), usage=Usage(input_tokens=900, output_tokens=150))
    assert context_of(run, StopReason.TOKEN_LIMIT) == {"limit": "max_tokens", "used": 1_050, "allowed": 1_000}
    run = limited(max_cost=1.0).answer("", call("a"), usage=Usage(input_tokens=900, output_tokens=350))
    assert context_of(run, StopReason.COST_LIMIT) == {"limit": "max_cost", "used": pytest.approx(1.25), "allowed": 1.0}
    run = limited(max_seconds=60).timer(after=60)
    assert context_of(run, StopReason.TIME_LIMIT) == {"limit": "max_seconds", "used": 60.0, "allowed": 60.0}
    run = limited(deadline=moment(30)).timer(after=40)
    assert context_of(run, StopReason.TIME_LIMIT) == {
        "limit": "deadline",
        "used": moment(41).isoformat(),
        "allowed": moment(30).isoformat(),
    }


@pytest.mark.parametrize(
    ("limits", "reason"), [({"max_tokens": 2_000}, "token_limit"), ({"max_cost": 2}, "cost_limit")]
)
def test_a_limit_that_cut_an_answer_says_how_long_that_could_be(limits: dict[str, float], reason: str) -> None:
    run = limited(**limits)
    room = run.model_call.max_output_tokens or 0
    run.answer("cut off he", usage=Usage(input_tokens=100, output_tokens=room), finish_reason="length")
    context = context_of(run, StopReason(reason))
    (name, allowed), used = next(iter(limits.items())), run.state.usage.total_tokens
    spent = used if name == "max_tokens" else pytest.approx(run.state.cost)
    assert context == {"limit": name, "used": spent, "allowed": allowed, "answer_tokens_max": room}


def test_a_hook_is_named_and_what_it_adds_is_kept() -> None:
    run = Run(hooks=[hook_at("before_step", "guard")]).begin()
    run.hooked(Changes(stop="no money", stop_context={"account": 7, "hook": "somebody else"}))
    assert context_of(run, StopReason.STOP_REQUESTED) == {"hook": "guard", "account": 7}
    run = Run(hooks=[hook_at("before_step", "guard")]).begin().hooked(Changes(stop="so", stop_reason="because"))
    assert context_of(run, StopReason.UNKNOWN) == {"hook": "guard", "given": "because"}


def test_a_tool_is_named_and_what_it_adds_is_kept() -> None:
    run = Run().begin().answer("", call("a")).returns("a", stop="found it", adding={"place": [1, 2]})
    assert context_of(run, StopReason.STOP_REQUESTED) == {"tool": "add", "call_id": "a", "place": [1, 2]}


def test_whoever_stops_from_outside_is_named_and_what_they_add_is_kept() -> None:
    signal = StopSignal.requested("enough", "cli", moment(1), {"ticket": 12, "caller": "somebody else"})
    assert (signal.reason, signal.source, signal.context) == ("user_requested", "cli", {"ticket": 12, "caller": "cli"})


def test_an_error_is_named_with_what_raised_it() -> None:
    assert context_of(Run().begin().model_fails(), StopReason.ERROR) == {"error": "Boom", "raised_by": "test"}
    by_tool = BOOM.model_copy(update={"source": "add"})
    run = Run(errors="fatal").begin().answer("", call("a")).fails("a", by_tool)
    assert context_of(run, StopReason.ERROR) == {"error": "Boom", "tool": "add"}
    run = Run(hooks=[hook_at("before_step", "guard")]).begin().hooked(BOOM.model_copy(update={"source": "guard"}))
    assert context_of(run, StopReason.ERROR) == {"error": "Boom", "hook": "guard"}


def test_an_answer_that_ended_early_and_one_of_the_wrong_form_say_so() -> None:
    run = Run(finish_reasons=("content_filter",)).begin().answer("no", finish_reason="content_filter")
    assert context_of(run, StopReason.FINISH_REASON) == {"finish_reason": "content_filter"}
    run = Run(reasks_max=1).begin().answer("no", problem="no JSON").answer("no", problem="no JSON")
    assert context_of(run, StopReason.RETRY_LIMIT) == {"limit": "reasks_max", "used": 1, "allowed": 1}


def test_what_can_be_added_is_bounded() -> None:
    most: dict[str, JsonValue] = {"k": "x" * (STOP_CONTEXT_BYTES_MAX - len('{"k":""}'))}
    more: dict[str, JsonValue] = {"k": f"{most['k']}x"}
    for kind, fields in ((Changes, "stop_context"), (StopRequest, "context")):
        assert getattr(kind.model_validate({fields: most}), fields) == most
        with pytest.raises(ValidationError, match="2,000 go with a stop"):
            kind.model_validate({fields: more})


@pytest.mark.parametrize("context", [{"k": "x" * STOP_CONTEXT_BYTES_MAX}, {"k": object()}, "no object", {1: 2}])
def test_what_a_tool_adds_never_undoes_its_call(context: Any) -> None:  # noqa: ANN401  # anything a tool can give
    reply = reply_of(StopRun("done", "found it", context))
    assert (reply.text, reply.stop, list(reply.stop_context)) == ("done", "found it", ["left_out"])
