"""Falling back: another route is asked where one cannot answer (docs/spec.md, section 6)."""

from __future__ import annotations

import pytest

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import LLM, FallbackRoute
from holdfast.core.base.bounds import FALLBACKS_MAX, OUTPUT_TOKENS_MAX
from holdfast.core.base.retries import FALLBACK_PATIENCE_SECONDS, patience_of
from holdfast.core.base.usage import TOKENS_PRICED, Prices, Usage
from holdfast.core.conversation.provider_items import ProviderItem
from holdfast.core.conversation.steps import ErrorRecord, InferenceResponse
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.loop.commands import CallModel, CallTool, Finish
from holdfast.core.loop.events import ModelAnswered, ModelFailed
from holdfast.core.wire.endpoint_refusals import FALLBACK_ERRORS
from holdfast.core.wire.execution_events import InferenceRequestStarted, ModelFellBack
from tests.core.building import COMPLETED, FAILED, Run, call, stopped

AWAY = ErrorRecord(type="ProviderUnavailable", message="we are moving house", source="model")
DEAR, CHEAP = Prices(input_usd=10.0, output_usd=100.0), Prices(input_usd=1.0, output_usd=10.0)
ROUTES = LLM(
    model="first", prices=DEAR, fallback=(FallbackRoute(model="second", prices=CHEAP), FallbackRoute(model="third"))
)
WASTED = Usage(input_tokens=1_000, output_tokens=10)


def test_a_name_is_enough_for_a_route() -> None:
    assert LLM.model_validate({"fallback": ["second", {"model": "third"}]}).fallback == (
        FallbackRoute(model="second"),
        FallbackRoute(model="third"),
    )
    assert "fallback" not in LLM(model="first").model_dump(), "older definitions keep their digests"
    with pytest.raises(ValueError, match="at most 8"):
        LLM.model_validate({"fallback": ["x"] * (FALLBACKS_MAX + 1)})


@pytest.mark.parametrize("kind", sorted(FALLBACK_ERRORS))
def test_a_call_that_its_provider_fails_goes_to_the_next_route(kind: str) -> None:
    run = Run(llm=ROUTES, observed=True).begin()
    assert run.model_call == CallModel(1, OUTPUT_TOKENS_MAX, may_fall_back=True)
    run.model_fails(ErrorRecord(type=kind, message="not now", source="model"))
    assert run.model_call.llm == LLM(model="second", prices=CHEAP, fallback=ROUTES.fallback)
    assert run.model_call.may_fall_back
    (event,) = (each for each in run.events if isinstance(each, ModelFellBack))
    assert event.fallback.line == f"first cannot answer ({kind}: not now); second is asked"
    assert sum(isinstance(each, InferenceRequestStarted) for each in run.events) == 2
    run.answer("done")
    assert run.ended == COMPLETED
    assert not run.state.errors
    assert run.state.last_step is not None
    assert [(each.route, each.to) for each in run.state.last_step.fallbacks] == [("first", "second")]


@pytest.mark.parametrize("kind", ["RequestRefused", "NotAuthorised", "ModelNotFound", "ContextTooLong", "BadModel"])
def test_what_the_request_got_wrong_fails_the_run(kind: str) -> None:
    run = Run(llm=ROUTES).begin().model_fails(ErrorRecord(type=kind, message="no", source="model"))
    assert run.ended == FAILED
    assert run.commands == (Finish(),)


def test_the_last_route_is_tried_with_all_patience_and_its_failure_fails_the_run() -> None:
    run = Run(llm=ROUTES).begin().model_fails(AWAY).model_fails(AWAY)
    assert run.model_call.llm is not None
    assert (run.model_call.llm.model, run.model_call.may_fall_back) == ("third", False)
    run.model_fails(AWAY)
    assert run.ended == FAILED
    assert run.state.errors == (AWAY,)
    assert run.state.last_step is not None
    assert [each.to for each in run.state.last_step.fallbacks] == ["second", "third"]


def test_every_other_route_is_given_up_after_seconds() -> None:
    assert patience_of(900, may_fall_back=True) == FALLBACK_PATIENCE_SECONDS
    assert patience_of(1, may_fall_back=True) == 1
    assert patience_of(900, may_fall_back=False) == 900


def test_each_step_begins_with_the_first_route_again() -> None:
    run = Run(llm=ROUTES).begin().model_fails(AWAY).answer("", call("a")).returns("a")
    assert (run.model_call.step_number, run.model_call.llm) == (2, None)


def test_attempts_are_counted_at_the_prices_of_their_route() -> None:
    run = Run(llm=ROUTES).begin().model_fails(AWAY, wasted=WASTED).answer("done")
    answered = Usage(input_tokens=100, output_tokens=20)
    assert run.state.usage == WASTED + answered
    assert run.state.cost == pytest.approx(DEAR.cost(WASTED) + CHEAP.cost(answered))
    assert run.state.last_step is not None
    assert [(each.usage, each.cost) for each in run.state.last_step.fallbacks] == [(WASTED, DEAR.cost(WASTED))]
    assert run.state.cost == pytest.approx((1_000 * 10 + 10 * 100 + 100 * 1 + 20 * 10) / TOKENS_PRICED)


