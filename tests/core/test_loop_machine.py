"""Random events against the loop; `Run.feed` checks every rule of `invariants` after each of them."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.core.budget import ExecutionBudget
from holdfast.core.commands import CallModel, CallTool, CancelInFlight, StartTimer
from holdfast.core.events import StopMode
from holdfast.core.messages import ToolCall
from holdfast.core.state import ExecutionStatus
from holdfast.core.usage import Usage
from tests.core.building import Run, call, moment

limits = st.none() | st.integers(min_value=0, max_value=4)
budgets = st.builds(
    ExecutionBudget,
    max_steps=limits,
    max_tokens=st.none() | st.integers(min_value=0, max_value=500),
    max_seconds=st.none() | st.integers(min_value=0, max_value=30).map(float),
    deadline=st.none() | st.integers(min_value=0, max_value=40).map(moment),
)
wanted_calls = st.lists(
    st.builds(
        call,
        st.sampled_from(["", "a", "b", "call_1_0", "call_2_1"]),
        st.sampled_from(["add", "echo", "ad", "nothing like it"]),
        st.sampled_from([None, None, None, "cut off"]),
    ),
    max_size=4,
)
usages = st.builds(Usage, input_tokens=st.integers(0, 100), output_tokens=st.integers(0, 100))
pauses = st.integers(min_value=0, max_value=10)
stale_ids = st.sampled_from(["a", "b", "call_1_0", "call_9_9", ""])


class LoopMachine(RuleBasedStateMachine):
    """A shell that answers what it was asked to do, late, twice, in any order, or not at all."""

    def __init__(self) -> None:
        super().__init__()
        self.run = Run()
        self.model_asked = False
        self.open_calls: list[CallTool] = []
        self.timers: list[StartTimer] = []
        self.history: list[tuple[Any, dict[str, Any]]] = []

    @initialize(budget=budgets)
    def first(self, budget: ExecutionBudget) -> None:
        self.run = Run(budget)
        self._begin()

    @precondition(lambda self: self.run.state.status.is_terminal)
    @rule(budget=budgets)
    def again(self, budget: ExecutionBudget) -> None:
        self.run.budget = budget
        self._begin()

    @precondition(lambda self: self.model_asked)
    @rule(calls=wanted_calls, usage=usages, ending=st.sampled_from(["", "length", "content_filter"]), after=pauses)
    def model_answers(self, calls: list[ToolCall], usage: Usage, ending: str, after: int) -> None:
        self.model_asked = False
        self.run.answer("words", *calls, usage=usage, finish_reason=ending, after=after)
        self._follow()

    @precondition(lambda self: self.model_asked)
    @rule()
    def model_fails(self) -> None:
        self.model_asked = False
        self.run.model_fails()
        self._follow()

    @precondition(lambda self: self.open_calls)
    @rule(data=st.data(), ends_well=st.booleans())
    def a_tool_ends(self, data: st.DataObject, *, ends_well: bool) -> None:
        ended = data.draw(st.sampled_from(self.open_calls))
        self.open_calls.remove(ended)
        if ends_well:
            self.run.returns(ended.call.id, f"result of {ended.index}")
        else:
            self.run.fails(ended.call.id)
        self._follow()

    @rule(call_id=stale_ids)
    def a_stale_result_comes(self, call_id: str) -> None:
        if call_id not in [open_call.call.id for open_call in self.open_calls]:
            before = self.run.state
            self.run.returns(call_id, "stale")
            assert self.run.state is before

    @precondition(lambda self: not self.model_asked)
    @rule(calls=wanted_calls)
    def the_model_answers_again(self, calls: list[ToolCall]) -> None:
        before = self.run.state
        self.run.answer("late", *calls)
        assert self.run.state is before

    @rule(mode=st.sampled_from(["now", "after_step", "after_step", "after_step"]))
    def someone_stops(self, mode: StopMode) -> None:
        self.run.stop(mode=mode)
        self._follow()

    @precondition(lambda self: self.timers)
    @rule()
    def the_timer_fires(self) -> None:
        timer = self.timers.pop()
        self.run.timer(after=max(0.0, (timer.fires_at - moment(self.run.seconds)).total_seconds()))
        self._follow()

    @rule()
    def the_driver_fails(self) -> None:
        self.run.driver_fails()
        self._follow()

    @invariant()
    def every_old_state_is_still_what_it_was(self) -> None:
        assert all(state.to_dict() == dump for state, dump in self.history)

    @invariant()
    def a_run_in_progress_waits_for_something(self) -> None:
        if self.run.state.status is ExecutionStatus.IN_PROGRESS:
            assert self.model_asked or self.open_calls

    def _begin(self) -> None:
        self.model_asked, self.open_calls, self.timers = False, [], []
        self.run.begin()
        self._follow()

    def _follow(self) -> None:
        for command in self.run.commands:
            match command:
                case CallModel():
                    self.model_asked = True
                case CallTool():
                    self.open_calls.append(command)
                case StartTimer():
                    self.timers.append(command)
                case CancelInFlight():
                    self.model_asked, self.open_calls = False, []
                case _:
                    pass
        self.history = [*self.history[-3:], (self.run.state, self.run.state.to_dict())]


TestLoopMachine = LoopMachine.TestCase
TestLoopMachine.settings = settings(max_examples=150, stateful_step_count=25)
