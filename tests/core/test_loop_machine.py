"""Random events against the loop; `Run.feed` checks every rule of `invariants` after each of them.

`HOLDFAST_FUZZ_RUNS` sets how many runs are tried, `HOLDFAST_FUZZ_SEED` repeats those of a seed that was printed.
"""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import LLM, AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.hooks import Changes, HookTraits, Trigger
from holdfast.core.agent.policies import ApprovalRule, ContextPolicy, SummaryPolicy
from holdfast.core.agent.state import AgentState
from holdfast.core.base.frozen import replace
from holdfast.core.base.usage import Prices, Usage
from holdfast.core.conversation.messages import ToolCall, user_message
from holdfast.core.conversation.steps import ErrorRecord, InferenceResponse
from holdfast.core.conversation.stop_reasons import OVERRIDABLE, StopMode, StopReason
from holdfast.core.conversation.verdicts import Decision
from holdfast.core.loop.commands import (
    CallModel,
    CallTool,
    CancelInFlight,
    RequestApproval,
    SpawnSubagent,
    StartTimer,
    SummariseBuffer,
)
from holdfast.core.loop.events import ModelCancelled, RunContinued
from holdfast.core.loop.start import may_change, rests
from holdfast.core.tools.tool_traits import ToolTraits
from tests.core.building import BOOM, Run, call, handoff, moment, spawn

RUNS = int(os.environ.get("HOLDFAST_FUZZ_RUNS", "60"))
SEED = int(os.environ.get("HOLDFAST_FUZZ_SEED", str(random.SystemRandom().randrange(10**9))))

TOOLS = (
    ToolTraits(name="add"),
    ToolTraits(name="echo"),
    ToolTraits(name="pay", at_most_once=True),
    ToolTraits(name="lift", sequential=True),
)
CHILDREN = (
    AgentDefinition(name="helper", budget=ExecutionBudget(max_tokens=300, max_steps=5)),
    AgentDefinition(name="rich", budget_policy="own"),
)

budgets = st.builds(
    ExecutionBudget,
    max_steps=st.sampled_from([None, None, None, None, 1, 2, 4, 0]),
    max_tokens=st.sampled_from([None, None, None, None, 900, 400, 100, 0]),
    max_seconds=st.sampled_from([None, None, None, None, 60.0, 20.0, 0.0]),
    max_cost=st.sampled_from([None, None, None, None, 5.0, 0.01, 0.002, 0.0]),
    deadline=st.sampled_from([None, None, None, None, moment(60), moment(5)]),
)
wanted_calls = st.lists(
    st.builds(
        call,
        st.sampled_from(["", "a", "b", "call_1_0", "call_2_1"]),
        st.sampled_from(["add", "echo", "pay", "lift", "ad", "nothing like it"]),
        st.sampled_from([None, None, None, "cut off"]),
    )
    | st.builds(spawn, st.sampled_from(["", "a", "c"]), st.sampled_from(["helper", "rich", "helpr"]))
    | st.builds(handoff, st.sampled_from(["", "b"]), st.sampled_from(["helper", "rich", "helpr"])),
    max_size=4,
)
rarely = st.integers(0, 4).map(lambda number: number == 4)
usages = st.builds(Usage, input_tokens=st.integers(0, 100), output_tokens=st.integers(0, 100))
pauses = st.integers(0, 10)
call_ids = st.sampled_from(["a", "b", "c", "call_1_0", "call_9_9", ""])
hook_lists = st.lists(
    st.builds(
        HookTraits,
        name=st.sampled_from(["one", "two", "three"]),
        trigger=st.sampled_from(list(Trigger)),
        priority=st.integers(-1, 1),
    ),
    max_size=4,
)
rules: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "sequential": st.booleans(),
        "errors": st.sampled_from(["recover", "fatal"]),
        "pause_while_waiting": st.booleans(),
        "approvals": st.sampled_from(
            [
                (ApprovalRule(tools=("pay", "spawn")),),
                (ApprovalRule(tools=("*",), expires_seconds=5),),
            ]
        ),
        "overridable": st.sampled_from([(), OVERRIDABLE, tuple(StopReason)]),
        "max_overrides": st.integers(0, 3),
        "max_depth": st.integers(0, 2),
        "reasks_max": st.integers(0, 2),
        "llm": st.sampled_from([LLM(prices=Prices(input_usd=5, output_usd=20)), LLM(max_output_tokens=50)]),
        "context": st.just(ContextPolicy(summary=SummaryPolicy(above_input_tokens=60, keep_messages=2))),
    },
)
changes = st.builds(
    Changes,
    metadata=st.sampled_from([{}, {"seen": 1}, {"seen": None}]),
    messages=st.sampled_from([(), (), (user_message("from a hook"),)]),
    stop=st.sampled_from([None, None, None, "a hook says so"]),
    stop_reason=st.sampled_from(["stop_requested", "because", *(reason.value for reason in StopReason)]),
    go_on=st.booleans(),
)
call_changes = st.builds(
    Changes,
    arguments=st.sampled_from([None, {"a": 2}, {"agent": "helper", "task": "else"}]),
    block=st.sampled_from([None, None, "not now"]),
    stop=st.sampled_from([None, None, "after this one"]),
)