def test_the_next_route_is_allowed_what_its_own_prices_leave() -> None:
    run = Run(ExecutionBudget(max_cost=0.1), llm=ROUTES).begin()
    first = run.model_call.max_output_tokens
    run.model_fails(AWAY)
    second = run.model_call.max_output_tokens
    assert first is not None
    assert second is not None
    assert second > 9 * first, "its tokens cost a tenth"


def test_a_route_without_a_price_is_said_and_where_that_is_refused_not_asked() -> None:
    routes = LLM(model="first", prices=DEAR, fallback=(FallbackRoute(model="third"),))
    run = Run(llm=routes).begin().model_fails(AWAY).answer("done")
    assert run.state.running.unpriced == ("third",)
    run = Run(ExecutionBudget(unpriced="refuse"), llm=routes).begin().model_fails(AWAY)
    assert run.ended == FAILED
    assert run.wanted(CallModel) == ()


def test_a_budget_that_the_failed_attempts_spent_makes_no_further_call() -> None:
    run = Run(ExecutionBudget(max_tokens=500), llm=ROUTES).begin().model_fails(AWAY, wasted=WASTED)
    assert run.ended == stopped(StopReason.TOKEN_LIMIT)
    assert run.wanted(CallModel) == ()


def test_a_failure_that_comes_after_a_stop_asks_nobody() -> None:
    run = Run(llm=ROUTES).begin().stop()
    run.feed(ModelFailed(AWAY, run.tick()))
    assert run.ended == stopped(StopReason.USER_REQUESTED)
    assert run.wanted(CallModel) == ()


def test_a_run_that_is_taken_up_again_goes_on_with_the_route_it_had_come_to() -> None:
    run = Run(llm=ROUTES).begin().model_fails(AWAY)
    before = run.model_call
    run.begin()
    assert run.model_call == before
    run.answer("", call("a"))
    assert run.wanted(CallTool)


def test_what_one_model_has_counted_bounds_no_call_of_another() -> None:
    run = Run(ExecutionBudget(max_tokens=100_000), llm=ROUTES).begin("x" * 5_000)
    run.answer("", call("a"), usage=Usage(input_tokens=3_000, output_tokens=20)).returns("a").model_fails(AWAY)
    second = run.model_call.input_max
    assert second is not None
    assert second > 5_000, "a token for each byte: its own tokens are not known yet"
    run.answer("", call("b"), usage=Usage(input_tokens=100, output_tokens=20)).returns("b")
    first = run.model_call.input_max
    assert first is not None
    assert 3_000 < first < 4_000, "its own last count, and what was added since"
    run.model_fails(AWAY)
    again = run.model_call.input_max
    assert again is not None
    assert 100 < again < 1_000, "the second one has counted by now, too"


def test_items_of_another_route_are_no_input_of_the_next() -> None:
    run = Run(ExecutionBudget(max_tokens=100_000), llm=ROUTES).begin()
    item = ProviderItem(route="first", api="openai_chat", body="x" * 10_000)
    signed = InferenceResponse(tool_calls=(call("a"),), usage=Usage(input_tokens=100, output_tokens=20), items=(item,))
    run.feed(ModelAnswered(signed, run.tick()))
    run.returns("a")
    first = run.model_call.input_max
    assert first is not None
    assert first > 10_000
    run.model_fails(AWAY)
    second = run.model_call.input_max
    assert second is not None
    assert second < 2_000


def test_a_route_whose_window_is_too_small_is_passed_over_while_there_is_another() -> None:
    small = FallbackRoute(model="small", context_window=100)
    routes = LLM(model="first", fallback=(small, FallbackRoute(model="third")))
    run = Run(llm=routes, observed=True).begin("word " * 1_000).model_fails(AWAY)
    assert run.model_call.llm is not None
    assert run.model_call.llm.model == "third"
    steps = [(each.fallback.to, each.fallback.error.type) for each in run.events if isinstance(each, ModelFellBack)]
    assert steps == [("small", AWAY.type), ("third", "ContextTooLong")]
    only = Run(llm=LLM(model="first", fallback=(small,))).begin("word " * 1_000).model_fails(AWAY)
    assert only.ended == FAILED
    assert [each.type for each in only.state.errors] == ["ContextTooLong"]


def test_a_new_definition_with_fewer_routes_goes_on_with_what_it_has() -> None:
    run = Run(llm=ROUTES).begin().model_fails(AWAY).model_fails(AWAY)
    run.becomes(llm=LLM(model="other", prices=DEAR))
    assert run.model_call.llm is not None
    assert run.model_call.llm.model == "other"
    assert run.answer("done").ended == COMPLETED


def test_each_route_has_the_longest_answer_of_its_own() -> None:
    small = FallbackRoute(model="small", longest_answer=100)
    large = FallbackRoute(model="large", longest_answer=64_000)
    routes = (small, large, FallbackRoute(model="last"))
    run = Run(llm=LLM(model="first", longest_answer=2_000, fallback=routes)).begin()
    assert run.model_call.max_output_tokens == 2_000
    for longest in (100, 64_000, OUTPUT_TOKENS_MAX):
        assert run.model_fails(AWAY).model_call.max_output_tokens == longest
    asked = Run(llm=LLM(model="first", max_output_tokens=500, fallback=(small, large))).begin().model_fails(AWAY)
    assert asked.model_call.max_output_tokens == 100
    assert asked.model_fails(AWAY).model_call.max_output_tokens == 500, "what the definition asks for is kept"
