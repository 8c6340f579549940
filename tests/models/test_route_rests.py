"""A model that has failed rests while others can answer, and comes back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast import LLM, user_message
from holdfast.core.agent.model import BackgroundAnswer
from holdfast.core.base.errors import ModelFailure
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.core.wire.endpoint_refusals import ROUTE_RESTS
from holdfast.models import FunctionModel, ModelRequest
from holdfast.models.route_rests import FAILURES_BEFORE, REST_SECONDS, REST_SECONDS_MAX, RESTING_MAX, RouteRests
from holdfast.models.routed_model import RoutedModel

AWAY = ModelFailure("moving house", kind="ProviderUnavailable", again=True)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def rests_for(rests: RouteRests, clock: Clock, name: str = "first") -> float:
    """Return how long the model rests from now on."""
    began = clock.now
    while (failure := refusal_of(rests, name)) is not None:
        assert (failure.kind, failure.free) == (ROUTE_RESTS, True)
        clock.now += 1
    over, clock.now = clock.now - began, began
    return over


def refusal_of(rests: RouteRests, name: str) -> ModelFailure | None:
    try:
        rests.check(name)
    except ModelFailure as failure:
        return failure
    return None


def test_a_model_rests_after_failures_in_a_row_and_longer_each_time(clock: Clock) -> None:
    rests = RouteRests(clock)
    for _ in range(FAILURES_BEFORE - 1):
        rests.note("first", AWAY)
    assert rests_for(rests, clock) == 0
    lengths: list[float] = []
    for _ in range(8):
        rests.note("first", AWAY)
        lengths.append(rests_for(rests, clock))
    assert lengths[:3] == [REST_SECONDS, 2 * REST_SECONDS, 4 * REST_SECONDS]
    assert max(lengths) == REST_SECONDS_MAX
    assert rests_for(rests, clock, "second") == 0


def test_an_account_without_credit_rests_at_once_and_an_answer_ends_every_rest(clock: Clock) -> None:
    rests = RouteRests(clock)
    rests.note("first", ModelFailure("no credit", kind="QuotaExceeded"))
    assert rests_for(rests, clock) == REST_SECONDS
    rests.note("first", None)
    assert rests_for(rests, clock) == 0


def test_what_the_request_got_wrong_rests_nobody_and_memory_is_bounded(clock: Clock) -> None:
    rests = RouteRests(clock)
    for _ in range(9):
        rests.note("first", ModelFailure("bad temperature", kind="RequestRefused"))
        rests.note("first", ModelFailure("rests", kind=ROUTE_RESTS))
    assert rests_for(rests, clock) == 0
    for number in range(RESTING_MAX + 5):
        rests.note(str(number), ModelFailure("no credit", kind="QuotaExceeded"))
    assert rests_for(rests, clock, str(RESTING_MAX + 4)) == 0


async def test_only_calls_that_can_fall_back_meet_a_rest() -> None:
    asked: list[str | None] = []

    async def answer(request: ModelRequest) -> InferenceResponse:
        asked.append(request.llm.model)
        raise AWAY

    model = RoutedModel(FunctionModel(answer), {})
    request = ModelRequest(LLM(model="first"), "", (user_message("x"),), (), None, may_fall_back=True)
    kinds: list[str] = []
    for _ in range(FAILURES_BEFORE + 2):
        with pytest.raises(ModelFailure) as failure:
            await model(request)
        kinds.append(failure.value.kind)
        assert "moving house" in failure.value.message
    assert kinds == ["ProviderUnavailable"] * FAILURES_BEFORE + [ROUTE_RESTS] * 2
    assert len(asked) == FAILURES_BEFORE
    with pytest.raises(ModelFailure, match="moving house"):
        await model(ModelRequest(LLM(model="first"), "", (user_message("x"),), (), None))
    with pytest.raises(ModelFailure, match="moving house") as resumed:
        await model(replace(request, resume=BackgroundAnswer(response_id="resp_1", model="first")))
    assert resumed.value.kind == "ProviderUnavailable", "what goes on at the provider is paid for"
