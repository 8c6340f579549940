"""Hooks at each of their ten places: when they run, what they are told, what they change, what one that raises does."""

from __future__ import annotations

import pytest

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.hooks import Changes, HookTraits, Trigger
from holdfast.core.base.bounds import MESSAGES_WAITING_MAX, OUTPUT_TOKENS_MAX
from holdfast.core.conversation.messages import ToolCall, user_message
from holdfast.core.conversation.steps import ErrorRecord
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.loop.commands import CallModel, CallTool, CancelInFlight, Finish, RunHooks, StartTimer
from tests.core.building import BOOM, COMPLETED, FAILED, Run, call, hook_at, moment, stopped

EVERYWHERE = [hook_at(trigger) for trigger in Trigger]
RAISED = ErrorRecord(type="HookFailed", message="the hook 'bad' raised LookupError: nothing there", source="bad")
IN_A_RUN = tuple(trigger for trigger in Trigger if trigger is not Trigger.ON_ERROR)
NOTED = Changes(metadata={"noted": True})


def led(run: Run, *, until: Trigger | None = None) -> list[str]:
    """Lead a run of one tool call and an answer to its end, or up to the first hooks at `until`; return the places."""
    places: list[str] = []
    for _ in range(100):
        if run.state.status.is_terminal:
            return places
        if run.hooks_asked:
            trigger = run.hooks_asked[0].context.trigger
            if trigger is until:
                return places
            places.append(trigger.value)
            run.hooked()
        elif run.wanted(CallTool):
            places.append("tool")
            run.returns("a")
        else:
            places.append("model")
            run.answer("", call("a")) if run.state.step_count == 0 else run.answer("done")
    raise AssertionError("the run does not end")


def test_hooks_run_at_every_place_of_a_run_in_the_order_of_the_specification() -> None:
    assert led(Run(hooks=EVERYWHERE).begin()) == [
        "before_execution",
        *("before_step", "before_inference", "input_guard", "model", "after_inference"),
        *("before_tool", "tool", "after_tool", "after_step"),
        *("before_step", "before_inference", "model", "after_inference", "after_step"),
        "on_stop",
        "after_execution",
    ]


def test_after_an_error_on_error_takes_the_place_of_on_stop() -> None:
    run = Run(hooks=[hook_at("on_error"), hook_at("on_stop"), hook_at("after_execution")]).begin().model_fails()
    assert run.hook_context.trigger is Trigger.ON_ERROR
    assert run.hook_context.error == BOOM
    assert run.hooked().hook_context.trigger is Trigger.AFTER_EXECUTION
    assert run.hooked().ended == FAILED


def test_a_hook_is_told_what_it_may_know() -> None:
    run = Run(ExecutionBudget(max_steps=3), hooks=[hook_at("after_step")], metadata={"team": "blue"}).begin("What?")
    context = run.answer("", call("a")).returns("a", after=0).hook_context
    assert (context.trigger, context.agent, context.step_number) == (Trigger.AFTER_STEP, "tester", 1)
    assert (context.agent_id, context.execution_id) == (run.state.agent_id, run.state.running.execution_id)
    assert context.metadata == {"agent": "tester", "team": "blue"}
    assert [message.text for message in context.messages] == ["What?"]
    assert (context.usage, context.cost, context.at) == (run.state.usage, 0.0, moment(2))
    assert context.budget_remaining.max_steps == 3
    assert context.response is not None
    assert context.response.tool_calls == (call("a"),)
    assert (context.call, context.tool_execution, context.error, context.stop_signals) == (None, None, None, ())


@pytest.mark.parametrize("trigger", ["before_execution", "before_step", "before_inference"])
def test_before_the_model_has_answered_there_is_no_response(trigger: str) -> None:
    assert Run(hooks=[hook_at(trigger)]).begin().hook_context.response is None


