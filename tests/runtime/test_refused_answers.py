"""Answers that a hook refuses, tools that ask for other tries without end, and metadata as a type."""

from __future__ import annotations

from datetime import date

import pytest
from pydantic import BaseModel

from holdfast import Agent, Changes, HookContext, ModelRetry, ToolContext, hook, tool
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.state import AgentState
from holdfast.core.base.bounds import FORMAT_PROBLEM_CHARS_MAX
from holdfast.core.base.errors import InvalidInput
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.local import LocalDriver
from holdfast.testing import Reply, ScriptedModel, call, say


class Ruling(BaseModel):
    """An answer."""

    refund: bool
    why: str


class Customer(BaseModel):
    """Who asks, and since when they are known."""

    number: int
    since: date


GOOD, BARE, BROKEN = say('{"refund": true, "why": "late"}'), say('{"refund": true, "why": ""}'), say("no JSON")


@hook("after_inference")
def explained(context: HookContext) -> None:
    """Refuse a ruling without a reason."""
    ruling = context.answer_as(Ruling)
    if ruling and not ruling.why:
        raise ModelRetry("give a reason")


def judge(reasks_max: int = 2) -> Agent[Ruling]:
    return Agent(name="judge", answers=Ruling, hooks=[explained], reasks_max=reasks_max)


async def test_a_hook_refuses_an_answer_and_the_model_gives_another() -> None:
    result = await LocalDriver(judge(), model=ScriptedModel([BARE, GOOD])).run("Refund?")
    assert result.output == Ruling(refund=True, why="late")
    assert [(error.type, error.message) for error in result.state.errors] == [("InvalidAnswer", "give a reason")]
    assert "Your answer cannot be used: give a reason" in result.messages[2].text


async def test_refusals_of_hooks_and_of_the_format_count_together_and_end_the_run() -> None:
    state = await LocalDriver(judge(), model=ScriptedModel([BARE, BROKEN, BARE, GOOD])).execute("Refund?")
    assert (state.status, state.stop_reason, state.step_count) == (ExecutionStatus.STOPPED, StopReason.RETRY_LIMIT, 3)
    told = [error.message[:13] for step in state.steps for error in step.errors]
    assert told == ["give a reason", "the answer is", "give a reason"]


@pytest.mark.parametrize(("why", "told"), [("", "it was refused without a reason"), ("x" * 5_000, "x" * 100)])
async def test_a_refusal_without_a_text_or_with_a_long_one_is_readable_and_bounded(why: str, told: str) -> None:
    @hook("after_inference")
    async def refuse(context: HookContext) -> None:
        if context.step_number == 1:
            raise ModelRetry(why)

    state = await LocalDriver(Agent("a", hooks=[refuse]), model=ScriptedModel([say("one"), say("two")])).execute("?")
    [error] = state.errors
    assert error.message.startswith(told)
    assert len(error.message) <= FORMAT_PROBLEM_CHARS_MAX
    assert state.final_response == "two"


async def test_a_refusal_beside_tool_calls_changes_nothing() -> None:
    @hook("after_inference")
    def refuse(context: HookContext) -> Changes | None:
        return Changes(reask="no") if context.step_number == 1 else None

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    agent = Agent("a", tools=[look], hooks=[refuse])
    state = await LocalDriver(agent, model=ScriptedModel([call("look"), say("done")])).execute("?")
    assert (state.errors, state.final_response) == ((), "done")
    assert state.steps[0].tool_executions[0].result == "seen"


async def test_a_refusal_counts_also_for_the_text_of_a_hook_before_it() -> None:
    @hook("after_inference", priority=1)
    def polish(context: HookContext) -> Changes | None:
        return Changes(answer="polished") if context.step_number == 1 else None

    @hook("after_inference")
    def refuse(context: HookContext) -> None:
        if context.response and context.response.text == "polished":
            raise ModelRetry("too smooth")

    agent = Agent("a", hooks=[polish, refuse])
    state = await LocalDriver(agent, model=ScriptedModel([say("rough"), say("rough again")])).execute("?")
    assert [error.message for error in state.errors] == ["too smooth"]
    assert state.final_response == "rough again"


