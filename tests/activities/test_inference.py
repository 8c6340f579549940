"""The model call as an activity: what the agent's definition says goes out, and the answer comes back checked."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest
from temporalio.activity import ActivityCancellationDetails
from temporalio.client import WorkflowExecutionStatus
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.heartbeats import pulse
from activities.inference import Inference
from activities.retry_deadline import SOONEST
from activities.stale_attempts import FIRST, PreviousAttempt
from activities.transcript_cache import TranscriptCache
from holdfast.connection.executions import PAUSED
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.model import AnswerPart, ModelRequest
from holdfast.core.agent.policies import JsonSchemaFormat, ResponseFormat, TextFormat
from holdfast.core.agent.toolset import Toolset
from holdfast.core.agent.usage_estimates import CUT_TOKENS_MAX
from holdfast.core.base.frozen import replace as changed
from holdfast.core.base.usage import NOTHING_USED, Usage
from holdfast.core.conversation.attempt_tally import LOSSES_MIN
from holdfast.core.conversation.messages import Message
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.core.wire.contracts import (
    SPENT_SIGNAL,
    CallProgress,
    FailedAttemptsUsage,
    InferenceAnswer,
    InferenceInput,
)
from holdfast.core.wire.transcript_digest import TranscriptPrefix, advanced, root
from holdfast.models import OpenAIChat, ProviderSettings
from holdfast.testing.holds import Hold
from holdfast.testing.script import Call, Reply, call, calls, say
from tests.activities.asking import asking

SAID = (Message(role="user", content="What is it?"),)
HEARD_SECONDS_MAX = 90

SUM = JsonSchemaFormat(name="sum", json_schema={"type": "object", "required": ["sum"]})


def wanted(response_format: ResponseFormat) -> InferenceInput:
    opening = TranscriptPrefix(
        definition=AgentDefinition(name="agent", tools="all", response_format=response_format), tools=()
    )
    base = root(opening)
    return InferenceInput(opening=opening, base=base, delta=SAID, target=advanced(base, SAID))


@pytest.mark.parametrize(
    ("turn", "problem"),
    [
        (say('{"sum": 3}'), None),
        (say("{}"), "the answer does not fit the schema: $: 'sum' is a required property"),
        (call("add"), None),
    ],
)
async def test_an_answer_comes_back_with_what_is_wrong_with_its_form(turn: Reply, problem: str | None) -> None:
    async with asking(turn) as (endpoint, model):
        answer = await ActivityEnvironment().run(Inference(model, Toolset(), TranscriptCache()).run, wanted(SUM))
        assert endpoint.requests[0].body["response_format"]["json_schema"]["name"] == "sum"
    assert answer.response.format_problem == problem


async def test_an_answer_in_words_is_never_wrong() -> None:
    async with asking(say("{")) as (endpoint, model):
        answer = await ActivityEnvironment().run(
            Inference(model, Toolset(), TranscriptCache()).run, wanted(TextFormat())
        )
        assert "response_format" not in endpoint.requests[0].body
    assert answer.response.format_problem is None


def told_by(environment: ActivityEnvironment) -> list[CallProgress]:
    """Return a list of what the environment's activity tells in its heartbeats."""
    told: list[CallProgress] = []
    environment.on_heartbeat = told.append
    return told


class Run:
    """The run that an activity belongs to, as far as it can be signalled: a client that knows no other."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def get_workflow_handle(self, *_: object, **__: object) -> Run:
        return self

    async def signal(self, name: str, told: object, **_: object) -> None:
        assert name == SPENT_SIGNAL
        self.told.append(told)


class PausedRun(Run):
    """One that an operator has paused."""

    id = "paused"

    async def query(self, *_: object, **__: object) -> None:
        WorkflowExecutionStatus(PAUSED)  # as the SDK does it


class Listening(OpenAIChat):
    """A model that tells when so many characters of its answer have come."""

    def __init__(self, settings: ProviderSettings, chars: int) -> None:
        super().__init__(settings)
        self.all_heard = asyncio.Event()
        self._chars_left = chars

    async def __call__(self, request: ModelRequest) -> InferenceResponse:
        assert request.listener is not None
        told = request.listener

        def listen(part: AnswerPart) -> None:
            told(part)
            self._chars_left -= len(part.text)
            if self._chars_left <= 0:
                self.all_heard.set()

        return await super().__call__(replace(request, listener=listen))


async def cancelled(
    why: ActivityCancellationDetails, turn: Reply, chars: int, run: Run | None = None
) -> InferenceAnswer:
    """Return what a call returns that is cancelled when so many characters have come and `turn`'s hold stands."""
    assert turn.hold is not None
    environment = ActivityEnvironment(client=cast("Any", run or Run()))
    async with asking(turn) as (endpoint, model):
        listening = Listening(model.settings, chars)
        activity = Inference(listening, Toolset(), TranscriptCache())
        running = asyncio.ensure_future(environment.run(activity.run, wanted(TextFormat())))
        await turn.hold.until_held()
        if chars:
            async with asyncio.timeout(HEARD_SECONDS_MAX):
                await listening.all_heard.wait()
        environment.cancel(cancellation_details=why)
        try:
            return await running
        finally:
            await endpoint.until(lambda seen: seen[0].outcome == "disconnected-by-client", seconds_max=90)
            await listening.close()