def test_hooks_around_a_tool_are_told_the_call_and_its_end() -> None:
    run = Run(hooks=[hook_at("before_tool"), hook_at("after_tool")]).begin().answer("", call("a"), call("b"))
    assert [each.context.call for each in run.wanted(RunHooks)] == [call("a"), call("b")]
    assert all(each.context.tool_execution is None for each in run.wanted(RunHooks))
    run.hooked(about="b").hooked(about="a").returns("b", "3")
    context = run.hook_context
    assert context.call == call("b")
    assert context.tool_execution is not None
    assert (context.tool_execution.result, context.tool_execution.outcome) == ("3", "succeeded")
    assert run.hooked(about="b").commands == ()
    run.fails("a")
    assert run.hook_context.tool_execution is not None
    assert run.hook_context.tool_execution.error == BOOM


def test_higher_priority_goes_first_and_among_equals_the_one_registered_first() -> None:
    hooks = [
        hook_at("before_step", name, priority=priority) for name, priority in [("a", 0), ("b", 5), ("c", 0), ("d", 9)]
    ]
    (asked,) = Run(hooks=hooks).begin().wanted(RunHooks)
    assert [traits.name for traits in asked.hooks] == ["d", "b", "a", "c"]


def test_a_hook_for_some_tools_runs_around_their_calls_only() -> None:
    run = Run(hooks=[hook_at("before_tool", tools=("ec*",)), hook_at("before_tool", "all")]).begin()
    run.answer("", call("a"), call("b", "echo"))
    assert [[traits.name for traits in asked.hooks] for asked in run.wanted(RunHooks)] == [
        ["all"],
        ["at_before_tool", "all"],
    ]


def test_no_hooks_run_around_a_call_that_cannot_run() -> None:
    run = Run(hooks=[hook_at("before_tool"), hook_at("after_tool")]).begin()
    run.answer("", call("a", "nope"), call("b", malformed="cut off"))
    assert run.wanted(RunHooks) == ()
    assert run.model_call.step_number == 2


def test_the_runs_of_hooks_have_names_that_differ_and_stay_the_same() -> None:
    names: list[str] = []
    run = Run(hooks=EVERYWHERE).begin()
    while run.hooks_asked or not run.state.status.is_terminal:
        if run.hooks_asked:
            names.append(run.hooks_asked[0].name)
            run.hooked()
        elif run.called:
            run.returns("a")
        else:
            run.answer("", call("a")) if run.state.step_count == 0 else run.answer("done")
    assert len(set(names)) == len(names)
    assert names[:3] == ["step-0-before_execution", "step-0-before_step", "step-1-before_inference"]


@pytest.mark.parametrize("trigger", IN_A_RUN)
def test_what_a_hook_notes_is_kept_wherever_it_runs(trigger: Trigger) -> None:
    run = Run(hooks=[hook_at(trigger)], metadata={"old": 1}).begin()
    led(run, until=trigger)
    run.hooked(Changes(metadata={"noted": True, "old": None}))
    assert run.state.metadata == {"agent": "tester", "noted": True}
    led(run)
    assert run.state.metadata == {"agent": "tester", "noted": True}


@pytest.mark.parametrize("trigger", IN_A_RUN)
def test_what_a_hook_says_is_kept_wherever_it_runs(trigger: Trigger) -> None:
    run = Run(hooks=[hook_at(trigger)]).begin()
    led(run, until=trigger)
    run.hooked(Changes(messages=(user_message("mind the gap"),)))
    led(run)
    assert run.said.count("mind the gap") == 1
    assert run.state.final_response == "done"


@pytest.mark.parametrize("trigger", IN_A_RUN)
def test_a_stop_that_a_hook_asks_for_is_kept_and_decides_wherever_it_runs(trigger: Trigger) -> None:
    run = Run(hooks=[hook_at(trigger)]).begin()
    led(run, until=trigger)
    run.hooked(Changes(stop="not today"))
    led(run)
    assert run.ended == stopped(StopReason.STOP_REQUESTED)
    assert run.state.stop_signal is not None
    assert (run.state.stop_signal.message, run.state.stop_signal.source) == ("not today", f"at_{trigger}")


