"""What hooks at `before_inference` change of one model call (docs/spec.md, 6.18)."""

from __future__ import annotations

import pytest

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import CALL_OPTIONS, LLM, OPTIONS, UNSENT, FallbackRoute
from holdfast.core.agent.hooks import Changes, Trigger, problem_with, problem_with_model_call
from holdfast.core.agent.policies import ContextPolicy, SummaryPolicy
from holdfast.core.agent.token_bounds import MESSAGE_OVERHEAD, TOOL_OVERHEAD
from holdfast.core.base.bounds import OUTPUT_TOKENS_MAX
from holdfast.core.base.frozen import replace
from holdfast.core.base.usage import Prices, Usage
from holdfast.core.conversation.model_call_changes import ModelCallChanges
from holdfast.core.conversation.steps import ErrorRecord, Outcome
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.loop.commands import CallModel, SummariseBuffer
from holdfast.core.loop.events import ModelFailed
from holdfast.core.tools.tool_search import CALL_TOOL
from holdfast.core.tools.tool_traits import ToolTraits
from tests.core.building import COMPLETED, FAILED, Run, call, hook_at, stopped

AWAY = ErrorRecord(type="ProviderUnavailable", message="away", source="model")
CHEAP, DEAR = Prices(input_usd=1.0, output_usd=10.0), Prices(input_usd=10.0, output_usd=100.0)
OWN = LLM(model="own", temperature=0.5, prices=CHEAP, fallback=(FallbackRoute(model="large"), FallbackRoute(model="b")))
HOOKS = (hook_at("before_inference", "first"), hook_at("before_inference", "second"))
LARGE = ModelCallChanges(model="large", prices=DEAR, context_window=100_000)


def run_with(*changes: ModelCallChanges, budget: ExecutionBudget | None = None, llm: LLM = OWN) -> Run:
    """A run whose first model call is asked for after these changes."""
    run = Run(budget, llm=llm, hooks=HOOKS[: len(changes)]).begin()
    return run.hooked(*(Changes(model_call=each) for each in changes))


def test_one_call_is_asked_with_another_model_and_the_next_one_with_its_own() -> None:
    run = run_with(ModelCallChanges(model="other", prices=DEAR, options={"temperature": 0, "stop": ["END"]}))
    asked = run.model_call.llm
    assert asked is not None
    assert (asked.model, asked.prices, asked.temperature, asked.stop) == ("other", DEAR, 0, ("END",))
    run.answer("", call("a")).returns("a").hooked()
    assert (run.model_call.step_number, run.model_call.llm) == (2, None)
    assert run.answer("done").ended == COMPLETED
    first, second = run.state.steps
    assert first.model_call_changes is not None
    assert second.model_call_changes is None
    used = Usage(input_tokens=100, output_tokens=20)
    assert run.state.cost == pytest.approx(DEAR.cost(used) + CHEAP.cost(used))


def test_each_hook_changes_what_those_before_it_left_and_the_step_names_them() -> None:
    first = ModelCallChanges(options={"temperature": 1, "top_p": 0.2}, tools=("echo", "add"), prompt="Be kind.")
    second = ModelCallChanges(model="other", options={"temperature": None}, tools=("add",), prompt="Be short.")
    run = run_with(first, second)
    command = run.model_call
    assert command.llm is not None
    assert (command.llm.model, command.llm.temperature, command.llm.top_p) == ("other", None, 0.2)
    assert (command.offered, command.prompt) == (("add",), "Be kind.\n\nBe short.")
    step = run.state.running.current_step
    assert step is not None
    assert step.model_call_changes is not None
    assert step.model_call_changes.line == (
        "the call was changed by first, second: model other, temperature unset, top_p 0.2, tools add, "
        "19 characters of prompt"
    )
    assert b"model_call_changes" not in Run().begin().state.to_json(), "a state without changes reads as before"


def test_a_prompt_is_no_part_of_the_conversation() -> None:
    run = run_with(ModelCallChanges(prompt="Mind the gap.")).answer("", call("a")).returns("a").hooked()
    assert run.model_call.prompt == ""
    assert all("Mind the gap." not in message.text for message in run.state.messages)