STOPPED = ActivityCancellationDetails(cancel_requested=True)


async def test_a_cancelled_call_returns_what_had_come_without_its_tool_calls() -> None:
    turn = calls(
        Call("pay", {"cents": 100}), text="I will pay it.", pieces_max=4, usage=(7, 3), usage_in="every", hold=Hold()
    )
    answer = await cancelled(STOPPED, turn, 14)
    assert not answer.complete
    assert answer.response == InferenceResponse(
        text="I will pay it.",
        finish_reason="cancelled",
        usage=Usage(input_tokens=7, output_tokens=3),
        model="scripted",
        response_id="chatcmpl-0",
    )


async def test_a_cancelled_call_whose_usage_was_not_told_counts_a_bound() -> None:
    answer = await cancelled(STOPPED, say("I will pay it.", pieces_max=2, hold=Hold()), 12)
    used = answer.response.usage
    assert (answer.response.text, used.output_tokens) == ("I will pay i", 12 + CUT_TOKENS_MAX)
    assert used.estimated_tokens == used.total_tokens > used.output_tokens


async def test_a_cancelled_call_of_which_nothing_had_come_counts_what_was_sent() -> None:
    answer = await cancelled(STOPPED, say("I will pay it.", hold=Hold()), 0)
    used = answer.response.usage
    assert (answer.response.text, used.output_tokens) == ("", CUT_TOKENS_MAX)
    assert used.estimated_tokens == used.total_tokens > used.output_tokens


@pytest.mark.parametrize(
    ("why", "tells"),
    [("worker_shutdown", True), ("paused", True), ("reset", True), ("not_found", False), ("timed_out", False)],
)
async def test_a_call_that_is_not_stopped_but_interrupted_returns_nothing(why: str, *, tells: bool) -> None:
    """Its run is told what it has used where a stop may come before the next attempt."""
    run, details = Run(), ActivityCancellationDetails(**{why: True})
    with pytest.raises(asyncio.CancelledError):
        await cancelled(details, say("I will pay it.", pieces_max=3, hold=Hold()), 14, run)
    assert len(run.told) == tells
    for told in run.told:
        assert isinstance(told, FailedAttemptsUsage)
        assert told.usage.output_tokens > 14


async def test_what_attempts_used_that_failed_before_is_told_with_the_answer() -> None:
    environment = ActivityEnvironment()
    before = CallProgress(if_lost=Usage(input_tokens=1), failed_usage=Usage(input_tokens=10, output_tokens=20))
    environment.info = replace(environment.info, heartbeat_details=[before.model_dump(mode="json")])
    async with asking(say("x", usage=(100, 200))) as (_, model):
        answer = await environment.run(Inference(model, Toolset(), TranscriptCache()).run, wanted(TextFormat()))
    assert answer.failed_usage == Usage(input_tokens=11, output_tokens=20)
    assert answer.response.usage == Usage(input_tokens=100, output_tokens=200)


@pytest.mark.parametrize("details", [[], [None], ["odd"], [{"failed_usage": -1}], [{"other": 1}]])
async def test_details_that_are_not_ours_count_nothing(details: list[object]) -> None:
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, heartbeat_details=details)
    async with asking(say("x")) as (_, model):
        answer = await environment.run(Inference(model, Toolset(), TranscriptCache()).run, wanted(TextFormat()))
    assert answer.failed_usage == NOTHING_USED