@pytest.mark.parametrize(
    ("trigger", "steps", "went"),
    [
        ("before_execution", 0, []),
        ("before_step", 0, []),
        ("before_inference", 1, ["model"]),
        ("after_inference", 1, []),
        ("before_tool", 1, ["tool"]),
        ("after_tool", 1, []),
        ("after_step", 1, []),
    ],
)
def test_a_stop_holds_from_the_next_checkpoint_on(trigger: str, steps: int, went: list[str]) -> None:
    run = Run(hooks=[hook_at(trigger)]).begin()
    led(run, until=Trigger(trigger))
    run.hooked(Changes(stop="not today"))
    assert led(run) == went
    assert run.state.step_count == steps


def test_an_answer_stopped_before_its_tools_has_them_all_cancelled() -> None:
    run = Run(hooks=[hook_at("after_inference")]).begin().answer("", call("a"), call("b")).hooked(Changes(stop="no"))
    assert run.outcomes == [("a", "cancelled"), ("b", "cancelled")]


@pytest.mark.parametrize("reason", StopReason)
def test_a_hook_can_stop_under_any_reason_by_its_name(reason: StopReason) -> None:
    run = Run(hooks=[hook_at("before_execution")]).begin().hooked(Changes(stop="so", stop_reason=reason.value))
    assert run.state.stop_reason is reason
    status = ExecutionStatus.STOPPED if reason.forced else ExecutionStatus.COMPLETED
    assert run.state.status is (ExecutionStatus.FAILED if reason is StopReason.ERROR else status)


def test_a_reason_that_is_none_of_ours_counts_as_unknown_and_is_told() -> None:
    run = Run(hooks=[hook_at("before_execution")]).begin().hooked(Changes(stop="so", stop_reason="because"))
    assert run.ended == stopped(StopReason.UNKNOWN)
    assert run.state.stop_signal is not None
    assert run.state.stop_signal.context == {"given": "because", "hook": "at_before_execution"}


def test_a_blocked_call_does_not_run_and_the_model_is_told_by_whom_and_why() -> None:
    run = Run(hooks=[hook_at("before_tool", "guard")]).begin().answer("", call("a"), call("b"))
    run.hooked(Changes(block="not on Sundays"), about="a").hooked(about="b")
    assert run.called == ["b"]
    run.returns("b")
    assert run.answers["a"] == "Error (ToolExecutionBlocked): blocked by the hook 'guard': not on Sundays"
    assert run.outcomes == [("a", "blocked"), ("b", "succeeded")]
    assert run.state.last_step is not None
    assert run.state.last_step.executed_tool_calls == (call("b"),)
    assert run.state.last_step_tool_executions[0].was_blocked
    assert not run.state.has_errors


def test_no_after_tool_hooks_run_for_a_blocked_call() -> None:
    run = Run(hooks=[hook_at("before_tool"), hook_at("after_tool")]).begin().answer("", call("a"))
    run.hooked(Changes(block="no"))
    assert run.wanted(RunHooks) == ()
    assert run.model_call.step_number == 2


def test_changed_arguments_are_what_runs_and_what_the_record_says_and_not_what_the_model_said() -> None:
    run = Run(hooks=[hook_at("before_tool", "one"), hook_at("before_tool", "two")]).begin().answer("", call("a"))
    run.hooked(Changes(arguments={"a": 2}), Changes(arguments={"a": 3}))
    (command,) = run.wanted(CallTool)
    assert command.call == ToolCall(id="a", name="add", arguments={"a": 3})
    run.returns("a")
    (execution,) = run.state.last_step_tool_executions
    assert execution.call.arguments == {"a": 3}
    assert [m.tool_calls for m in run.state.messages if m.tool_calls] == [(call("a"),)]


def test_what_earlier_hooks_of_a_place_changed_is_kept_when_a_later_one_raises() -> None:
    run = Run(hooks=[hook_at("after_tool", "one"), hook_at("after_tool", "two")]).begin().answer("", call("a"))
    run.returns("a").hooked(NOTED, RAISED)
    assert run.ended == FAILED
    assert run.state.metadata["noted"] is True
    assert run.outcomes == [("a", "succeeded")], "the call had ended"