async def test_a_refusal_stands_whatever_a_hook_behind_it_makes_of_the_answer() -> None:
    seen: list[str | None] = []

    @hook("after_inference", priority=1)
    def refuse(context: HookContext) -> None:
        if context.step_number == 1:
            raise ModelRetry("name no prices")

    @hook("after_inference")
    def sign(context: HookContext) -> Changes | None:
        seen.append(context.response.format_problem if context.response else None)
        return Changes(answer=f"{context.response.text} Yours, Ada") if context.response else None

    agent = Agent("a", hooks=[refuse, sign])
    state = await LocalDriver(agent, model=ScriptedModel([say("It costs 7."), say("Ask us.")])).execute("?")
    assert [error.message for error in state.errors] == ["name no prices"]
    assert state.final_response == "Ask us. Yours, Ada"
    assert seen == ["name no prices", None], "the hook behind it is told"


async def test_a_refused_answer_does_not_count_where_a_hook_behind_it_ends_the_run() -> None:
    @hook("after_inference", priority=1)
    def refuse(_: HookContext) -> None:
        raise ModelRetry("name no prices")

    @hook("after_inference")
    def fail(_: HookContext) -> None:
        raise ValueError("broken")

    state = await LocalDriver(Agent("a", hooks=[refuse, fail]), model=ScriptedModel([say("It costs 7.")])).execute("?")
    assert (state.status, state.final_response) == (ExecutionStatus.FAILED, "")
    assert [error.type for error in state.steps[0].errors] == ["InvalidAnswer", "AnswerHeldBack"]


async def test_a_refusal_that_also_stops_asks_no_more_and_leaves_no_answer() -> None:
    @hook("after_inference")
    def refuse(_: HookContext) -> Changes:
        return Changes(reask="name no prices", stop="enough")

    model = ScriptedModel([say("It costs 7."), say("never asked for")])
    state = await LocalDriver(Agent("a", hooks=[refuse]), model=model).execute("?")
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.STOP_REQUESTED)
    assert (state.step_count, state.final_response, len(model.requests)) == (1, "", 1)


async def test_elsewhere_a_model_retry_is_the_error_of_a_hook() -> None:
    @hook("after_step")
    def refuse(_: HookContext) -> None:
        raise ModelRetry("no")

    @hook("after_step")
    def change(_: HookContext) -> Changes:
        return Changes(reask="no")

    for wrong, words in (
        (refuse, "raised ModelRetry: no"),
        (change, "only an after_inference hook can have the model"),
    ):
        state = await LocalDriver(Agent("a", hooks=[wrong]), model=ScriptedModel([say("done")])).execute("?")
        assert state.status is ExecutionStatus.FAILED
        assert words in state.errors[-1].message


@pytest.mark.parametrize(("retries_max", "steps"), [(0, 2), (1, 3), (3, 7)])
async def test_a_tool_that_asks_for_other_tries_without_end_ends_the_run(retries_max: int, steps: int) -> None:
    @tool(retries_max=retries_max)
    def find(name: str) -> str:
        """Find somebody."""
        raise ModelRetry(f"nobody is called {name}")

    model = ScriptedModel(lambda _request: call("find", name="Ada"))
    state = await LocalDriver(Agent("a", tools=[find]), model=model).execute("Who?")
    assert (state.status, state.stop_reason, state.step_count) == (
        ExecutionStatus.STOPPED,
        StopReason.RETRY_LIMIT,
        steps,
    )
    assert state.stop_signal is not None
    assert (state.stop_signal.source, dict(state.stop_signal.context)) == (
        "find",
        {"limit": "retries_max", "used": steps, "allowed": retries_max},
    )


async def run_as(metadata: dict[str, object]) -> AgentState:
    @hook("before_execution")
    def welcome(context: HookContext) -> Changes:
        return Changes(metadata={"greeted": context.metadata_as(Customer).number})

    @tool
    def known_for(context: ToolContext) -> int:
        """Say since which year the customer is known."""
        return context.metadata_as(Customer).since.year

    script: list[Reply] = [call("known_for"), say("done")]
    driver = LocalDriver(Agent("a", tools=[known_for], hooks=[welcome]), model=ScriptedModel(script))
    return await driver.execute("Since when?", metadata=metadata)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # JSON


async def test_metadata_are_read_as_a_type_by_tools_and_hooks() -> None:
    state = await run_as({"number": 17, "since": "2019-05-01"})
    assert state.metadata["greeted"] == 17
    assert state.steps[0].tool_executions[0].value == 2019


async def test_metadata_that_do_not_fit_are_told_with_their_fields() -> None:
    state = await run_as({"number": "x"})
    assert "the metadata of this run is no Customer: number: " in state.errors[-1].message
    with pytest.raises(InvalidInput, match="since: Field required; give it where the run is started"):
        ToolContext("e", "k", 1, metadata={"number": 1}).metadata_as(Customer)
