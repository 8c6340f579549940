"""The context window: a call that cannot fit is not made, and one that was too long is made again after a summary."""

from __future__ import annotations

from typing import Any

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import LLM
from holdfast.core.agent.policies import ContextPolicy, SummaryPolicy
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.steps import ErrorRecord
from holdfast.core.loop.commands import CallModel, SummariseBuffer
from holdfast.core.loop.events import BufferSummarised, ModelFailed, SummaryFailed
from holdfast.core.loop.headroom import CHARS_PER_TOKEN
from tests.core.building import FAILED, Run, call, hook_at

TOO_LONG = ErrorRecord(type="ContextTooLong", message="120 of 90 tokens", source="model")
SUMMARISING = ContextPolicy(summary=SummaryPolicy(above_input_tokens=100_000, keep_messages=20))


def asked(**rules: Any) -> Run:  # noqa: ANN401  # Run's
    """Return a run whose second step asks its model."""
    return Run(context=SUMMARISING, **rules).begin().answer("", call("a")).returns("a", "3")


def too_long(run: Run, used: Usage | None = None) -> Run:
    run.feed(ModelFailed(TOO_LONG, run.tick(), used or Usage()))
    return run


def summarised(run: Run, text: str = "Somebody asked.") -> Run:
    run.feed(BufferSummarised(text, Usage(input_tokens=5, output_tokens=2), run.tick()))
    return run


def test_a_call_that_was_too_long_is_made_again_after_a_summary() -> None:
    run = too_long(asked(), Usage(input_tokens=100))
    assert [type(each) for each in run.commands] == [SummariseBuffer]
    before = run.state.usage.input_tokens
    summarised(run)
    assert [type(each) for each in run.commands] == [CallModel]
    assert run.state.usage.input_tokens == before + 5, "what was too long counts, and the summary, too"
    assert run.answer("42").state.final_response == "42"
    assert (run.state.errors, run.state.step_count) == ((), 2)
    assert "made again: 120 of 90 tokens" in run.state.warnings[-1]


def test_it_is_made_again_once_in_each_step() -> None:
    run = too_long(summarised(too_long(asked())))
    assert run.ended == FAILED
    assert run.state.errors[0] == TOO_LONG
    run = summarised(too_long(asked())).answer("", call("b")).returns("b", "3").answer("", call("c")).returns("c", "3")
    assert [type(each) for each in too_long(run).commands] == [SummariseBuffer]


def test_a_summary_that_fails_leaves_one_more_try() -> None:
    run = too_long(asked())
    run.feed(SummaryFailed(TOO_LONG, run.tick(), Usage()))
    assert [type(each) for each in run.commands] == [CallModel]
    assert too_long(run).ended == FAILED


def test_without_a_policy_or_old_messages_or_room_it_fails_the_run() -> None:
    assert too_long(Run().begin().answer("", call("a")).returns("a", "3")).ended == FAILED
    assert too_long(Run(context=SUMMARISING).begin()).ended == FAILED
    run = Run(ExecutionBudget(max_tokens=700), context=SUMMARISING).begin().answer("", call("a")).returns("a", "3")
    assert too_long(run, Usage(input_tokens=600)).state.status == "failed"


def test_other_errors_are_no_reason_for_a_summary() -> None:
    run = asked()
    run.feed(ModelFailed(ErrorRecord(type="RequestRefused", message="no", source="model"), run.tick(), Usage()))
    assert run.ended == FAILED


def test_a_call_that_cannot_fit_is_not_made_and_the_error_says_by_how_much() -> None:
    question = "word " * CHARS_PER_TOKEN * 100
    run = Run(llm=LLM(model="m", context_window=100)).begin(question)
    assert run.ended == FAILED
    [error] = run.state.errors
    assert error.type == "ContextTooLong"
    assert "at least 401 tokens, 301 more than the context window of the model 'm' (100)" in error.message
    assert "context.summary" in error.message
    assert Run(llm=LLM(context_window=401)).begin(question).commands[0] == Run().begin(question).commands[0]


def test_what_is_blank_counts_for_nothing() -> None:
    run = Run(llm=LLM(context_window=10)).begin(" " * 10_000)
    assert isinstance(run.commands[0], CallModel)


def test_old_messages_are_summarised_where_the_next_call_cannot_fit() -> None:
    llm = LLM(context_window=1_000)
    run = Run(context=SUMMARISING, llm=llm).begin().answer("", call("a")).returns("a", "word " * 1_200)
    run.answer("", call("b")).returns("b", "word " * 1_200)
    assert [type(each) for each in run.commands] == [SummariseBuffer]
    summarised(run)
    assert [type(each) for each in run.commands] == [CallModel]
    assert run.state.running.shortened_step == 3


def test_a_first_call_beside_an_input_guard_is_not_made_again() -> None:
    run = Run(context=SUMMARISING, hooks=[hook_at("input_guard")]).begin("Do it.")
    assert too_long(run).state.errors[0] == TOO_LONG