@pytest.mark.parametrize("trigger", [each for each in IN_A_RUN if each is not Trigger.AFTER_EXECUTION])
def test_a_hook_that_raises_fails_the_run_with_its_name_and_the_last_hooks_still_run(trigger: Trigger) -> None:
    hooks = [hook_at(trigger, "bad"), hook_at("on_error"), hook_at("after_execution")]
    run = Run(hooks=hooks).begin()
    led(run, until=trigger)
    run.hooked(RAISED)
    assert led(run) == ["on_error", "after_execution"]
    assert run.ended == FAILED
    assert run.state.errors == (RAISED,)
    assert run.state.stop_signal is not None
    assert "'bad'" in run.state.stop_signal.message


def test_a_hook_that_raises_around_one_call_cancels_the_others() -> None:
    run = Run(hooks=[hook_at("before_tool", "bad", tools=("echo",))]).begin()
    run.answer("", call("a"), call("b", "echo"), call("c"))
    run.returns("a").hooked(RAISED)
    assert run.commands == (CancelInFlight(), Finish())
    assert run.ended == FAILED
    assert run.outcomes == [("a", "succeeded"), ("b", "cancelled"), ("c", "cancelled")]


def test_a_last_hook_that_raises_fails_the_run_and_no_hook_runs_behind_it() -> None:
    run = Run(hooks=[hook_at("after_execution", "bad"), hook_at("on_error")]).begin().answer("done").hooked(RAISED)
    assert run.commands == (Finish(),)
    assert run.ended == FAILED
    assert run.state.current_response == "done"


def test_a_hook_that_raises_on_error_leaves_the_first_error_and_is_told_as_a_warning() -> None:
    run = Run(hooks=[hook_at("on_error", "bad"), hook_at("after_execution")]).begin().model_fails().hooked(RAISED)
    assert led(run) == ["after_execution"]
    assert run.ended == FAILED
    assert run.state.errors == (BOOM,)
    assert run.state.warnings == (f"{RAISED.type}: {RAISED.message}",)


def test_no_run_is_endless_however_many_of_the_last_hooks_raise() -> None:
    run = Run(hooks=[hook_at(trigger, f"bad_{trigger}") for trigger in ("on_stop", "on_error", "after_execution")])
    run.begin().answer("done")
    for _ in range(3):
        run.hooked(RAISED)
    assert run.ended == FAILED


@pytest.mark.parametrize("trigger", IN_A_RUN)
def test_a_stop_from_outside_while_hooks_run_ends_the_run_unless_it_is_ending_already(trigger: Trigger) -> None:
    run = Run(hooks=[hook_at(trigger)]).begin()
    led(run, until=trigger)
    run.stop()
    ending = trigger in (Trigger.ON_STOP, Trigger.AFTER_EXECUTION)
    assert run.wanted(CancelInFlight) == (() if ending else (CancelInFlight(),))
    led(run)
    assert run.ended == (COMPLETED if ending else stopped(StopReason.USER_REQUESTED))


def test_hooks_that_return_too_late_change_nothing() -> None:
    run = Run(hooks=[hook_at("before_step")]).begin()
    (asked,) = run.hooks_asked
    ended = run.stop().state
    run.hooks_asked.append(asked)
    run.hooked(NOTED)
    assert run.state is ended


def test_the_time_limit_holds_while_hooks_run() -> None:
    run = Run(ExecutionBudget(max_seconds=5), hooks=[hook_at("before_execution")]).begin()
    assert run.wanted(StartTimer) == (StartTimer(moment(6)),)
    assert run.timer(5).ended == stopped(StopReason.TIME_LIMIT)


def test_a_driver_that_fails_during_the_last_hooks_ends_the_run_at_once() -> None:
    run = Run(hooks=[hook_at("on_stop"), hook_at("after_execution")]).begin().answer("done").driver_fails()
    assert run.commands == (CancelInFlight(), Finish())
    assert run.ended == FAILED