class LoopMachine(RuleBasedStateMachine):
    """A shell that answers what it was asked to do, late, twice, in any order, or not at all."""

    def __init__(self) -> None:
        super().__init__()
        self.run = Run()
        self.history: list[tuple[Any, dict[str, Any]]] = []
        self._forget()

    def _forget(self) -> None:
        self.model_asked = self.summary_asked = False
        self.tools: list[CallTool] = []
        self.children: list[SpawnSubagent] = []
        self.questions: list[RequestApproval] = []
        self.timer: StartTimer | None = None

    @initialize(budget=budgets, hooks=hook_lists, rules=rules, grace=st.booleans(), steps=st.booleans())
    def first(
        self, budget: ExecutionBudget, hooks: list[HookTraits], rules: dict[str, Any], *, grace: bool, steps: bool
    ) -> None:
        parts: dict[str, Any] = {"tools": TOOLS, "hooks": hooks, "subagents": CHILDREN, "step_by_step": steps}
        self.run = Run(budget, observed=bool(budget.max_steps), handoffs=CHILDREN, **parts, **rules)
        self.run.grace = grace
        self._begin()

    @precondition(lambda self: self.run.state.status.is_terminal)
    @rule(budget=budgets)
    def again(self, budget: ExecutionBudget) -> None:
        self.run.budget = budget
        self._begin()

    @precondition(lambda self: self.run.state.status is ExecutionStatus.IN_PROGRESS)
    @rule(said=st.lists(st.just("and this"), max_size=1))
    def everything_restarts(self, said: list[str]) -> None:
        before = self.run.state.running
        ended = {each.call.id for each in (before.current_step.tool_executions if before.current_step else ())}
        self._forget()
        self.run.resume(*said)
        assert self.run.state.running.execution_id == before.execution_id
        self._follow()
        assert not ended & {each.call.id for each in self.tools}, "a call that has ended was asked for again"
        assert "pay" not in {each.call.name for each in self.tools} or not any(
            each.call.name == "pay" and each.stage == "running" for each in before.open_calls
        ), "a call that must not be repeated was"

    @precondition(lambda self: self.model_asked)
    @rule()
    def another_run_goes_on(self) -> None:
        asked = self.run.commands
        self._forget()
        self.run.state = AgentState.from_json(self.run.state.to_json())
        self.run.feed(RunContinued(self.run.tick(0)))
        self._follow()
        assert self.model_asked or not asked or self.run.state.status.is_terminal or self.run.hooks_asked

    @precondition(lambda self: may_change(self.run.state, ()))
    @rule(
        budget=st.none() | budgets, hooks=st.none() | hook_lists, rules=rules, tools=st.sampled_from([None, TOOLS[:2]])
    )
    def the_agent_becomes_another(
        self,
        budget: ExecutionBudget | None,
        hooks: list[HookTraits] | None,
        rules: dict[str, Any],
        tools: tuple[ToolTraits, ...] | None,
    ) -> None:
        before, definition = self.run.state, self.run.loop.definition
        if budget is not None and budget.max_steps is not None:  # what was taken stays taken
            budget = replace(budget, max_steps=max(budget.max_steps, before.step_count))
        rules = {**rules, "max_overrides": max(definition.max_overrides, rules.get("max_overrides", 0))}
        if any(step.all_errors for step in before.steps):
            rules.pop("errors", None)  # an error is judged as its step ends: one that was recovered from stays so
        self._forget()
        self.run.becomes(budget, hooks=hooks, tools=tools, **rules)
        assert self.run.commands, "nothing was asked for instead of what had not begun"
        assert self.run.state.llm == self.run.loop.definition.llm
        self._follow()

    @precondition(lambda self: self.handing_over)
    @rule(hooks=hook_lists, refused=rarely)
    def the_conversation_is_handed_over(self, hooks: list[HookTraits], *, refused: bool) -> None:
        before, timer = self.run.state.running, self.timer
        self._forget()
        self.timer = timer
        if refused:
            self.run.handoff_refused()
        else:
            self.run.hands_over(handoffs=CHILDREN, hooks=hooks)
        assert self.run.commands or self.resting
        assert len(self.run.state.running.handoffs) == len(before.handoffs) + (not refused)
        self._follow()

    @precondition(lambda self: self.resting)
    @rule()
    def the_next_step_is_due(self) -> None:
        self.run.step_due()
        assert self.run.commands
        self._follow()

    @precondition(lambda self: not self.resting)
    @rule(chance=rarely)
    def a_step_is_due_while_another_is_under_way(self, *, chance: bool) -> None:
        if chance:
            before = self.run.state
            self.run.step_due()
            assert self.run.state is before or before.running.cancelling
            assert self.run.commands == ()

    @rule(chance=rarely)
    def a_change_is_refused(self, *, chance: bool) -> None:
        if chance:
            self.run.change_refused()
            assert self.run.commands == ()
            self._follow()

    @precondition(lambda self: self.cancelling)
    @rule(usage=usages, said=st.text(max_size=5))
    def what_was_cancelled_reports(self, usage: Usage, said: str) -> None:
        used, calls = self.run.state.usage, self.run.state.running.open_calls
        if calls:
            self.run.child(calls[0].call.id, status=ExecutionStatus.STOPPED, usage=usage)
        else:
            self.run.feed(ModelCancelled(InferenceResponse(text=said, usage=usage), self.run.tick()))
        assert self.run.state.usage == used + usage
        self._follow()

    @precondition(lambda self: self.model_asked)
    @rule(
        calls=wanted_calls,
        usage=usages,
        wasted=st.just(Usage()) | usages,
        ending=st.sampled_from(["", "", "length", "content_filter"]),
        problem=st.sampled_from([None, None, "no JSON"]),
        cost=st.sampled_from([None, None, 0.001]),
        after=pauses,
    )
    def model_answers(self, calls: list[ToolCall], problem: str | None, **given: Any) -> None:  # noqa: ANN401  # what was drawn
        self.model_asked = False
        given["finish_reason"] = given.pop("ending")
        self.run.answer("words", *calls, problem=None if calls else problem, **given)
        self._follow()

    @precondition(lambda self: self.model_asked)
    @rule(wasted=usages, chance=rarely)
    def model_fails(self, wasted: Usage, *, chance: bool) -> None:
        if not chance:
            return
        self.model_asked = False
        self.run.model_fails(wasted=wasted)
        self._follow()

    @precondition(lambda self: self.summary_asked)
    @rule(text=st.sampled_from(["they talked", " "]), usage=usages, ends_well=st.booleans())
    def the_summary_ends(self, text: str, usage: Usage, *, ends_well: bool) -> None:
        self.summary_asked = False
        if ends_well:
            self.run.summarises(text, usage)
        else:
            self.run.summary_fails()
        self._follow()

    @precondition(lambda self: self.tools)
    @rule(data=st.data(), ends_well=st.booleans(), stop=st.sampled_from([None, None, None, "enough"]))
    def a_tool_ends(self, data: st.DataObject, stop: str | None, *, ends_well: bool) -> None:
        ended = data.draw(st.sampled_from(self.tools))
        self.tools.remove(ended)
        if ends_well:
            self.run.returns(ended.call.id, f"result of {ended.index}", stop)
        else:
            self.run.fails(ended.call.id)
        self._follow()

    @precondition(lambda self: self.children)
    @rule(
        data=st.data(),
        status=st.sampled_from([ExecutionStatus.COMPLETED, ExecutionStatus.STOPPED, ExecutionStatus.FAILED]),
        usage=usages,
    )
    def a_child_ends(self, data: st.DataObject, status: ExecutionStatus, usage: Usage) -> None:
        ended = data.draw(st.sampled_from(self.children))
        self.children.remove(ended)
        self.run.child(ended.call_id, "found", status, why="so", usage=usage, cost=0.001)
        self._follow()

    @precondition(lambda self: self.questions)
    @rule(data=st.data(), decision=st.sampled_from(["approve", "approve", "deny", "edit", "expires"]))
    def somebody_decides(self, data: st.DataObject, decision: Decision) -> None:
        question = data.draw(st.sampled_from(self.questions))
        self.questions.remove(question)
        if decision not in ("approve", "deny", "edit"):
            self.run.expires(question.call.id)
        else:
            self.run.decide(question.call.id, decision, arguments={"a": 7} if decision == "edit" else None)
            if question.call.id in {each.call.id for each in self.run.state.waiting_calls}:
                self.questions.append(question)  # the edit fits no task for a subagent: it is dropped
        self._follow()

    @precondition(lambda self: self.run.hooks_asked)
    @rule(data=st.data(), after=st.integers(0, 2))
    def hooks_return(self, data: st.DataObject, after: int) -> None:
        asked = data.draw(st.sampled_from(self.run.hooks_asked))
        self.run.hooks_asked.remove(asked)
        self.run.hooks_asked.insert(0, asked)
        possible: st.SearchStrategy[Changes | ErrorRecord | None] = st.sampled_from([None, None, None, BOOM]) | changes
        if asked.context.trigger is Trigger.BEFORE_TOOL:
            possible |= call_changes
        self.run.hooked(*data.draw(st.lists(possible, max_size=2)), after=after)
        self._follow()

    @precondition(lambda self: self.run.state.status is ExecutionStatus.IN_PROGRESS)
    @rule(times=st.integers(1, 8), input_tokens=st.sampled_from([1, 70]))
    def all_goes_well_for_a_while(self, times: int, input_tokens: int) -> None:
        for _ in range(times):
            if self.run.hooks_asked:
                self.run.hooked()
            elif self.summary_asked:
                self.summary_asked = False
                self.run.summarises()
            elif self.questions:
                self.run.decide(self.questions.pop(0).call.id)
            elif self.tools:
                self.run.returns(self.tools.pop(0).call.id)
            elif self.children:
                self.run.child(self.children.pop(0).call_id)
            elif self.resting:
                self.run.step_due()
            elif self.model_asked:
                self.model_asked = False
                usage = Usage(input_tokens=input_tokens, output_tokens=5)
                self.run.answer("", call("a", "add"), call("b", "lift"), usage=usage)
            else:
                return
            self._follow()

    @rule(call_id=call_ids, kind=st.sampled_from(["returns", "fails", "child", "decide", "expires"]))
    def something_comes_that_nobody_waits_for(self, call_id: str, kind: str) -> None:
        running = [*(each.call.id for each in self.tools), *(each.call_id for each in self.children)]
        waiting = [each.call.id for each in self.questions]
        if self.cancelling or self._is_late() or call_id in (waiting if kind in ("decide", "expires") else running):
            return
        before = self.run.state
        getattr(self.run, kind)(call_id)
        assert self.run.state is before

    @precondition(lambda self: not self.model_asked and not self.cancelling)
    @rule(calls=wanted_calls)
    def the_model_answers_again(self, calls: list[ToolCall]) -> None:
        before = self.run.state
        self.run.answer("late", *calls).model_fails()
        assert self.run.state is before

    @rule(mode=st.sampled_from(["now", "after_step"]), chance=rarely)
    def someone_stops(self, mode: StopMode, *, chance: bool) -> None:
        if chance:
            self.run.stop(mode=mode)
            self._follow()

    @rule(chance=rarely)
    def someone_says_something(self, *, chance: bool) -> None:
        if chance:
            self.run.says("by the way")
            self._follow()

    @precondition(lambda self: self.timer)
    @rule(chance=rarely)
    def the_timer_fires(self, *, chance: bool) -> None:
        if not chance:
            return
        timer, self.timer = self.timer, None
        assert timer is not None
        self.run.timer(after=max(0.0, (timer.fires_at - moment(self.run.seconds)).total_seconds()))
        self._follow()

    @rule(chance=rarely)
    def a_timer_of_long_ago_fires(self, *, chance: bool) -> None:
        before = self.run.state
        strikes_at = before.execution.time_limit_at if before.execution else None
        if chance and (strikes_at is None or moment(self.run.seconds) < strikes_at):
            self.run.timer(after=0)
            assert self.run.state is before

    @rule(chance=rarely)
    def the_driver_fails(self, *, chance: bool) -> None:
        if chance:
            self.run.driver_fails()
            self._follow()

    @invariant()
    def every_old_state_is_still_what_it_was(self) -> None:
        assert all(state.to_dict() == dump for state, dump in self.history)

    @invariant()
    def a_run_in_progress_waits_for_something(self) -> None:
        if self.run.state.status is ExecutionStatus.IN_PROGRESS:
            asked = (self.model_asked, self.summary_asked, self.tools, self.children, self.questions, self.handing_over)
            assert any(asked) or self.run.hooks_asked or self.cancelling or self._is_late() or self.resting

    @invariant()
    def the_time_limit_has_its_timer(self) -> None:
        execution = self.run.state.execution
        if execution is not None and execution.status is ExecutionStatus.IN_PROGRESS and self.timer is not None:
            assert execution.paused_at is not None or self.timer.fires_at == execution.time_limit_at

    @property
    def resting(self) -> bool:
        execution = self.run.state.execution
        return self.run.loop.step_by_step and execution is not None and rests(execution)

    @property
    def handing_over(self) -> bool:
        """Whether the driver is asked to hand the conversation over."""
        execution = self.run.state.execution
        if execution is None or execution.status.is_terminal:
            return False
        return execution.handing_over is not None and execution.current_step is None

    @property
    def cancelling(self) -> bool:
        return self.run.state.execution is not None and self.run.state.execution.cancelling

    def _is_late(self) -> bool:
        """Nothing begins any more, but the timer's own event comes behind others of its moment."""
        execution = self.run.state.execution
        strikes_at = execution.time_limit_at if execution else None
        return strikes_at is not None and self.run.tick(0) >= strikes_at

    def _begin(self) -> None:
        self._forget()
        self.run.begin()
        self._follow()

    def _follow(self) -> None:
        for command in self.run.commands:
            match command:
                case CallModel():
                    self.model_asked = True
                case SummariseBuffer():
                    self.summary_asked = True
                case CallTool():
                    self.tools.append(command)
                case SpawnSubagent():
                    self.children.append(command)
                case RequestApproval():
                    self.questions.append(command)
                case StartTimer():
                    self.timer = command
                case CancelInFlight():
                    timer = self.timer
                    self._forget()
                    self.timer = timer
                case _:
                    pass
        self.history = [*self.history[-2:], (self.run.state, self.run.state.to_dict())]


@pytest.mark.hypothesis
@pytest.mark.timeout(3_600)
def test_whatever_happens_the_rules_hold() -> None:
    print(f"{RUNS} runs with HOLDFAST_FUZZ_SEED={SEED}")  # noqa: T201  # a random test tells its seed
    run_state_machine_as_test(
        seed(SEED)(LoopMachine),
        settings=settings(
            max_examples=RUNS,
            deadline=None,
            stateful_step_count=60,
            database=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
        ),
    )