def test_a_tool_that_the_call_does_not_offer_is_unknown_to_that_step_alone() -> None:
    run = run_with(ModelCallChanges(tools=("echo",))).answer("", call("a", "add"), call("b", "echo"))
    assert run.called == ["b"]
    run.returns("b").hooked()
    refused = run.state.steps[0].tool_executions
    assert [each.outcome for each in refused] == [Outcome.FAILED, Outcome.SUCCEEDED]
    error = refused[0].error
    assert error is not None
    assert error.type == "UnknownTool"
    assert error.message == "the model asked for the tool 'add', which this step does not offer; there are: echo"
    run.answer("", call("c", "add"))
    assert run.called == ["c"]


@pytest.mark.parametrize("offered", [(CALL_TOOL,), ("echo",)])
def test_a_deferred_tool_may_be_called_where_its_stand_in_is_offered(offered: tuple[str, ...]) -> None:
    tools = (ToolTraits(name="hidden", deferred=True), ToolTraits(name=CALL_TOOL), ToolTraits(name="echo"))
    run = Run(tools=tools, hooks=HOOKS[:1]).begin().hooked(Changes(model_call=ModelCallChanges(tools=offered)))
    run.answer("", call("a", "hidden"))
    assert run.called == (["a"] if offered == (CALL_TOOL,) else [])


def test_a_hook_is_told_the_model_and_the_tools_that_are_offered() -> None:
    run = Run(llm=OWN, hooks=HOOKS[:1]).begin()
    assert (run.hook_context.llm, set(run.hook_context.tools)) == (OWN, {"add", "echo"})
    elsewhere = Run(llm=OWN, hooks=[hook_at("before_step")]).begin().hook_context
    assert (elsewhere.llm, elsewhere.tools) == (None, ())


def test_a_fallback_starts_from_the_changed_call_and_asks_no_model_twice() -> None:
    run = run_with(replace_model("large", options={"temperature": 0})).model_fails(AWAY)
    asked = run.model_call.llm
    assert asked is not None
    assert (asked.model, asked.temperature, run.model_call.may_fall_back) == ("b", 0, False)
    step = run.answer("done").state.last_step
    assert step is not None
    assert [(each.route, each.to) for each in step.fallbacks] == [("large", "b")]


def replace_model(model: str, **fields: object) -> ModelCallChanges:
    return ModelCallChanges.model_validate({"model": model, **fields})


def test_whoever_takes_the_run_up_makes_the_same_call() -> None:
    run = run_with(LARGE, ModelCallChanges(tools=("echo",), prompt="Now."))
    before = run.model_call
    assert run.resume().model_call == before


def test_the_budget_is_that_of_the_changed_models_prices() -> None:
    budget = ExecutionBudget(max_cost=0.05)
    own = run_with(ModelCallChanges(), budget=budget).model_call.max_output_tokens
    changed = run_with(LARGE, budget=budget).model_call.max_output_tokens
    assert own is not None
    assert changed is not None
    assert own > 9 * changed, "its tokens cost ten times as much"


def test_the_prompt_of_hooks_is_reserved() -> None:
    budget = ExecutionBudget(max_tokens=5_000)
    without, text = run_with(ModelCallChanges(), budget=budget).model_call.room, "word " * 100
    room = run_with(ModelCallChanges(prompt=text), budget=budget).model_call.room
    assert without is not None
    assert room == without - len(text) - MESSAGE_OVERHEAD - 2
    spent = run_with(ModelCallChanges(prompt=text * 100), budget=ExecutionBudget(max_tokens=300))
    assert spent.model_call.max_output_tokens == 150, "a first call of a root keeps half for its answer"


@pytest.mark.parametrize("budget", [None, ExecutionBudget(max_tokens=100_000)], ids=["unlimited", "limited"])
def test_the_prompt_of_hooks_counts_in_a_call_that_is_lost(budget: ExecutionBudget | None) -> None:
    def used(prompt: str) -> int:
        run = run_with(ModelCallChanges(prompt=prompt), budget=budget, llm=LLM(model="own", max_output_tokens=50))
        run.feed(ModelFailed(AWAY, run.tick(), lost=True))
        return run.state.usage.input_tokens

    text = "word " * 100
    assert used(text) == used("") + len(text) + MESSAGE_OVERHEAD + 2


def test_a_later_call_is_bounded_although_fewer_tools_were_offered_before() -> None:
    heavy = ToolTraits(name="heavy", described_bytes=3_000)
    run = Run(ExecutionBudget(max_tokens=20_000), tools=("echo", heavy), hooks=HOOKS[:1]).begin()
    run.hooked(Changes(model_call=ModelCallChanges(tools=("echo",)))).answer("", call("a", "echo")).returns("a")
    reserved = run.hooked().model_call.input_max
    assert reserved is not None
    assert reserved >= 100 + 3_000 + TOOL_OVERHEAD