# --- going on


def test_a_request_to_go_on_leads_from_an_answer_to_another_step() -> None:
    run = Run(hooks=[hook_at("after_step")]).begin().answer("half of it").hooked(Changes(go_on=True))
    assert run.model_call.step_number == 2
    run.answer("all of it").hooked()
    assert run.ended == COMPLETED
    assert run.state.final_response == "all of it"


@pytest.mark.parametrize("times", [0, 1, 3])
def test_requests_to_go_on_are_granted_so_often_and_no_more(times: int) -> None:
    run = Run(hooks=[hook_at("after_step")], max_overrides=times).begin()
    for number in range(10):
        run.answer(f"answer {number}").hooked(Changes(go_on=True))
        if run.state.status.is_terminal:
            break
    assert run.state.step_count == times + 1
    assert run.state.running.continuation.overrides == times
    assert run.ended == COMPLETED


def test_an_overridden_step_limit_lets_one_whole_step_run_and_decides_in_the_end() -> None:
    run = Run(ExecutionBudget(max_steps=1), hooks=[hook_at("after_step")], max_overrides=1).begin()
    run.answer("", call("a")).returns("a").hooked(Changes(go_on=True))
    assert run.model_call.step_number == 2
    run.answer("", call("b"))
    assert run.called == ["b"], "the step that was allowed is a whole one"
    run.returns("b").hooked(Changes(go_on=True))
    assert run.ended == stopped(StopReason.STEPS_LIMIT)
    assert run.signals == ["steps_limit"]


def test_an_overridden_early_end_is_answered_for_good_and_still_names_the_reason() -> None:
    run = Run(hooks=[hook_at("after_step")]).begin().answer("I was about to s", finish_reason="length")
    run.hooked(Changes(go_on=True)).answer("ay this").hooked()
    assert run.ended == (ExecutionStatus.COMPLETED, StopReason.FINISH_REASON)
    assert run.state.final_response == "ay this"


@pytest.mark.parametrize("trigger", ["before_execution", "before_step", "before_inference", "after_inference"])
def test_a_request_of_any_place_holds_until_its_step_is_archived(trigger: str) -> None:
    run = Run(hooks=[hook_at(trigger)], max_overrides=2).begin()
    led(run, until=Trigger(trigger))
    run.hooked(Changes(go_on=True, stop="a second thought"))
    assert led(run)
    assert run.state.step_count >= 1
    assert run.ended == stopped(StopReason.STOP_REQUESTED)
    assert 1 <= run.state.running.continuation.overrides <= 2


@pytest.mark.parametrize("reason", ["error", "user_requested", "time_limit", "token_limit", "cost_limit"])
def test_hard_reasons_are_not_overridden(reason: str) -> None:
    run = Run(hooks=[hook_at("before_execution")]).begin()
    run.hooked(Changes(stop="so", stop_reason=reason, go_on=True))
    assert run.state.stop_reason == reason
    assert run.state.step_count == 0


@pytest.mark.parametrize("reason", ["error", "user_requested", "time_limit", "token_limit", "cost_limit"])
def test_a_hard_reason_that_the_definition_lists_is_overridden(reason: str) -> None:
    run = Run(hooks=[hook_at("before_execution")], overridable=(StopReason(reason),)).begin()
    run.hooked(Changes(stop="so", stop_reason=reason, go_on=True))
    assert run.wanted(CallModel)


def test_one_hard_reason_among_others_is_enough_to_stop() -> None:
    run = Run(ExecutionBudget(max_steps=1), hooks=[hook_at("after_step")]).begin().answer("", call("a"))
    run.stop(mode="after_step").returns("a").hooked(Changes(go_on=True))
    assert run.state.status is ExecutionStatus.STOPPED
    assert run.state.step_count == 1