@pytest.mark.parametrize("after", ["0", "-1", "0.0001"])
async def test_a_failure_leaves_what_it_used_and_a_wait_of_nothing_is_told_as_one(after: str) -> None:
    run = Run()
    environment = ActivityEnvironment(client=cast("Any", run))
    told = told_by(environment)
    before = CallProgress(failed_usage=Usage(input_tokens=10))
    environment.info = replace(environment.info, heartbeat_details=[before.model_dump(mode="json")])
    async with asking(Reply(status=429, headers={"retry-after": after})) as (_, model):
        with pytest.raises(ApplicationError) as caught:
            await environment.run(Inference(model, Toolset(), TranscriptCache()).run, wanted(TextFormat()))
    assert (caught.value.type, caught.value.non_retryable) == ("ProviderUnavailable", False)
    assert caught.value.next_retry_delay == SOONEST
    assert caught.value.details == (Usage(input_tokens=10),)
    assert told[-1] == changed(before, begun_at=environment.info.started_time, failures=1)
    assert run.told == [FailedAttemptsUsage(call=environment.info.activity_id, usage=Usage(input_tokens=10))]


@pytest.mark.parametrize(("previous", "tells"), [(FIRST, True), (PreviousAttempt(paused=True), False)])
async def test_a_paused_run_is_told_once_what_attempts_used_that_were_lost(
    previous: PreviousAttempt, *, tells: bool
) -> None:
    """A stop may come before the next attempt, and the lost worker has told nobody."""
    run = PausedRun()
    environment = ActivityEnvironment(client=cast("Any", run))
    lost = CallProgress(if_lost=Usage(input_tokens=1), failed_usage=Usage(input_tokens=10))
    environment.info = replace(environment.info, attempt=2, heartbeat_details=[lost.model_dump(mode="json")])

    async def ask(call: InferenceInput) -> InferenceAnswer:
        pulse().repetition = previous
        return await Inference(model, Toolset(), TranscriptCache()).run(call)

    async with asking(say("x")) as (endpoint, model):
        with pytest.raises(ApplicationError) as caught:
            await environment.run(ask, changed(wanted(TextFormat()), opening=None))
    used = Usage(input_tokens=11)
    assert (caught.value.type, caught.value.details, endpoint.requests) == ("RunUnreadable", (used,), ())
    assert run.told == [FailedAttemptsUsage(call=environment.info.activity_id, usage=used)] * tells


async def test_a_cut_answer_leaves_what_it_used() -> None:
    run = Run()
    environment = ActivityEnvironment(client=cast("Any", run))
    told = told_by(environment)
    async with asking(say("I will", usage=(7, 3), usage_in="every", pieces_max=2)) as (_, model):
        with pytest.raises(ApplicationError) as caught:
            await environment.run(Inference(model, Toolset(), TranscriptCache()).run, wanted(TextFormat()))
    used = Usage(input_tokens=7, output_tokens=3)
    assert caught.value.details == (used,)
    begun_at = environment.info.started_time
    assert told[-1] == CallProgress(chars=6, tail="I will", failed_usage=used, begun_at=begun_at, failures=1)
    assert run.told == [FailedAttemptsUsage(call=environment.info.activity_id, usage=used)]


@pytest.mark.parametrize(("failures", "lost"), [(0, 11), (1, 10), (2, 9)])
async def test_a_call_that_is_lost_with_worker_after_worker_is_given_up_in_time(failures: int, lost: int) -> None:
    environment = ActivityEnvironment()
    environment.info = replace(
        environment.info,
        attempt=12,
        heartbeat_details=[CallProgress(attempt=11, failures=failures).model_dump(mode="json")],
        scheduled_time=environment.info.started_time - timedelta(seconds=601),
    )
    async with asking(say("x")) as (endpoint, model):
        asked = environment.run(Inference(model, Toolset(), TranscriptCache()).run, wanted(TextFormat()))
        if lost < LOSSES_MIN:
            assert (await asked).response.text == "x"
        else:
            with pytest.raises(ApplicationError, match=f"lost with its worker {lost} times in 601 s") as caught:
                await asked
            assert (caught.value.type, caught.value.non_retryable) == ("ModelTimeout", True)
            assert endpoint.requests == ()


async def test_a_call_that_is_given_up_counts_the_attempts_that_left_no_heartbeat() -> None:
    environment = ActivityEnvironment()
    environment.info = replace(
        environment.info, attempt=12, scheduled_time=environment.info.started_time - timedelta(seconds=601)
    )
    async with asking(say("x")) as (_, model):
        call = changed(wanted(TextFormat()), max_output_tokens=50, room=1_000, input_max=100)
        with pytest.raises(ApplicationError, match="lost with its worker 11 times") as caught:
            await environment.run(Inference(model, Toolset(), TranscriptCache()).run, call)
    [used] = caught.value.details
    assert used == Usage(input_tokens=700, output_tokens=350, estimated_tokens=1_050)  # the last began with 100 left