def test_what_another_model_counted_is_no_bound_for_this_one() -> None:
    run = Run(ExecutionBudget(max_tokens=20_000), llm=OWN, hooks=HOOKS[:1]).begin("word " * 600)
    run.hooked(Changes(model_call=LARGE)).answer("", call("a", "echo")).returns("a")
    reserved = run.hooked().model_call.input_max
    assert reserved is not None
    assert reserved > 3_000, "the 100 tokens were counted by another model"
    run = Run(ExecutionBudget(max_tokens=20_000), llm=OWN, hooks=HOOKS[:1]).begin("word " * 600).hooked()
    reserved = run.answer("", call("a", "echo")).returns("a").hooked().model_call.input_max
    assert reserved is not None
    assert reserved < 1_000


def test_a_changed_model_without_a_price_is_refused_where_that_is_wanted() -> None:
    run = run_with(ModelCallChanges(model="new"), budget=ExecutionBudget(unpriced="refuse"))
    assert run.ended == FAILED
    assert run.wanted(CallModel) == ()
    assert run.state.errors[0].type == "PriceUnknown"


def test_a_call_that_a_small_window_cannot_hold_is_not_made() -> None:
    run = run_with(ModelCallChanges(model="tiny", context_window=10, prompt="word " * 100))
    assert run.ended == FAILED
    assert run.state.errors[0].type == "ContextTooLong"
    assert "'tiny'" in run.state.errors[0].message


def test_a_summary_is_made_by_the_agents_own_model_at_its_prices() -> None:
    policy = ContextPolicy(summary=SummaryPolicy(above_input_tokens=50, keep_messages=0))
    run = Run(llm=OWN, hooks=HOOKS[:1], context=policy).begin().hooked().answer("", call("a")).returns("a")
    run.hooked(Changes(model_call=LARGE))
    assert run.wanted(SummariseBuffer)
    before = run.state.cost
    run.summarises(usage=Usage(input_tokens=1_000, output_tokens=10))
    assert run.state.cost - before == pytest.approx(CHEAP.cost(Usage(input_tokens=1_000, output_tokens=10)))
    assert run.model_call.llm is not None
    assert run.model_call.llm.model == "large"


def test_a_call_that_was_not_made_before_a_stop_leaves_no_changes() -> None:
    policy = ContextPolicy(summary=SummaryPolicy(above_input_tokens=50, keep_messages=0))
    run = Run(llm=OWN, hooks=HOOKS[:1], context=policy).begin().hooked().answer("", call("a")).returns("a")
    run.hooked(Changes(model_call=LARGE))
    assert run.stop().ended == stopped(StopReason.USER_REQUESTED)
    step = run.state.running.current_step
    assert step is not None
    assert step.model_call_changes is None


def test_a_forced_tool_call_of_a_hook_holds_for_the_call_that_it_is_about() -> None:
    run = run_with(ModelCallChanges()).answer("", call("a")).returns("a")
    run.hooked(Changes(model_call=ModelCallChanges(options={"tool_choice": "echo"})))
    assert run.model_call.llm is not None
    assert run.model_call.llm.tool_choice == "echo"


def test_options_that_are_none_or_have_wrong_values_are_refused_with_their_names() -> None:
    with pytest.raises(ValueError, match=r"there is no option 'temprature'; did you mean 'temperature'\?"):
        Changes(model_call=ModelCallChanges(options={"temprature": 1}))
    with pytest.raises(ValueError, match="options: temperature: Input should be less than or equal to 2"):
        Changes(model_call=ModelCallChanges(options={"temperature": 3}))
    with pytest.raises(ValueError, match="'messages' is set by the run itself"):
        Changes(model_call=ModelCallChanges(options={"extra": {"messages": []}}))
    with pytest.raises(ValueError, match="there is no option 'prices'"):
        Changes(model_call=ModelCallChanges(options={"prices": None}))
    assert set(OPTIONS) < set(CALL_OPTIONS)


def test_tools_that_are_not_there_are_refused_with_the_nearest_name() -> None:
    problem = problem_with_model_call(OWN, ("add", "echo"), ModelCallChanges(tools=("ech",)))
    assert problem == "the model cannot be offered the tool 'ech', which is not there; did you mean 'echo'?"
    forced = ModelCallChanges(options={"tool_choice": "add"}, tools=("echo",))
    problem = problem_with_model_call(OWN, ("add", "echo"), forced)
    assert problem == "tool_choice forces a call of 'add', which the model would not be offered"
    assert problem_with_model_call(OWN, ("add", "echo"), ModelCallChanges(tools=())) is None