def test_a_new_stop_ends_the_step_that_an_override_allowed() -> None:
    run = Run(hooks=[hook_at("after_step"), hook_at("after_inference")], max_overrides=3).begin()
    run.answer("", call("a")).hooked().returns("a", stop="done").hooked(Changes(go_on=True))
    run.answer("", call("b")).hooked(Changes(stop="that is really enough"))
    assert run.wanted(CallTool) == ()
    assert run.hooked().ended == stopped(StopReason.STOP_REQUESTED)
    assert run.outcomes == [("b", "cancelled")]


def test_a_step_that_runs_by_itself_uses_no_override_of_the_one_before_it() -> None:
    run = Run(hooks=[hook_at("after_step"), hook_at("before_step")], max_overrides=1).begin().hooked()
    run.answer("half of it").hooked(Changes(go_on=True)).hooked()
    run.answer("", call("a")).returns("a").hooked()
    run.hooked(Changes(stop="enough", go_on=True))
    assert run.ended == stopped(StopReason.STOP_REQUESTED)
    assert run.state.step_count == 2


def test_overridden_token_limits_do_not_ask_for_an_answer_of_no_length() -> None:
    run = Run(ExecutionBudget(max_tokens=100), hooks=[hook_at("after_step")], overridable=(StopReason.TOKEN_LIMIT,))
    run.begin().answer("", call("a")).hooked(Changes(go_on=True))
    assert run.model_call.max_output_tokens == OUTPUT_TOKENS_MAX


# --- what hooks say


def test_what_hooks_say_does_not_keep_the_loop_going() -> None:
    run = Run(hooks=[hook_at("after_step")]).begin().answer("done").hooked(Changes(messages=(user_message("well"),)))
    assert run.ended == COMPLETED
    assert run.said == ["Do it.", "done", "well"]


def test_what_a_hook_says_before_the_model_call_is_seen_by_it() -> None:
    run = Run(hooks=[hook_at("before_inference")]).begin().hooked(Changes(messages=(user_message("mind"),)))
    assert run.wanted(CallModel)
    assert run.said == ["Do it.", "mind"]
    assert run.state.messages[1].metadata["execution_id"] == run.state.running.execution_id


def test_what_a_hook_says_between_calls_and_answers_comes_behind_the_answers() -> None:
    run = Run(hooks=[hook_at("before_tool")]).begin().answer("", call("a"), call("b"))
    run.hooked(Changes(messages=(user_message("mind"),))).hooked().returns("a").returns("b")
    assert [message.role for message in run.state.messages] == ["user", "assistant", "tool", "tool", "user"]


def test_more_messages_than_can_wait_are_left_out_and_that_is_told() -> None:
    many = tuple(user_message(str(number)) for number in range(MESSAGES_WAITING_MAX))
    run = Run(hooks=[hook_at("before_execution", "one"), hook_at("before_execution", "two")]).begin()
    run.hooked(Changes(messages=many), Changes(messages=many[:2]))
    assert len(run.said) == 1 + MESSAGES_WAITING_MAX
    assert run.state.warnings == ("more than 64 messages wait for one step; the rest was not accepted",)
    run = Run(hooks=[hook_at("before_execution")]).begin().hooked(Changes(messages=many))
    assert len(run.said) == 1 + MESSAGES_WAITING_MAX
    assert run.state.warnings == (), "so many just fit"


def test_hooks_need_not_do_anything() -> None:
    run = Run(hooks=[HookTraits(name="idle", trigger=Trigger.BEFORE_STEP)]).begin()
    before = run.state.metadata
    run.hooked(Changes())
    assert run.wanted(CallModel)
    assert run.state.metadata is before


def test_a_hook_knows_how_long_the_conversation_is_and_when_the_time_is_up() -> None:
    run = Run(ExecutionBudget(max_seconds=60), hooks=[hook_at("after_step")]).begin().answer("", call("a")).returns("a")
    context = run.hook_context
    assert context.message_count == len(run.state.messages)
    assert context.deadline == run.state.running.time_limit_at
    assert context.deadline is not None