def test_a_hook_elsewhere_cannot_change_a_model_call() -> None:
    changes = Changes(model_call=LARGE)
    assert problem_with(Trigger.BEFORE_INFERENCE, changes) is None
    for trigger in set(Trigger) - {Trigger.BEFORE_INFERENCE}:
        problem = problem_with(trigger, changes)
        assert problem == f"only a before_inference hook can change the model call, this is {trigger}"


def test_the_difference_to_a_definition_is_all_that_travels() -> None:
    own = replace_llm(OWN, extra={"a": "b" * 10_000})
    changed = own.changed_by(ModelCallChanges(model="large", prices=DEAR, options={"temperature": None, "seed": 7}))
    assert own.difference(changed) == {"model": "large", "temperature": None, "seed": 7}
    again = own.with_difference(own.difference(changed))
    assert (again.model, again.temperature, again.seed, again.extra) == ("large", None, 7, own.extra)
    assert own.difference(own) == {}


def test_true_in_place_of_1_is_a_difference() -> None:
    own = replace_llm(OWN, extra={"a": 1}, server_tools=({"type": "web_fetch", "options": {"use_cache": 1}},))
    changed = replace_llm(own, extra={"a": True}, server_tools=({"type": "web_fetch", "options": {"use_cache": True}},))
    again = own.with_difference(own.difference(changed))
    assert again.model_dump_json() == changed.model_dump_json() != own.model_dump_json()


def test_every_field_that_travels_comes_back_whether_it_is_set_or_unset() -> None:
    unset, values = LLM(), dict[str, object](
        model="x", temperature=0.5, max_output_tokens=5, stream=False, top_p=0.3, reasoning_effort="low",
        verbosity="low", stop=["a"], seed=3, tool_choice="none", parallel_tool_calls=False, strict=False,
        service_tier="flex", extra={"k": {"n": None}}, background=False, server_tools=["web_search"],
        context_window=99,
    )  # fmt: skip
    assert {*values, *UNSENT} == set(LLM.model_fields), "a new field needs a value here"
    full = LLM.model_validate(values)
    for one, other in ((unset, full), (full, unset)):
        assert one.with_difference(one.difference(other)) == other


def replace_llm(llm: LLM, **fields: object) -> LLM:
    return LLM.model_validate({**llm.model_dump(), **fields})


def test_a_changed_model_has_the_longest_answer_of_its_own() -> None:
    own = replace(OWN, longest_answer=2_000)
    assert run_with(LARGE, llm=own).model_call.max_output_tokens == OUTPUT_TOKENS_MAX
    assert run_with(replace(LARGE, longest_answer=50), llm=own).model_call.max_output_tokens == 50
    kept = run_with(ModelCallChanges(options={"max_output_tokens": 5_000}), llm=own).model_call
    assert kept.max_output_tokens == 2_000


def test_what_a_changed_call_falls_back_to_costs_what_the_change_says() -> None:
    flex = ModelCallChanges(options={"service_tier": "flex"}, prices=CHEAP, fallback_prices={"b": DEAR})
    usual = ModelCallChanges(options={"service_tier": None}, fallback_prices={"b": CHEAP})
    used = Usage(input_tokens=100, output_tokens=20)
    for changes, prices in (((flex,), DEAR), ((flex, usual), CHEAP), ((replace_model("large"), flex), DEAR)):
        run = run_with(*changes).model_fails(AWAY)
        while run.model_call.may_fall_back:
            run.model_fails(AWAY)
        run.answer("done", usage=used)
        assert run.state.cost == pytest.approx(prices.cost(used))


def test_the_next_call_falls_back_at_its_own_prices() -> None:
    llm = replace(OWN, fallback=(FallbackRoute(model="b", prices=CHEAP),))
    run = run_with(ModelCallChanges(options={"service_tier": "flex"}, fallback_prices={"b": DEAR}), llm=llm)
    run.answer("", call("a"), usage=Usage()).returns("a").hooked().model_fails(AWAY)
    used = Usage(input_tokens=100, output_tokens=20)
    assert run.answer("done", usage=used).state.cost == pytest.approx(CHEAP.cost(used))
